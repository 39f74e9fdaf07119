//! The hash of hashed indexes and shard keys: the first eight bytes of an MD5 over a value's type class and bytes;
//! numbers are truncated to a long.

use kauri_base::work;
use kauri_bson::not_utf8::code_and_scope;
use kauri_bson::writer::put_value_bytes;
use kauri_bson::{Doc, Number, Type, Value};
use std::sync::LazyLock;

/// The hash of a value (`convertShardKeyToHashed`, hashed indexes, `$toHashedIndexKey`).
pub fn hash_key(value: &Value<'_>) -> i64 {
    const SEED: i32 = 0;
    let mut bytes = SEED.to_le_bytes().to_vec();
    let null = Value::Null;
    append(&mut bytes, if value.is_missing() { &null } else { value });
    let digest = md5(&bytes);
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// MongoDB's number of a type's class.
fn class(ty: Type) -> i32 {
    match ty {
        Type::MinKey => -1,
        Type::Undefined => 0,
        ty => i32::from(ty.canonical()),
    }
}

fn append(bytes: &mut Vec<u8>, value: &Value<'_>) {
    let Some(ty) = value.ty() else { return };
    bytes.extend_from_slice(&class(ty).to_le_bytes());
    append_content(bytes, value);
}

fn append_content(bytes: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Document(doc) | Value::Array(doc) => append_elements(bytes, doc.as_doc()),
        Value::CodeWithScope { code, scope } => {
            bytes.extend_from_slice(code.as_bytes());
            bytes.push(0);
            append_elements(bytes, scope.as_doc());
        }
        Value::NotUtf8 { ty: Type::CodeWithScope, bytes: raw } => {
            if let Some((code, scope)) = code_and_scope(raw) {
                bytes.extend_from_slice(code);
                bytes.push(0);
                append_elements(bytes, scope);
            }
        }
        other => match other.as_number() {
            Some(number) => bytes.extend_from_slice(&whole(number).to_le_bytes()),
            None => put_value_bytes(bytes, other),
        },
    }
}

fn whole(number: Number) -> i64 {
    if number.is_nan() { 0 } else { number.to_i64_saturating() }
}

/// With a list of the open documents: intermediate values nest as deep as a pipeline makes them.
fn append_elements(bytes: &mut Vec<u8>, doc: Doc<'_>) {
    let mut open = vec![doc.iter()];
    while let Some(elems) = open.last_mut() {
        work::tick_infallible(1);
        let Some(elem) = elems.next() else {
            // The end of the document counts as an element without type and name.
            bytes.extend_from_slice(&0i32.to_le_bytes());
            open.pop();
            continue;
        };
        bytes.extend_from_slice(&class(elem.ty()).to_le_bytes());
        bytes.extend_from_slice(elem.key_bytes());
        bytes.push(0);
        if let Some(inner) = elem.as_doc() {
            open.push(inner.iter());
            continue;
        }
        let code = Some(elem).filter(|elem| elem.ty() == Type::CodeWithScope);
        match code.and_then(|elem| code_and_scope(elem.value_bytes())) {
            Some((code, scope)) => {
                bytes.extend_from_slice(code);
                bytes.push(0);
                open.push(scope.iter());
            }
            None => append_content(bytes, &elem.value()),
        }
    }
}

/// MD5's constants: floor(2^32 · |sin(step + 1)|).
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|step| (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
});

/// MD5 (RFC 1321). Not for secrets.
fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if message.len() % 64 > 55 {
        padded.resize(padded.len() + 64, 0);
    }
    padded.truncate(padded.len() - 8);
    padded.extend_from_slice(&(message.len() as u64 * 8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        work::tick_infallible(4);
        let word = |at: usize| {
            let bytes = block.get(at * 4..at * 4 + 4).and_then(|b| b.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mix, at) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let constant = SINES.get(step).copied().unwrap_or_default();
            let sum = a.wrapping_add(mix).wrapping_add(constant).wrapping_add(word(at % 16));
            let turned = sum.rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (slot, part) in state.iter_mut().zip([a, b, c, d]) {
            *slot = slot.wrapping_add(part);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::hex_lower;
    use kauri_bson::{Decimal128, array, doc};

    #[test]
    fn md5_of_the_rfc() {
        let cases = [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(hex_lower(&md5(text.as_bytes())), expected);
        }
        for length in [55, 56, 63, 64, 65] {
            assert_ne!(md5(&vec![0; length]), md5(&vec![0; length + 1]));
        }
    }

    /// What MongoDB answers.
    #[test]
    fn known_keys() {
        let cases: Vec<(Value<'_>, i64)> = vec![
            (42.into(), -944302157085130861),
            (42.123.into(), -944302157085130861),
            (Value::Decimal128(Decimal128::from(42)), -944302157085130861),
            (0.into(), 4854801880128277513),
            (f64::NAN.into(), 4854801880128277513),
            ((-1i64).into(), 1140205862565771219),
            (f64::MAX.into(), 921523596458303250),
            (i64::MIN.into(), 4532067210535695462),
            ("string to hash".into(), 763543691661428748),
            ("abc".into(), 8478485326885698097),
            (Value::MinKey, 7961148599568647290),
            (Value::MaxKey, 5504842513779440750),
            (Value::Undefined, 40158834000849533),
            (Value::Null, 2338878944348059895),
            (Value::Missing, 2338878944348059895),
            (doc! { "a" => "abc", "b" => 123i64 }.into(), 4771603801758380216),
            (doc! {}.into(), 7980500913326740417),
            (array!["bar", "baz", "qux"], -2938911267422831539),
            (array![], 8849948234993459283),
            (
                Value::Binary { subtype: 0, bytes: vec![0, 1, 2, 3, 4, 6].into() },
                7252465090394235301,
            ),
            (Value::ObjectId([0; 12]), -4293118519463489418),
            (Value::Bool(true), 6405873908747105701),
            (Value::Regex { pattern: ".*".into(), options: "i".into() }, 7095855029187981886),
            (Value::Code("func f() { return 1; }".into()), 6861638109178014270),
            (
                Value::CodeWithScope {
                    code: "func f() { return 1; }".into(),
                    scope: doc! { "c" => true }.into(),
                },
                501342939894575968,
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(hash_key(&value), expected, "{value:?}");
        }
    }
}
