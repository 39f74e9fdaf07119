//! Index definitions: accepted forms, error codes of rejected definitions, and conflicts between definitions.

use kauri_base::ErrorCode;
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_catalog::spec::{Likeness, compare_specs, conflicts, normalise};

fn with(options: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("key", doc! { "a" => 1 });
        out.put("name", "x");
        out.put_all(options.as_doc());
    })
}

fn keyed(key: DocBuf) -> DocBuf {
    doc! { "key" => key, "name" => "x" }
}

fn code(spec: &DocBuf) -> i32 {
    normalise(spec.as_doc(), false).map_or_else(|error| error.code().number(), |_| 0)
}

#[test]
fn wrong_definitions_are_refused_with_mongodbs_codes() {
    let many = DocBuf::build(|out| (0..33).for_each(|i| out.put(&format!("f{i}"), 1)));
    for (spec, expected) in [
        (doc! {}, 9),
        (doc! { "key" => doc! { "a" => 1 } }, 9),
        (doc! { "name" => "x" }, 9),
        (doc! { "key" => 1, "name" => "x" }, 14),
        (doc! { "key" => doc! { "a" => 1 }, "name" => 1 }, 14),
        (doc! { "key" => doc! { "a" => 1 }, "name" => "" }, 67),
        (doc! { "key" => doc! { "a" => 1 }, "name" => "*" }, 2),
        (doc! { "key" => doc! { "a" => 1 }, "name" => "_id_" }, 2),
        (keyed(doc! {}), 67),
        (keyed(doc! { "a" => 0 }), 67),
        (keyed(doc! { "a" => f64::NAN }), 67),
        (keyed(doc! { "a" => true }), 67),
        (keyed(doc! { "a" => "nonsense" }), 67),
        (keyed(doc! { "a" => "wildcard" }), 7_246_202),
        (keyed(doc! { "" => 1 }), 67),
        (keyed(doc! { "a..b" => 1 }), 67),
        (keyed(doc! { "$a" => 1 }), 67),
        (keyed(doc! { "a" => "hashed", "b" => "hashed" }), 31_303),
        (keyed(doc! { "_id" => -1 }), 2),
        (keyed(many), 13_103),
        (with(doc! { "v" => 0 }), 67),
        (with(doc! { "v" => 2.5 }), 2),
        (with(doc! { "v" => "2" }), 14),
        (with(doc! { "nonsense" => 1 }), 197),
        (with(doc! { "unique" => "yes" }), 14),
        (with(doc! { "hidden" => 1 }), 14),
        (with(doc! { "expireAfterSeconds" => -1 }), 67),
        (with(doc! { "expireAfterSeconds" => 2_147_483_648i64 }), 67),
        (with(doc! { "expireAfterSeconds" => "1" }), 67),
        (with(doc! { "partialFilterExpression" => 1 }), 14),
        (with(doc! { "partialFilterExpression" => doc! { "a" => doc! { "$ne" => 1 } } }), 67),
        (
            with(
                doc! { "partialFilterExpression" => doc! { "$nor" => array![doc! { "a" => 1 }] } },
            ),
            67,
        ),
        (with(doc! { "sparse" => true, "partialFilterExpression" => doc! { "a" => 1 } }), 67),
        (with(doc! { "collation" => doc! {} }), 2),
        (with(doc! { "collation" => doc! { "locale" => "nonsense_xyz" } }), 2),
        (with(doc! { "collation" => doc! { "locale" => "en" } }), 67),
        (with(doc! { "wildcardProjection" => doc! { "a" => 1 } }), 2),
        (with(doc! { "weights" => doc! { "a" => 1 } }), 67),
    ] {
        assert_eq!(code(&spec), expected, "{spec:?}");
    }
    for key in [doc! { "a" => "text" }, doc! { "a" => "2dsphere" }, doc! { "$**" => 1 }] {
        assert_eq!(code(&keyed(key)), 67);
    }
    let id = doc! { "key" => doc! { "_id" => 1 }, "name" => "x", "unique" => true };
    assert_eq!(code(&id), 197);
}

/// Each has MongoDB's code. What is valid is refused as not supported, with 67 and these words.
#[test]
fn definitions_of_wildcard_indexes_are_checked() {
    let told = |spec: &DocBuf| {
        let error = normalise(spec.as_doc(), false).unwrap_err();
        (error.code().number(), error.message().contains("is not supported by this server"))
    };
    for (key, code) in [
        (doc! { "$**" => 1 }, 0),
        (doc! { "$**" => -1 }, 0),
        (doc! { "a.b.$**" => 1.5 }, 0),
        (doc! { "a" => 1, "b.$**" => -1, "c" => -1 }, 0),
        (doc! { "ab" => 1, "a.$**" => 1 }, 0),
        (doc! { "a" => 1, "a.b.$**" => 1 }, 0),
        // A compound one on all fields needs a projection.
        (doc! { "a" => 1, "$**" => 1 }, 67),
        (doc! { "$**" => 0 }, 67),
        (doc! { "a.$**" => 0 }, 67),
        (doc! { "$**" => f64::NAN }, 67),
        (doc! { "$**" => true }, 67),
        (doc! { "$**" => "" }, 67),
        (doc! { "$**" => "x" }, 67),
        (doc! { "$**" => "wildcard" }, 67),
        (doc! { "$**" => "hashed" }, 67),
        (doc! { "$**" => "2d" }, 67),
        (doc! { "$**" => "2dsphere" }, 67),
        (doc! { "a.$**" => "text" }, 67),
        (doc! { "a" => "hashed", "$**" => 1 }, 67),
        (doc! { "a.$**" => 1, "b" => "hashed" }, 67),
        (doc! { "a" => "wildcard", "$**" => 1 }, 67),
        (doc! { "a.$**.$**" => 1 }, 67),
        (doc! { "$**.$**" => 1 }, 67),
        (doc! { ".$**" => 1 }, 67),
        (doc! { "a..$**" => 1 }, 67),
        (doc! { "$**.a" => 1 }, 67),
        (doc! { "a.$**.b" => 1 }, 67),
        (doc! { "$**" => 1, "a.$**" => 1 }, 7_246_201),
        (doc! { "a" => "wildcard" }, 7_246_202),
        (doc! { "a.b" => 1, "a.$**" => 1 }, 7_246_204),
        (doc! { "a.$**" => 1, "a" => 1 }, 7_246_204),
    ] {
        let expected = if code == 0 { (67, true) } else { (code, false) };
        assert_eq!(told(&keyed(key.clone())), expected, "{key:?}");
    }
    let one = doc! { "$**" => 1 };
    for option in ["sparse", "unique", "prepareUnique"] {
        let spec = doc! { "key" => one.clone(), "name" => "x", option => true };
        assert_eq!(told(&spec), (67, false), "{option}");
    }
    let twice = DocBuf::build(|out| {
        out.put("a", 1);
        out.put("a", -1);
    });
    assert_eq!(told(&keyed(twice)).0, 2);
}

#[test]
fn projections_of_wildcard_indexes_are_checked() {
    let told = |key: &DocBuf, projection: DocBuf| {
        let spec = doc! { "key" => key.clone(), "name" => "x", "wildcardProjection" => projection };
        let error = normalise(spec.as_doc(), false).unwrap_err();
        let is_valid = error.message().contains("is not supported by this server");
        if is_valid { 0 } else { error.code().number() }
    };
    let all = doc! { "$**" => 1 };
    let twice = DocBuf::build(|out| {
        out.put("a", 1);
        out.put("a", 1);
    });
    let within = DocBuf::build(|out| {
        out.put("a", 1);
        out.put("a", doc! { "b" => 1 });
    });
    for (projection, code) in [
        (doc! { "a" => 1 }, 0),
        (doc! { "a" => false, "b.c" => 0 }, 0),
        (doc! { "_id" => 0, "a" => 1, "b" => true }, 0),
        (doc! { "a" => 0, "_id" => 1 }, 0),
        (doc! { "_id" => 1 }, 0),
        (doc! { "a" => doc! { "b" => 1, "c" => doc! { "d" => 1 } } }, 0),
        (doc! { "a.b" => 1, "a.c" => 1, "ab" => 1 }, 0),
        (doc! {}, 9),
        (doc! { "a" => 1, "b" => 0 }, 31_254),
        (doc! { "a" => 0, "b" => 1 }, 31_253),
        (doc! { "a" => doc! { "b" => 1, "c" => 0 } }, 31_254),
        (doc! { "a" => 1, "a.b" => 0 }, 31_249),
        (doc! { "a" => 1, "a.b" => 1 }, 31_249),
        (twice, 31_250),
        (within, 31_249),
        (doc! { "a.b" => 1, "a" => 1 }, 31_250),
        (doc! { "a" => doc! { "b" => 1 }, "a.b.c" => 1 }, 31_249),
        (doc! { "a" => doc! { "b" => 1 }, "a.c" => 1 }, 0),
        (doc! { ["a"; 201].join(".").as_str() => 1 }, 15),
        (doc! { "a" => doc! {} }, 51_270),
        (doc! { "a" => "yes" }, 51_271),
        (doc! { "a" => "1" }, 51_271),
        (doc! { "a" => array![1] }, 51_271),
        (doc! { "a" => Value::Null }, 51_271),
        (doc! { "a" => doc! { "$add" => array![1, 2] } }, 51_271),
        (doc! { "" => 1 }, 40_352),
        (doc! { "a." => 1 }, 40_353),
        (doc! { "a..b" => 1 }, 15_998),
        (doc! { "$a" => 1 }, 16_410),
        (doc! { "a.$" => 1 }, 16_410),
    ] {
        assert_eq!(told(&all, projection.clone()), code, "{projection:?}");
    }
    assert_eq!(told(&doc! { "a.$**" => 1 }, doc! { "a" => 1 }), 9);
    assert_eq!(told(&doc! { "a" => 1, "b.$**" => 1 }, doc! { "a" => 0 }), 9);
    assert_eq!(told(&doc! { "a" => 1 }, doc! { "a" => 1 }), 2);
    let compound = doc! { "c.d.e" => 1, "a.b" => 1, "$**" => 1 };
    for (projection, code) in [
        (doc! { "e" => 1, "c.d.e.l" => 1, "a.b.c" => 1 }, 0),
        (doc! { "a" => 0, "c.d.e" => 0 }, 0),
        (doc! { "_id" => 1, "a" => 0, "c.d.e" => 0 }, 0),
        (doc! { "_id" => 0, "x" => 1 }, 7_246_210),
        (doc! {}, 9),
        (doc! { "a" => "x" }, 7_246_207),
        (doc! { "a" => doc! { "b" => 0 } }, 7_246_207),
        (doc! { "x" => 1, "x.y" => 1 }, 7_246_200),
        (doc! { "a" => 0, "a.b" => 0, "c" => 0 }, 7_246_200),
        (doc! { "a" => 1 }, 7_246_208),
        (doc! { "c.d.e" => 1 }, 7_246_208),
        (doc! { "c" => 0 }, 7_246_209),
        (doc! { "a" => 0, "x" => 0 }, 7_246_209),
        (doc! { "a" => 0 }, 7_246_210),
        (doc! { "a" => 0, "b" => 0, "c.d.a" => 0 }, 7_246_210),
        (doc! { "a" => 0, "c" => 0, "x" => 1, "y" => 1 }, 7_246_211),
    ] {
        assert_eq!(told(&compound, projection.clone()), code, "{projection:?}");
    }
    let overlap = doc! { "a" => 1, "$**" => 1 };
    assert_eq!(told(&overlap, doc! { "b" => 0 }), 7_246_209);
}

/// A projection as long as a message ends in time.
#[test]
fn long_projections_are_checked_in_time() {
    let projection = DocBuf::build(|out| {
        for field in 0..300_000 {
            out.put(&format!("f{field}.x"), 1);
        }
    });
    let spec = doc! {
        "key" => doc! { "a" => 1, "$**" => 1 }, "name" => "x", "wildcardProjection" => projection,
    };
    assert_eq!(code(&spec), 67);
}

#[test]
fn accepted_definitions_are_normalized() {
    let normal = |spec: DocBuf| normalise(spec.as_doc(), false).unwrap();
    let given = doc! {
        "name" => "x", "unique" => 1, "v" => 2.0, "sparse" => false, "background" => true,
        "key" => doc! { "a" => 1.0, "b" => -1 }, "hidden" => false,
    };
    let key = doc! { "a" => 1.0, "b" => -1 };
    let expected = doc! {
        "v" => 2, "key" => key, "name" => "x", "unique" => true, "background" => true,
    };
    assert_eq!(normal(given), expected);
    let ttl = normal(with(doc! { "expireAfterSeconds" => 3600.9 }));
    assert_eq!(ttl.as_doc().value("expireAfterSeconds"), Value::Int32(3600));
    let id = normal(doc! { "key" => doc! { "_id" => 1 }, "name" => "mine" });
    assert_eq!(id.as_doc().value("name").as_str(), Some("_id_"));
    let unknown = with(doc! { "nonsense" => 1 });
    let lenient = normalise(unknown.as_doc(), true).unwrap();
    assert!(lenient.as_doc().get("nonsense").is_none());
}

#[test]
fn definitions_conflict_by_name_key_and_options() {
    let stored = |name: &str, options: DocBuf| {
        let spec = DocBuf::build(|out| {
            out.put("key", doc! { "a" => 1 });
            out.put("name", name);
            out.put_all(options.as_doc());
        });
        normalise(spec.as_doc(), false).unwrap()
    };
    let plain = stored("a_1", doc! {});
    let other_key = normalise(keyed(doc! { "b" => 1 }).as_doc(), false).unwrap();
    let renamed = DocBuf::build(|out| {
        out.put("v", 2);
        out.put("key", doc! { "b" => 1 });
        out.put("name", "a_1");
    });
    let outcome = |a: &DocBuf, b: &DocBuf| conflicts(a.as_doc(), b.as_doc()).map_err(|e| e.code());
    assert_eq!(outcome(&plain, &plain), Ok(true));
    assert_eq!(outcome(&plain, &other_key), Ok(false));
    assert_eq!(outcome(&renamed, &plain), Err(ErrorCode::IndexKeySpecsConflict));
    assert_eq!(outcome(&stored("b", doc! {}), &plain), Err(ErrorCode::IndexOptionsConflict));
    let ttl = stored("a_1", doc! { "expireAfterSeconds" => 1 });
    assert_eq!(outcome(&ttl, &plain), Err(ErrorCode::IndexOptionsConflict));
    let unique = stored("u", doc! { "unique" => true });
    assert_eq!(outcome(&unique, &plain), Ok(false), "unique and plain may stand side by side");
    let unique = stored("a_1", doc! { "unique" => true });
    assert_eq!(outcome(&unique, &plain), Err(ErrorCode::IndexKeySpecsConflict));
    let like = |a: Doc<'_>, b: Doc<'_>| compare_specs(a, b);
    assert_eq!(like(ttl.as_doc(), plain.as_doc()), Likeness::Equivalent);
    assert_eq!(like(unique.as_doc(), plain.as_doc()), Likeness::Different);
}
