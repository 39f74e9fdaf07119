//! One test for each kind of shape that overflows the stack if recursion is not bounded.

use super::*;
use kauri_bson::array;

/// `{$let: {vars: {v0: 1, …}, in: 1}}`
fn wide_let(variables: usize) -> DocBuf {
    let vars = DocBuf::build(|out| (0..variables).for_each(|n| out.put(&format!("v{n}"), 1)));
    field("$let", doc! { "vars" => vars, "in" => 1 })
}

#[test]
fn let_of_thousands_of_variables() {
    let mut victim = Victim::start("let", &[]);
    let found = victim.works(find("c", field("$expr", wide_let(6000))));
    assert_eq!(rows(&found).len(), 3);
    // All see the outer variables, none its siblings.
    let inner = doc! { "vars" => doc! { "a" => 2, "b" => "$$a" }, "in" => array!["$$a", "$$b"] };
    let outer = doc! { "vars" => doc! { "a" => 1 }, "in" => field("$let", inner) };
    let project = field("$project", field("_id", field("$let", outer)));
    let reply = victim.works(aggregate("c", [project, doc! { "$limit" => 1 }]));
    assert_eq!(rows(&reply), [doc! { "_id" => array![2, 1] }]);
    victim.is_alive();
}

#[test]
fn expanded_stages_count_towards_the_limit() {
    let mut victim = Victim::start("desugared", &[]);
    let by_count = doc! { "$sortByCount" => "$n" };
    let bucket = doc! { "$bucket" => doc! {
    "groupBy" => "$n", "boundaries" => array![0, 10], "default" => "other" } };
    let range = doc! { "step" => 1, "bounds" => array![0, 3] };
    let dense = doc! { "$densify" => doc! { "field" => "_id", "range" => range } };
    for (stage, most) in [(by_count, 500), (bucket, 500), (dense, 500)] {
        let times = |n: usize| aggregate("c", vec![stage.clone(); n]);
        victim.works_or_is_too_deep(times(most));
        assert_eq!(victim.fails(times(most + 1)), 5_054_701);
        assert_eq!(victim.fails(times(900)), 5_054_701);
        assert_eq!(victim.fails(times(1001)), 7_749_501);
        let facet = field("$facet", field("f", Value::array(vec![stage.clone().into(); 900])));
        assert_eq!(victim.fails(aggregate("c", [facet])), 5_054_701);
    }
    victim.is_alive();
}

/// A stage of each kind.
fn stages() -> Vec<DocBuf> {
    let lookup = |name: &str, more: DocBuf| {
        let mut options = doc! { "from" => "c", "as" => "x" };
        options = DocBuf::build(|out| {
            out.put_all(options.as_doc());
            out.put_all(more.as_doc());
        });
        field(name, options)
    };
    let graph = doc! {
    "startWith" => "$_id", "connectFromField" => "_id", "connectToField" => "_id" };
    let window = doc! { "sortBy" => doc! { "_id" => 1 },
    "output" => doc! { "w" => doc! { "$sum" => "$n" } } };
    let along = |function: DocBuf| {
        let output = doc! { "w" => function };
        field("$setWindowFields", doc! { "sortBy" => doc! { "_id" => 1 }, "output" => output })
    };
    let framed = |name: &str| {
        let frame = doc! { "documents" => array![-1, 0] };
        along(DocBuf::build(|out| {
            out.put(name, doc! { "input" => "$_id" });
            out.put("window", frame);
        }))
    };
    let fill = |method: &str| {
        let output = doc! { "x" => doc! { "method" => method } };
        field("$fill", doc! { "sortBy" => doc! { "_id" => 1 }, "output" => output })
    };
    let dense = doc! { "step" => 1, "bounds" => array![0, 3] };
    vec![
        doc! { "$densify" => doc! { "field" => "_id", "range" => dense } },
        fill("locf"),
        fill("linear"),
        framed("$derivative"),
        framed("$integral"),
        along(doc! { "$expMovingAvg" => doc! { "input" => "$_id", "N" => 2 } }),
        along(doc! { "$linearFill" => "$x" }),
        along(doc! { "$locf" => "$x" }),
        lookup("$graphLookup", graph),
        lookup("$lookup", doc! { "localField" => "_id", "foreignField" => "_id" }),
        lookup("$lookup", doc! { "pipeline" => array![doc! { "$limit" => 1 }] }),
        doc! { "$group" => doc! { "_id" => "$_id" } },
        doc! { "$bucketAuto" => doc! { "groupBy" => "$none", "buckets" => 1 } },
        doc! { "$addFields" => doc! { "x" => doc! { "$add" => array!["$n", 1] } } },
        doc! { "$project" => doc! { "_id" => 1, "n" => 1 } },
        doc! { "$replaceWith" => "$$ROOT" },
        doc! { "$redact" => "$$KEEP" },
        doc! { "$unwind" => "$_id" },
        doc! { "$sort" => doc! { "_id" => 1 } },
        doc! { "$match" => doc! { "_id" => doc! { "$gte" => 0 } } },
        doc! { "$limit" => 10 },
        doc! { "$skip" => 0 },
        doc! { "$sample" => doc! { "size" => 10 } },
        field("$setWindowFields", window),
        doc! { "$facet" => doc! { "f" => array![] } },
        doc! { "$unionWith" => "none" },
        doc! { "$unionWith" => doc! { "coll" => "c", "pipeline" => array![doc! { "$limit" => 1 }] } },
    ]
}

#[test]
fn a_thousand_stages_of_each_kind_work_or_are_too_deep() {
    let mut victim = Victim::start("thousand", &[]);
    for stage in stages() {
        let alone = victim.works(aggregate("c", [stage.clone()]));
        assert!(!rows(&alone).is_empty());
        // A pipeline may have a thousand stages. This one includes a sort.
        let most = if stage.as_doc().get("$densify").is_some() { 500 } else { 1000 };
        let many = aggregate("c", vec![stage; most]);
        victim.works_or_is_too_deep(many.clone());
        let explain = doc! { "explain" => many, "verbosity" => "executionStats" };
        victim.works_or_is_too_deep(explain);
        victim.is_alive();
    }
    // Shorter pipelines work.
    for stage in stages() {
        victim.works(aggregate("c", vec![stage; 40]));
    }
}

#[test]
fn pipeline_results_nest_no_deeper_than_a_message() {
    let mut victim = Victim::start("nesting", &[]);
    let facets = |times: usize| vec![doc! { "$facet" => doc! { "f" => array![] } }; times];
    assert_eq!(rows(&victim.works(aggregate("c", facets(20)))).len(), 1);
    let code = victim.fails(aggregate("c", facets(110)));
    assert_eq!(code, ErrorCode::Overflow.number());
    // Within the pipeline any depth works.
    let mut stages = facets(60);
    stages.extend([doc! { "$sort" => doc! { "f" => 1 } }, doc! { "$count" => "n" }]);
    assert_eq!(rows(&victim.works(aggregate("c", stages))), [doc! { "n" => 1 }]);
}

#[test]
fn views_on_views_are_as_long_as_all_their_stages() {
    let mut victim = Victim::start("views", &[]);
    let add = |n: i32| Value::from(doc! { "$addFields" => doc! { "x" => n } });
    let long = |n: i32| Value::array((0..n).map(add));
    let view = |name: &str, on: &str, stages: Value<'static>| {
        doc! { "create" => name, "viewOn" => on, "pipeline" => stages }
    };
    victim.works(view("v1", "c", long(10)));
    victim.works(view("v2", "v1", long(900)));
    assert_eq!(victim.fails(view("v3", "v2", long(91))), 5_054_701);
    victim.works(view("v3", "v2", long(10)));
    // A lower view grows: the views above it are unreadable and report it, after a restart, too.
    victim.works(doc! { "collMod" => "v1", "viewOn" => "c", "pipeline" => long(900) });
    for _ in 0..2 {
        for name in ["v2", "v3"] {
            assert_eq!(victim.fails(find(name, doc! {})), 5_054_701);
            assert_eq!(victim.fails(doc! { "count" => name }), 5_054_701);
            assert_eq!(victim.fails(doc! { "distinct" => name, "key" => "n" }), 5_054_701);
            assert_eq!(victim.fails(aggregate(name, [])), 5_054_701);
            let lookup = doc! { "$lookup" => doc! {
            "from" => name, "as" => "x", "pipeline" => array![] } };
            assert_eq!(victim.fails(aggregate("c", [lookup])), 5_054_701);
            let error = victim.ask(&find(name, doc! {})).unwrap_err();
            assert!(
                error.message().contains("View 'test.v2' can't be read; change it with collMod")
            );
        }
        victim.works_or_is_too_deep(find("v1", doc! {}));
        victim.restart();
    }
    victim.works(doc! { "collMod" => "v1", "viewOn" => "c", "pipeline" => long(1) });
    victim.works_or_is_too_deep(find("v3", doc! {}));
    victim.works(doc! { "drop" => "v2" });
    victim.is_alive();
}

#[test]
fn a_validator_with_a_let_of_thousands_of_variables() {
    let mut victim = Victim::start("validator", &[]);
    let validator = field("$expr", wide_let(6500));
    victim.works(doc! { "create" => "checked", "validator" => validator });
    for id in 0..2 {
        let documents = array![doc! { "_id" => id }];
        victim.works(doc! { "insert" => "checked", "documents" => documents });
        victim.restart();
    }
    victim.works(doc! { "validate" => "checked" });
}

#[test]
fn expressions_of_the_maximum_nesting() {
    let mut victim = Victim::start("expressions", &[]);
    let shapes: [(&str, fn(Value<'static>) -> Value<'static>); 9] = [
        ("$add", |inner| field("$add", array![inner, 1]).into()),
        ("$abs", |inner| field("$abs", inner).into()),
        ("object", |inner| field("a", inner).into()),
        ("array", |inner| array![inner]),
        ("$cond", |inner| field("$cond", array![true, inner, 0]).into()),
        ("$let", |inner| {
            field("$let", doc! { "vars" => doc! { "v" => "$n" }, "in" => inner }).into()
        }),
        ("$map", |inner| field("$map", doc! { "input" => array!["$n"], "in" => inner }).into()),
        ("$reduce", |inner| {
            field("$reduce", doc! { "input" => array!["$n"], "initialValue" => 0, "in" => inner })
                .into()
        }),
        ("$switch", |inner| {
            let branch = doc! { "case" => doc! { "$gt" => array!["$n", 5] }, "then" => 1 };
            field("$switch", doc! { "branches" => array![branch], "default" => inner }).into()
        }),
    ];
    for (name, wrap) in shapes {
        for levels in [10, 45, 60, 90, 150, 180] {
            let expression = nested(levels, "$n".into(), wrap);
            let command = aggregate("c", [field("$project", field("x", expression))]);
            let works = victim.works_or_is_too_deep(command);
            assert!(works || levels > 10, "{name} {levels}");
        }
    }
    victim.is_alive();
}
