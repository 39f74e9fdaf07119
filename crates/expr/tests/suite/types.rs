//! Conversions and types.

use crate::cases;

#[test]
fn numbers_from_everything() {
    cases! {
        "{$toInt: '42'}" => "42";
        "{$toInt: 3.9}" => "3";
        "{$toInt: -3.9d}" => "-3";
        "{$toInt: true}" => "1";
        "{$toInt: 2147483648L}" => 241;
        "{$toInt: NaN}" => 241;
        "{$toInt: '1.5'}" => 241;
        "{$toInt: ' 1'}" => 241;
        "{$toInt: Date(0)}" => 241;
        "{$toInt: Bin(0, 'ff7f')}" => "32767";
        "{$toInt: null}" => "null";
        "{$toInt: [1]}" => "1";
        "{$toInt: [1, 2]}" => 50723;
        "{$toLong: Date(5)}" => "5L";
        "{$toLong: '9223372036854775807'}" => "9223372036854775807L";
        "{$toLong: 1e19}" => 241;
        "{$toDouble: '0x1.8p1'}" => "3.0";
        "{$toDouble: '1e309'}" => 241;
        "{$toDouble: 1e400d}" => 241;
        "{$toDecimal: 0.1}" => "0.100000000000000d";
        "{$toDecimal: '-1.50'}" => "-1.50d";
        "{$toDecimal: 'x'}" => 241;
        "{$toBool: ''}" => "true";
        "{$toBool: 0d}" => "false";
        "{$toBool: [[]]}" => "true";
    }
}

#[test]
fn texts_dates_and_bytes() {
    cases! {
        "{$toString: 1e16}" => "'1e+16'";
        "{$toString: 3.0}" => "'3'";
        "{$toString: 1.50d}" => "'1.50'";
        "{$toString: Date(0)}" => "'1970-01-01T00:00:00.000Z'";
        "{$toString: Id('507f1f77bcf86cd799439011')}" => "'507f1f77bcf86cd799439011'";
        "{$toString: Bin(0, '68656c6c6f')}" => "'aGVsbG8='";
        "{$toString: Bin(4, '0102030405060708090a0b0c0d0e0f10')}" => "'01020304-0506-0708-090a-0b0c0d0e0f10'";
        "{$toString: {a: 1}}" => 241;
        "{$toDate: '2024-06-15'}" => "Date(1718409600000)";
        "{$toDate: 1000L}" => "Date(1000)";
        "{$toDate: 1}" => 241;
        "{$toDate: Id('666d9c000000000000000000')}" => "Date(1718459392000)";
        "{$toObjectId: '507f1f77bcf86cd799439011'}" => "Id('507f1f77bcf86cd799439011')";
        "{$toObjectId: 'xyz'}" => 241;
        "{$toUUID: '01020304-0506-0708-090a-0b0c0d0e0f10'}" => "Bin(4, '0102030405060708090a0b0c0d0e0f10')";
        "{$convert: {input: '5', to: 'int'}}" => "5";
        "{$convert: {input: 'x', to: 'int', onError: 'bad'}}" => "'bad'";
        "{$convert: {input: null, to: 'int', onNull: 'none'}}" => "'none'";
        "{$convert: {input: 1, to: null}}" => "null";
        "{$convert: {input: 5, to: 2}}" => "'5'";
        "{$convert: {input: 258, to: 'binData', byteOrder: 'big'}}" => "Bin(0, '00000102')";
        "{$convert: {input: 'aGk=', to: {type: 'binData', subtype: 5}, format: 'base64'}}" => "Bin(5, '6869')";
        "{$convert: {input: Bin(0, '6869'), to: 'string', format: 'hex'}}" => "'6869'";
        "{$convert: {input: 'hi', to: 'binData'}}" => 4341115;
        "{$convert: {input: 'hi', to: 'binData', format: 'x'}}" => 4341125;
        "{$convert: {input: 'hi', to: 'binData', format: 1}}" => 4341114;
        "{$convert: {input: 1, to: 'binData', byteOrder: 'x'}}" => 9130002;
        "{$convert: {input: 1, to: {type: 'binData', subtype: 20}}}" => 4341107;
        "{$convert: {input: 1, to: 'nothing'}}" => 2;
        "{$convert: {input: 1, to: 99}}" => 9;
        "{$convert: {input: 1, to: 'object'}}" => 241;
        "{$convert: {input: 1}}" => 9;
        "{$convert: 1}" => 9;
    }
}

#[test]
fn asking_for_types() {
    cases! {
        "{$type: '$a'}" => "'missing'";
        "{$type: '$a'}", "{a: null}" => "'null'";
        "{$type: 1L}" => "'long'";
        "{$type: Bin(0, '')}" => "'binData'";
        "{$isNumber: 1d}" => "true";
        "{$isNumber: 'x'}" => "false";
        "{$binarySize: 'é'}" => "2";
        "{$binarySize: 1}" => 51276;
        "{$bsonSize: {a: 1}}" => "12";
        "{$bsonSize: 1}" => 31393;
        "{$toHashedIndexKey: 'string to hash'}" => "763543691661428748L";
    }
}
