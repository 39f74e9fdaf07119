//! Order, round trip and form of keys.

use super::*;
use crate::compare::compare;
use crate::random::Random;
use crate::value::Decimal128;
use std::cmp::Ordering;

fn key(values: &[(Value<'_>, bool)]) -> KeyStringBuilder {
    let mut builder = KeyStringBuilder::new();
    for (value, descending) in values {
        builder.append(value, *descending);
    }
    builder
}

fn one(value: &Value<'_>) -> KeyStringBuilder {
    key(&[(value.clone(), false)])
}

/// What decoding must give: NaN and missing have lost what the head of the module says.
fn expected(value: &Value<'_>) -> String {
    format!("{value:?}").replace("missing", "undefined")
}

fn ordered(a: &Value<'_>, b: &Value<'_>, descending: bool) -> Ordering {
    let order = compare(a, b);
    if descending { order.reverse() } else { order }
}

#[test]
fn bytes_order_as_values_do() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        for round in 0..60_000 {
            let (a, b) = if round % 2 == 0 {
                (random.number(), random.number())
            } else {
                (random.value(2), random.value(2))
            };
            for descending in [false, true] {
                let left = key(&[(a.clone(), descending)]);
                let right = key(&[(b.clone(), descending)]);
                let order = ordered(&a, &b, descending);
                let context = format!("seed {seed}, {a:?} against {b:?}, {descending}");
                assert_eq!(left.bytes().cmp(right.bytes()), order, "{context}");
                // Prefix-free, so that fields and record ids can follow.
                let prefix = left.bytes().starts_with(right.bytes())
                    || right.bytes().starts_with(left.bytes());
                assert!(!prefix || order.is_eq(), "{context}: one is the other's prefix");
            }
        }
    }
}

#[test]
fn neighbouring_numbers_stay_in_order() {
    // Sorted by comparison, so that each number meets its nearest neighbours.
    for seed in 100..104 {
        let mut random = Random::new(seed);
        let mut numbers: Vec<_> = (0..20_000).map(|_| random.number()).collect();
        numbers.sort_by(compare);
        for pair in numbers.windows(2) {
            let (left, right) = (one(&pair[0]), one(&pair[1]));
            let order = compare(&pair[0], &pair[1]);
            assert_eq!(left.bytes().cmp(right.bytes()), order, "seed {seed}, {pair:?}");
        }
    }
}

#[test]
fn compound_keys_order_field_by_field() {
    let mut random = Random::new(7);
    for _ in 0..50_000 {
        let directions = [random.chance(2), random.chance(2), random.chance(2)];
        let fields = |random: &mut Random| {
            directions
                .map(|d| (if random.chance(2) { Value::Int32(1) } else { random.value(1) }, d))
        };
        let (a, b) = (fields(&mut random), fields(&mut random));
        let order = a
            .iter()
            .zip(&b)
            .map(|((x, descending), (y, _))| ordered(x, y, *descending))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        assert_eq!(key(&a).bytes().cmp(key(&b).bytes()), order, "{a:?} against {b:?}");
        let mut with_ids = [key(&a).to_vec(), key(&b).to_vec()];
        append_record_id(&mut with_ids[0], kauri_base::RecordId(u64::MAX));
        append_record_id(&mut with_ids[1], kauri_base::RecordId(1));
        let with_id = order.then(Ordering::Greater);
        assert_eq!(with_ids[0].cmp(&with_ids[1]), with_id, "{a:?} against {b:?}");
    }
}

#[test]
fn values_survive_a_round_trip() {
    for seed in 10..14 {
        let mut random = Random::new(seed);
        for _ in 0..30_000 {
            let fields: Vec<_> =
                (0..1 + random.below(3)).map(|_| (random.value(2), random.chance(2))).collect();
            let key = key(&fields);
            let decoded = decode(key.bytes(), key.type_bits(), fields.iter().map(|f| f.1)).unwrap();
            let wanted: Vec<_> = fields.iter().map(|f| expected(&f.0)).collect();
            let found: Vec<_> = decoded.iter().map(expected).collect();
            assert_eq!(found, wanted, "seed {seed}");
            // And the bytes again, from the document's raw elements.
            let doc = crate::DocBuf::build(|w| {
                for (value, _) in &fields {
                    w.put_value("x", value);
                }
            });
            let mut raw = KeyStringBuilder::new();
            for (elem, (_, descending)) in doc.as_doc().iter().zip(&fields) {
                raw.append_elem(elem, *descending);
            }
            assert_eq!(raw.bytes(), key.bytes());
            assert_eq!(raw.type_bits(), key.type_bits());
        }
    }
}

#[test]
fn damaged_keys_do_not_panic() {
    let mut random = Random::new(99);
    for _ in 0..100_000 {
        let key = one(&random.value(2));
        let mut bytes = key.to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(3) {
            0 => bytes.truncate(at),
            1 => bytes[at] = random.bits() as u8,
            _ => bytes.insert(at, random.bits() as u8),
        }
        let bits: Vec<u8> = (0..random.below(4)).map(|_| random.bits() as u8).collect();
        let _ = decode(&bytes, &bits, [random.chance(2), false]);
    }
}

#[test]
fn common_keys_are_short_and_need_no_type_bits() {
    for (value, length) in [
        (Value::ObjectId([1; 12]), 13),
        (Value::Int32(0), 1),
        (Value::Int32(1), 2),
        (Value::Int32(127), 2),
        (Value::Int32(-127), 2),
        (Value::Int32(1000), 3),
        (Value::Int32(i32::MAX), 5),
        (Value::Int64(1 << 40), 7),
        (Value::Double(1.5), 3),
        (Value::Double(0.1), 9),
        (Value::String("abc".into()), 5),
        (Value::Null, 1),
        (Value::Bool(true), 1),
        (Value::DateTime(5), 9),
    ] {
        let key = one(&value);
        assert_eq!(key.bytes().len(), length, "{value:?}");
        assert!(key.type_bits().is_empty(), "{value:?}");
    }
    assert_eq!(one(&Value::Int64(1)).type_bits().len(), 1);
    let mixed = [Value::Int32(5), Value::Int64(5), Value::Double(5.0), Decimal128::from(5).into()];
    for value in &mixed {
        assert_eq!(one(value).bytes(), one(&mixed[0]).bytes(), "{value:?}");
    }
}

#[test]
fn bounds_enclose_keys_that_begin_with_their_fields() {
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let descending = random.chance(2);
        let first = (random.value(1), descending);
        let full = key(&[first.clone(), (random.value(1), random.chance(2))]);
        let bound =
            |discriminator| key(std::slice::from_ref(&first)).finish(discriminator).to_vec();
        assert!(bound(Discriminator::ExclusiveBefore).as_slice() < full.bytes());
        assert!(bound(Discriminator::ExclusiveAfter).as_slice() > full.bytes());
        let other = random.value(1);
        let after = key(&[(other.clone(), descending)]);
        if ordered(&first.0, &other, descending).is_lt() {
            assert!(bound(Discriminator::ExclusiveAfter).as_slice() < after.bytes());
        }
    }
    assert!(key(&[(Value::MaxKey, false)]).bytes() < &[AFTER][..]);
    assert!(key(&[(Value::MinKey, true)]).bytes() < &[AFTER][..]);
}

#[test]
fn values_beyond_the_recursion_limit_encode_the_same() {
    let wrap = |value: &Value<'static>, levels: u32| {
        (0..levels).fold(value.clone(), |value, level| match level % 3 {
            0 => crate::doc! { "a" => value, "z" => 1 }.into(),
            1 => crate::array![value],
            _ => Value::CodeWithScope {
                code: "c".into(),
                scope: crate::doc! { "s" => value }.into(),
            },
        })
    };
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (a, b) = (random.value(2), random.value(2));
        for levels in [RECURSION_MAX - 1, RECURSION_MAX, RECURSION_MAX + 1, 40, 61] {
            let (deep_a, deep_b) = (wrap(&a, levels), wrap(&b, levels));
            let (key_a, key_b) = (one(&deep_a), one(&deep_b));
            let order = key_a.bytes().cmp(key_b.bytes());
            assert_eq!(order, compare(&deep_a, &deep_b), "seed {seed}, {levels} levels");
            let decoded = decode(key_a.bytes(), key_a.type_bits(), [false]).unwrap();
            assert_eq!(format!("{:?}", decoded[0]), expected(&deep_a), "seed {seed}");
        }
    }
}

#[test]
fn random_bytes_as_text_order_as_compared_and_come_back() {
    let letters = [0, 1, 2, b'a', 0x7F, 0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF4, 0xFE, 0xFF];
    let mut not_utf8 = 0;
    for seed in 200..204 {
        let mut random = Random::new(seed);
        let mut text =
            || -> Vec<u8> { (0..random.below(5)).map(|_| random.pick(&letters)).collect() };
        for round in 0..40_000 {
            let (a, b) = (text(), text());
            let ty = [Type::String, Type::Symbol, Type::Code][round % 3];
            let left = Value::text_of_bytes(ty, a.clone().into());
            let right = Value::text_of_bytes(ty, b.clone().into());
            not_utf8 += u32::from(left.is_not_utf8());
            let context = format!("seed {seed}, {ty:?} {a:02x?} against {b:02x?}");
            assert_eq!(compare(&left, &right), a.cmp(&b), "{context}");
            for descending in [false, true] {
                let order = ordered(&left, &right, descending);
                let left = key(&[(left.clone(), descending), (Value::Null, false)]);
                let right = key(&[(right.clone(), descending), (Value::Null, false)]);
                assert_eq!(left.bytes().cmp(right.bytes()), order, "{context} {descending}");
            }
            let key = one(&left);
            let decoded = decode(key.bytes(), key.type_bits(), [false]).unwrap();
            assert_eq!(decoded, std::slice::from_ref(&left), "{context}");
            // From a document's bytes the key is the same.
            let doc = crate::doc! { "a" => left };
            let mut from_doc = KeyStringBuilder::new();
            from_doc.append_elem(doc.as_doc().get("a").unwrap(), false);
            assert_eq!(from_doc.bytes(), key.bytes(), "{context}");
        }
    }
    assert!(not_utf8 > 50_000, "{not_utf8}");
}
