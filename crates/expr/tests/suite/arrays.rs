//! Arrays, sets, documents.

use crate::cases;

#[test]
fn elements_and_parts() {
    cases! {
        "{$arrayElemAt: [[1, 2, 3], -1]}" => "3";
        "{$arrayElemAt: ['$a', 1]}", "{a: [1, {b: 2}]}" => "{b: 2}";
        "{$arrayElemAt: [[1], 5]}" => "missing";
        "{$arrayElemAt: [[1], -5]}" => "missing";
        "{$arrayElemAt: [null, 0]}" => "null";
        "{$arrayElemAt: [1, 0]}" => 28689;
        "{$arrayElemAt: [[1], 'x']}" => 28690;
        "{$arrayElemAt: [[1], 1.5]}" => 28691;
        "{$first: '$a'}", "{a: [7, 8]}" => "7";
        "{$last: [[7, 8]]}" => "8";
        "{$first: [[]]}" => "missing";
        "{$first: 'x'}" => 28689;
        "{$slice: [[1, 2, 3], 2]}" => "[1, 2]";
        "{$slice: [[1, 2, 3], -2]}" => "[2, 3]";
        "{$slice: [[1, 2, 3], 1, 1]}" => "[2]";
        "{$slice: [[1, 2, 3], -9, 2]}" => "[1, 2]";
        "{$slice: [[1], 1, 0]}" => 28729;
        "{$slice: [1, 1]}" => 28724;
        "{$slice: [[1], 'x']}" => 28725;
        "{$slice: [[1], 1.5]}" => 28726;
        "{$size: [[1, 2]]}" => "2";
        "{$size: '$none'}" => 17124;
        "{$isArray: [[1]]}" => "true";
        "{$isArray: 'x'}" => "false";
        "{$in: [1.0, [1, 2]]}" => "true";
        "{$in: [null, ['$none']]}" => "true";
        "{$in: [1, 2]}" => 40081;
        "{$indexOfArray: [[1, 2, 1], 1.0, 1]}" => "2";
        "{$indexOfArray: [[1, 2], 2, 0, 1]}" => "-1";
        "{$indexOfArray: [null, 1]}" => "null";
        "{$indexOfArray: ['x', 1]}" => 40090;
        "{$indexOfArray: [[1], 1, -1]}" => 9711601;
        "{$range: [0, 10, 3]}" => "[0, 3, 6, 9]";
        "{$range: [3, 0, -2]}" => "[3, 1]";
        "{$range: [0, 1, 0]}" => 34449;
        "{$range: ['x', 1]}" => 34443;
        "{$range: [0, 1.5]}" => 34446;
        "{$range: [-2147483648, 2147483647]}" => 146;
        "{$reverseArray: [[1, 2]]}" => "[2, 1]";
        "{$reverseArray: 1}" => 34435;
        "{$concatArrays: [[1], [], [2, [3]]]}" => "[1, 2, [3]]";
        "{$concatArrays: [[1], null]}" => "null";
        "{$concatArrays: [[1], 2]}" => 28664;
        "{$zip: {inputs: [[1, 2], ['a']]}}" => "[[1, 'a']]";
        "{$zip: {inputs: [[1, 2], ['a']], useLongestLength: true}}" => "[[1, 'a'], [2, null]]";
        "{$zip: {inputs: [[1, 2], ['a']], useLongestLength: true, defaults: [0, 'z']}}"
            => "[[1, 'a'], [2, 'z']]";
        "{$zip: {inputs: [[1], null]}}" => "null";
        "{$zip: {inputs: []}}" => 34465;
        "{$zip: {inputs: [[1], 2]}}" => 34468;
        "{$zip: {inputs: [[1]], defaults: [1]}}" => 34466;
    }
}

#[test]
fn binding_operators() {
    cases! {
        "{$map: {input: [1, 2], as: 'x', in: {$add: ['$$x', '$a']}}}", "{a: 10}" => "[11, 12]";
        "{$map: {input: [1], in: '$none'}}" => "[null]";
        "{$map: {input: null, in: 1}}" => "null";
        "{$map: {input: 1, in: 1}}" => 16883;
        "{$map: {input: [1], as: 'X', in: 1}}" => 9;
        "{$map: {input: [1], in: 1, extra: 1}}" => 16879;
        "{$map: 1}" => 16878;
        "{$filter: {input: [1, 2, 3], cond: {$gt: ['$$this', 1]}}}" => "[2, 3]";
        "{$filter: {input: [1, 2, 3], cond: true, limit: 2}}" => "[1, 2]";
        "{$filter: {input: [1], cond: true, limit: 0}}" => 327392;
        "{$filter: {input: [1], cond: true, limit: 1.5}}" => 327391;
        "{$filter: {input: 1, cond: true}}" => 28651;
        "{$reduce: {input: ['a', 'b'], initialValue: '', in: {$concat: ['$$value', '$$this']}}}"
            => "'ab'";
        "{$reduce: {input: [], initialValue: 7, in: 1}}" => "7";
        "{$reduce: {input: 1, initialValue: 7, in: 1}}" => 40080;
        "{$let: {vars: {x: 1, y: '$a'}, in: {$add: ['$$x', '$$y']}}}", "{a: 2}" => "3";
        "{$let: {vars: {x: {b: 5}}, in: '$$x.b'}}" => "5";
        "{$let: {vars: {CURRENT: '$a'}, in: '$b'}}", "{a: {b: 3}, b: 4}" => "3";
        "{$let: {vars: {x: 1}, in: {$let: {vars: {x: 2, y: '$$x'}, in: ['$$x', '$$y']}}}}"
            => "[2, 1]";
        "{$let: {vars: {x: 1}, in: '$$y'}}" => 17276;
        "[{$let: {vars: {x: 1}, in: '$$x'}}, '$$x']" => 17276;
        "{$let: {vars: {X: 1}, in: 1}}" => 9;
        "{$let: {vars: 1, in: 1}}" => 10065;
        "{$let: {in: 1}}" => 16876;
        "{$let: {vars: {}}}" => 16877;
    }
}

#[test]
fn sorting() {
    cases! {
        "{$sortArray: {input: [3, 'a', 1, null], sortBy: 1}}" => "[null, 1, 3, 'a']";
        "{$sortArray: {input: [3, 1], sortBy: -1}}" => "[3, 1]";
        "{$sortArray: {input: [{a: 2, b: 1}, {a: 1}, {a: 2, b: 0}], sortBy: {a: -1, b: 1}}}"
            => "[{a: 2, b: 0}, {a: 2, b: 1}, {a: 1}]";
        "{$sortArray: {input: null, sortBy: 1}}" => "null";
        "{$sortArray: {input: 1, sortBy: 1}}" => 2942504;
        "{$sortArray: {input: [1], sortBy: 2}}" => 2942506;
        "{$sortArray: {input: [1], sortBy: 'a'}}" => 2942507;
        "{$sortArray: {input: [1], sortBy: {}}}" => 2942505;
        "{$firstN: {n: 2, input: [1, 2, 3]}}" => "[1, 2]";
        "{$lastN: {n: 2, input: [1, 2, 3]}}" => "[2, 3]";
        "{$maxN: {n: 2, input: [1, null, 3, 2]}}" => "[3, 2]";
        "{$minN: {n: 9, input: [3, null, 1]}}" => "[1, 3]";
        "{$firstN: {n: 0, input: [1]}}" => 5787908;
        "{$firstN: {n: 1, input: 1}}" => 5788200;
    }
}

#[test]
fn sets() {
    cases! {
        "{$setUnion: [[2, 1], [1.0, 3]]}" => "[1, 2, 3]";
        "{$setUnion: [[1], null]}" => "null";
        "{$setUnion: [[1], 1]}" => 17043;
        "{$setUnion: ['x', '$none']}" => "null";
        "{$setIntersection: [[3, 1, 1], [1, 3, 5]]}" => "[1, 3]";
        "{$setIntersection: [[1, 2], [2.0]]}" => "[2.0]";
        "{$setIntersection: []}" => "[]";
        "{$setIntersection: [[1], 1]}" => 17047;
        "{$setDifference: [[3, 1, 2, 3], [1]]}" => "[3, 2]";
        "{$setDifference: [1, [1]]}" => 17048;
        "{$setEquals: [[1, 2], [2, 1.0, 1]]}" => "true";
        "{$setEquals: [[1], [1, 2]]}" => "false";
        "{$setEquals: [[1]]}" => 17045;
        "{$setEquals: ['$a', [1]]}", "{a: 1}" => 17044;
        "{$setEquals: ['$a', 1]}", "{a: [1]}" => 5887502;
        "{$setIsSubset: [[1, 1], [2, 1]]}" => "true";
        "{$setIsSubset: [null, [1]]}" => 17046;
        "{$allElementsTrue: [[1, 'a', []]]}" => "true";
        "{$allElementsTrue: [[1, 0]]}" => "false";
        "{$anyElementTrue: [[0, null]]}" => "false";
        "{$anyElementTrue: 1}" => 17041;
    }
}

#[test]
fn documents() {
    cases! {
        "{$objectToArray: {a: 1, b: [2]}}" => "[{k: 'a', v: 1}, {k: 'b', v: [2]}]";
        "{$objectToArray: 1}" => 40390;
        "{$arrayToObject: [[['a', 1], ['b', 2], ['a', 3]]]}" => "{a: 3, b: 2}";
        "{$arrayToObject: [[{k: 'a', v: 1}]]}" => "{a: 1}";
        "{$arrayToObject: [[['a', 1], {k: 'b', v: 1}]]}" => 40396;
        "{$arrayToObject: [[{k: 'b', v: 1}, ['a', 1]]]}" => 40391;
        "{$arrayToObject: [[[1, 1]]]}" => 40395;
        "{$arrayToObject: [[['a\\0', 1]]]}" => 4940400;
        "{$arrayToObject: [[1]]}" => 40398;
        "{$mergeObjects: [{a: 1, b: 1}, null, {b: 2, c: 3}]}" => "{a: 1, b: 2, c: 3}";
        "{$mergeObjects: '$a'}", "{a: [{x: 1}, {y: 2}]}" => "{x: 1, y: 2}";
        "{$mergeObjects: [1]}" => 40400;
        "{$getField: 'a.b'}", "{'a.b': 5}" => "5";
        "{$getField: {field: {$concat: [{$literal: '$'}, 'a']}, input: '$$ROOT'}}", "{'$a': 5}" => "5";
        "{$getField: {field: 'x', input: {y: 1}}}" => "missing";
        "{$getField: 1}" => 3041704;
        "{$setField: {field: 'a.b', input: {x: 1}, value: 2}}" => "{x: 1, 'a.b': 2}";
        "{$setField: {field: 'x', input: {x: 1, y: 2}, value: '$$REMOVE'}}" => "{y: 2}";
        "{$unsetField: {field: 'x', input: {x: 1, y: 2}}}" => "{y: 2}";
        "{$setField: {field: '$a', input: {}, value: 1}}" => 4161108;
        "{$setField: {field: 'a', input: 1, value: 1}}" => 4161105;
    }
}
