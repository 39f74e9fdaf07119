//! Strings and regular expressions.

use crate::cases;

#[test]
fn building_and_taking_apart() {
    cases! {
        "{$concat: ['a', '$b', 'c']}", "{b: 'x'}" => "'axc'";
        "{$concat: ['a', '$b']}" => "null";
        "{$concat: ['a', 1]}" => 16702;
        "{$toUpper: 'aé'}" => "'Aé'";
        "{$toLower: null}" => "''";
        "{$toLower: 3.5}" => "'3.5'";
        "{$toUpper: 123456.789}" => "'123457'";
        "{$toUpper: Date(0)}" => "'1970-01-01T00:00:00.000Z'";
        "{$toUpper: Time(1704067200, 7)}" => "'JAN  1 00:00:00:7'";
        "{$toLower: [[1]]}" => 16007;
        "{$strcasecmp: ['abc', 'ABD']}" => "-1";
        "{$strcasecmp: ['B', 'a']}" => "1";
        "{$strLenBytes: 'é'}" => "2";
        "{$strLenCP: 'é'}" => "1";
        "{$strLenCP: null}" => 34471;
        "{$strLenBytes: 1}" => 34473;
        "{$substrBytes: ['héllo', 0, 3]}" => "'hé'";
        "{$substrBytes: ['héllo', 2, 3]}" => 28656;
        "{$substrBytes: ['héllo', 0, 2]}" => 28657;
        "{$substr: ['hello', 1, -1]}" => "'ello'";
        "{$substrBytes: ['hello', -1, 1]}" => 50752;
        "{$substrBytes: ['hello', 99, 1]}" => "''";
        "{$substrBytes: ['hello', 'x', 1]}" => 16034;
        "{$substrCP: ['héllo', 1, 3]}" => "'éll'";
        "{$substrCP: ['héllo', 9, 3]}" => "''";
        "{$substrCP: ['héllo', -1, 3]}" => 34455;
        "{$substrCP: ['héllo', 0, 1.5]}" => 34453;
        "{$split: ['a,b,,c', ',']}" => "['a', 'b', '', 'c']";
        "{$split: ['a', '']}" => 40087;
        "{$split: [null, ',']}" => "null";
        "{$split: ['a', 1]}" => 10503900;
    }
}

#[test]
fn searching_and_replacing() {
    cases! {
        "{$indexOfBytes: ['héllo', 'l']}" => "3";
        "{$indexOfBytes: ['hello', 'l', 3]}" => "3";
        "{$indexOfBytes: ['hello', 'l', 4, 5]}" => "-1";
        "{$indexOfBytes: ['hello', 'o', 9]}" => "-1";
        "{$indexOfBytes: ['hello', 'l', -1]}" => 40097;
        "{$indexOfBytes: ['hello', 'l', 'x']}" => 40096;
        "{$indexOfBytes: [1, 'l']}" => 40091;
        "{$indexOfBytes: ['a', 1]}" => 40092;
        "{$indexOfBytes: ['a']}" => 28667;
        "{$indexOfCP: ['héllo', 'l']}" => "2";
        "{$indexOfCP: ['héllo', 'llo', 0, 3]}" => "2";
        "{$indexOfCP: ['abc', '', 3]}" => "-1";
        "{$indexOfCP: [null, 'a']}" => "null";
        "{$trim: {input: ' \\ta\\n '}}" => "'a'";
        "{$ltrim: {input: 'xxaxx', chars: 'x'}}" => "'axx'";
        "{$rtrim: {input: 'xxaxx', chars: 'yx'}}" => "'xxa'";
        "{$trim: {input: 'a', chars: null}}" => "null";
        "{$trim: {input: 1}}" => 50699;
        "{$trim: {input: 'a', chars: 1}}" => 50700;
        "{$trim: 'a'}" => 50696;
        "{$trim: {chars: 'a'}}" => 50695;
        "{$trim: {input: 'a', other: 1}}" => 50694;
        "{$replaceOne: {input: 'aXbX', find: 'X', replacement: '-'}}" => "'a-bX'";
        "{$replaceAll: {input: 'aXbX', find: 'X', replacement: '-'}}" => "'a-b-'";
        "{$replaceAll: {input: 'ab', find: '', replacement: '-'}}" => "'-a-b-'";
        "{$replaceAll: {input: 'ab', find: null, replacement: '-'}}" => "null";
        "{$replaceOne: {input: 1, find: 'a', replacement: 'b'}}" => 10503904;
        "{$replaceOne: {input: 'a', find: 'b'}}" => 51747;
    }
}

#[test]
fn regular_expressions() {
    cases! {
        "{$regexMatch: {input: 'HELLO', regex: 'ell', options: 'i'}}" => "true";
        "{$regexMatch: {input: '$s', regex: /^a/}}", "{s: 'abc'}" => "true";
        "{$regexMatch: {input: null, regex: 'a'}}" => "false";
        "{$regexMatch: {input: 1, regex: 'a'}}" => 51104;
        "{$regexMatch: {input: 'a', regex: 1}}" => 51105;
        "{$regexMatch: {input: 'a', regex: 'a', options: 1}}" => 51106;
        "{$regexMatch: {input: 'a', regex: /a/i, options: 'i'}}" => 51107;
        "{$regexMatch: {input: 'a', regex: 'a', options: 'g'}}" => 51108;
        "{$regexMatch: {input: 'a', regex: 'a\\0b'}}" => 51109;
        "{$regexMatch: {input: 'a', regex: 'a', options: 'i\\0'}}" => 51110;
        "{$regexMatch: {input: '$x', regex: '('}}" => 51111;
        "{$regexMatch: {input: '$x', regex: '$y'}}", "{x: 'a', y: '('}" => 51111;
        "{$regexMatch: 'a'}" => 51103;
        "{$regexMatch: {regex: 'a'}}" => 31022;
        "{$regexMatch: {input: 'a'}}" => 31023;
        "{$regexMatch: {input: 'a', regex: 'a', x: 1}}" => 31024;
        "{$regexFind: {input: 'éab', regex: '(a)(x)?b'}}"
            => "{match: 'ab', idx: 1, captures: ['a', null]}";
        "{$regexFind: {input: 'a', regex: 'b'}}" => "null";
        "{$regexFindAll: {input: 'aéa', regex: 'a'}}"
            => "[{match: 'a', idx: 0, captures: []}, {match: 'a', idx: 2, captures: []}]";
        "{$regexFindAll: {input: 'ab', regex: ''}}"
            => "[{match: '', idx: 0, captures: []}, {match: '', idx: 1, captures: []}]";
        "{$regexFindAll: {input: null, regex: 'a'}}" => "[]";
        "{$regexFind: {input: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', regex: '^(a+)+$'}}" => 51156;
    }
}
