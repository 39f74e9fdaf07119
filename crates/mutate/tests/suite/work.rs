//! Updates and projections of many paths and long arrays. They end when their operation is killed, and their
//! work is linear in the size.

use kauri_base::probe::{assert_linear, killed_at};
use kauri_base::{ErrorCode, Result, Timestamp};
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_expr::EvalCx;
use kauri_mutate::{ParseCx, ProjectCx, Projection, Update, UpdateCx};

/// Elements and fields of the document.
const COUNT: u32 = 20_000;
/// The clock read at which operations are killed.
const KILL_AT: u64 = 3;

fn numbers(count: u32) -> Value<'static> {
    Value::array((0..count as i32).map(Value::Int32))
}

fn fields(count: u32, of: impl Fn(u32) -> (String, Value<'static>)) -> DocBuf {
    DocBuf::build(|out| {
        for at in 0..count {
            let (name, value) = of(at);
            out.put_value(&name, &value);
        }
    })
}

/// `{f0: …, f1: …, …}` beside arrays with the same number of elements.
fn document(count: u32) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", 1);
        out.put("n", numbers(count));
        out.put(
            "objects",
            Value::array((0..count).map(|at| Value::from(doc! { "x" => at as i32 }))),
        );
        (0..count).for_each(|at| out.put(&format!("f{at}"), 1));
    })
}

/// `[{x: {$lt: -1}}, …]`: no branch matches.
fn branches(count: u32, field: &str) -> Value<'static> {
    Value::array((0..count as i32).map(|at| {
        let below = doc! { "$lt" => -1 - at };
        Value::from(DocBuf::build(|out| out.put(field, below)))
    }))
}

fn update(doc: &DocBuf, spec: &DocBuf, filters: &[DocBuf]) -> Result<()> {
    let filters: Vec<Doc<'_>> = filters.iter().map(DocBuf::as_doc).collect();
    let update = Update::parse(&spec.as_doc().into(), &filters, &ParseCx::new())?;
    let tick = Timestamp::default;
    update.apply(doc.as_doc(), &UpdateCx::new(0, &tick), &mut Vec::new()).map(drop)
}

fn project(doc: &DocBuf, spec: &DocBuf) -> Result<()> {
    let projection = Projection::parse(spec.as_doc(), None, &ParseCx::new())?;
    projection.apply(doc.as_doc(), &ProjectCx::new(EvalCx::default()), &mut Vec::new())
}

fn set_of(operator: &str, count: u32, value: impl Fn(u32) -> Value<'static>) -> DocBuf {
    let operand = fields(count, |at| (format!("f{at}"), value(at)));
    DocBuf::build(|out| out.put(operator, operand.clone()))
}

#[test]
fn updates_end_when_their_operation_is_killed() {
    let doc = document(COUNT);
    let one = |operator: &str, path: &str, value: Value<'static>| {
        let operand = DocBuf::build(|out| out.put_value(path, &value));
        DocBuf::build(|out| out.put(operator, operand.clone()))
    };
    let many = |operator: &str, value: Value<'static>| set_of(operator, COUNT, |_| value.clone());
    let each = |extra: DocBuf| {
        let mut push = doc! { "$each" => numbers(COUNT) }.as_doc().to_buf();
        push = DocBuf::build(|out| {
            out.put_all(push.as_doc());
            out.put_all(extra.as_doc());
        });
        Value::from(push)
    };
    let mut cases = vec![
        many("$set", 2.into()),
        many("$setOnInsert", 2.into()),
        many("$unset", 1.into()),
        many("$inc", 1.into()),
        many("$mul", 2.into()),
        many("$min", 0.into()),
        many("$max", 2.into()),
        many("$currentDate", true.into()),
        many("$bit", doc! { "or" => 2 }.into()),
        set_of("$rename", COUNT, |at| Value::from(format!("g{at}"))),
        one("$push", "n", each(doc! {})),
        one("$push", "n", each(doc! { "$sort" => -1 })),
        one("$push", "n", each(doc! { "$position" => 0, "$slice" => -5 })),
        one("$push", "objects", each(doc! { "$sort" => doc! { "x" => -1 } })),
        one("$addToSet", "n", doc! { "$each" => numbers(2 * COUNT) }.into()),
        one("$pop", "n", 1.into()),
        one("$pull", "n", doc! { "$lt" => 0 }.into()),
        one("$pull", "objects", doc! { "$or" => branches(COUNT, "x") }.into()),
        one("$pullAll", "n", numbers(COUNT)),
        one("$set", "n.$[]", 1.into()),
        one("$set", "objects.$[].y", 1.into()),
        one("$set", "n.1000000", 1.into()),
    ];
    cases.push(doc! { "replaced" => numbers(COUNT) });
    for spec in &cases {
        let name = spec.as_doc().first().map_or("", |e| e.key()).to_owned();
        let (ended, looks) = killed_at(KILL_AT, || update(&doc, spec, &[]));
        if name == "replaced" {
            assert!(ended.is_ok() || looks > KILL_AT, "{name}");
            continue;
        }
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted), "{name}");
        assert!(looks <= KILL_AT + 3, "{name}: {looks} looks");
    }
    let set = doc! { "$set" => doc! { "objects.$[e].y" => 1 } };
    let filter = doc! { "$or" => branches(COUNT, "e.x") };
    let (ended, _) = killed_at(50, || update(&doc, &set, &[filter]));
    assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
}

#[test]
fn projections_end_when_their_operation_is_killed() {
    let doc = document(COUNT);
    let flags = |flag: i32| fields(COUNT, |at| (format!("f{at}"), flag.into()));
    for spec in [
        flags(1),
        flags(0),
        fields(COUNT, |at| (format!("g{at}"), "$f1".into())),
        doc! { "objects.x" => 1 },
        doc! { "objects.x" => 0 },
        doc! { "objects.y" => "$f1" },
        doc! { "n" => doc! { "$slice" => -10_000 } },
        doc! { "objects" => doc! { "$elemMatch" => doc! { "x" => -1 } } },
        doc! { "objects" => doc! { "$elemMatch" => doc! { "$or" => branches(1000, "x") } } },
        doc! { "n" => doc! { "$elemMatch" => doc! { "$lt" => 0 } } },
    ] {
        let (ended, looks) = killed_at(KILL_AT, || project(&doc, &spec));
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted), "{looks}");
    }
}

#[test]
fn work_grows_with_the_size_not_with_its_square() {
    assert_linear("$rename", 2000, |size| {
        update(&document(size), &set_of("$rename", size, |at| format!("g{at}").into()), &[])
    });
    assert_linear("$rename within a document", 2000, |size| {
        let doc = doc! { "d" => document(size) };
        let renames = fields(size, |at| (format!("d.f{at}"), format!("d.g{at}").into()));
        update(&doc, &doc! { "$rename" => renames }, &[])
    });
    for operator in ["$set", "$unset", "$inc"] {
        assert_linear(operator, 2000, |size| {
            update(&document(size), &set_of(operator, size, |_| 2.into()), &[])
        });
    }
    assert_linear("$set of positions", 2000, |size| {
        let spec = fields(size, |at| (format!("objects.{at}.x"), Value::Int32(-1)));
        update(&document(size), &doc! { "$set" => spec }, &[])
    });
    assert_linear("$addToSet", 2000, |size| {
        let each = doc! { "$each" => numbers(2 * size) };
        update(&document(size), &doc! { "$addToSet" => doc! { "n" => each } }, &[])
    });
    assert_linear("$pullAll", 2000, |size| {
        update(&document(size), &doc! { "$pullAll" => doc! { "n" => numbers(size) } }, &[])
    });
    let equalities = |size: u32, field: &str| {
        Value::array(
            (0..size as i32).map(|at| Value::from(DocBuf::build(|out| out.put(field, -1 - at)))),
        )
    };
    assert_linear("arrayFilters with $or", 2000, |size| {
        let set = doc! { "$set" => doc! { "objects.$[e].y" => 1 } };
        update(&document(size), &set, &[doc! { "$or" => equalities(size, "e.x") }])
    });
    assert_linear("many arrayFilters", 500, |size| {
        let paths = fields(size, |at| (format!("one.$[e{at}]"), 1.into()));
        let filters: Vec<DocBuf> =
            (0..size).map(|at| DocBuf::build(|out| out.put(&format!("e{at}"), -1))).collect();
        update(&doc! { "one" => array![1] }, &doc! { "$set" => paths }, &filters)
    });
    assert_linear("$pull with $or", 2000, |size| {
        let pull = doc! { "objects" => doc! { "$or" => equalities(size, "x") } };
        update(&document(size), &doc! { "$pull" => pull }, &[])
    });
    assert_linear("projection $elemMatch with $or", 2000, |size| {
        let any = doc! { "$elemMatch" => doc! { "$or" => equalities(size, "x") } };
        project(&document(size), &doc! { "objects" => any })
    });
    assert_linear("an inclusion of many fields", 2000, |size| {
        project(&document(size), &fields(size, |at| (format!("f{at}"), 1.into())))
    });
}
