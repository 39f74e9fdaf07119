//! Requests that are expensive for their size. Each runs very long unless it is interrupted. They are plain
//! documents, so that any kind of server can be tested with them.

use kauri_bson::{DocBuf, Value, array, doc};

/// An expensive request.
pub struct Hostile {
    pub name: &'static str,
    /// The command, without `$db` and `maxTimeMS`.
    pub command: DocBuf,
}

/// Documents of the collection `many`.
const MANY: i32 = 4000;
/// Elements of the long arrays of the document in `long`.
const LONG: i32 = 100_000;
/// Fields of the document in `wide`.
const WIDE: i32 = 30_000;

/// Commands that create the collections that the requests use.
pub fn setup() -> Vec<DocBuf> {
    let insert = |collection: &str, docs: Vec<DocBuf>| {
        doc! { "insert" => collection, "documents" => Value::array(docs.into_iter().map(Value::from)) }
    };
    let many = |at: i32| {
        doc! {
            "_id" => at, "a" => at, "b" => at % 10, "next" => at + 1,
            "text" => "lorem ipsum dolor sit amet ".repeat(8).as_str(),
            "tags" => Value::array((0..20).map(|n| Value::Int32(n * at))),
        }
    };
    let wide = DocBuf::build(|out| {
        out.put("_id", 1);
        (0..WIDE).for_each(|at| out.put(&format!("f{at}"), at));
    });
    vec![
        insert("many", (0..MANY).map(many).collect()),
        insert("wide", vec![wide]),
        insert("long", vec![long()]),
        doc! { "createIndexes" => "many", "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" },
        ] },
    ]
}

/// One document with long arrays and strings.
fn long() -> DocBuf {
    let numbers = || Value::array((0..LONG).map(Value::Int32));
    let objects = Value::array(
        (0..LONG / 4).map(|at| Value::from(DocBuf::build(|out| out.put(&format!("k{at}"), at)))),
    );
    let pairs = Value::array((0..LONG / 4).map(|at| {
        Value::from(doc! { "x" => at, "y" => at % 7, "s" => format!("value {at}").as_str() })
    }));
    doc! {
        "_id" => 1, "million" => 1_000_000, "thousands" => 10_000, "n" => numbers(), "m" => numbers(),
        "objects" => objects, "pairs" => pairs, "text" => "lorem ipsum ".repeat(50_000).as_str(),
    }
}

/// `{$range: [0, to]}`
fn range(to: impl Into<Value<'static>>) -> Value<'static> {
    let bounds = Value::array([Value::Int32(0), to.into()]);
    call("$range", bounds)
}

fn map(input: impl Into<Value<'static>>, body: impl Into<Value<'static>>) -> Value<'static> {
    let (input, body): (Value<'static>, Value<'static>) = (input.into(), body.into());
    call("$map", doc! { "input" => input, "in" => body })
}

fn call(name: &str, argument: impl Into<Value<'static>>) -> Value<'static> {
    DocBuf::build(|out| out.put_value(name, &argument.into())).into()
}

fn aggregate(collection: &str, stages: Vec<Value<'static>>) -> DocBuf {
    doc! { "aggregate" => collection, "pipeline" => Value::array(stages), "cursor" => doc! {} }
}

/// An aggregation that evaluates the expression on the document in `long`.
fn evaluate(expression: impl Into<Value<'static>>) -> DocBuf {
    let expression: Value<'static> = expression.into();
    aggregate("long", vec![call("$project", doc! { "x" => expression })])
}

fn find(collection: &str, filter: DocBuf) -> DocBuf {
    doc! { "find" => collection, "filter" => filter }
}

fn update(collection: &str, q: DocBuf, u: impl Into<Value<'static>>) -> DocBuf {
    let change: Value<'static> = u.into();
    let statement = doc! { "q" => q, "u" => change, "multi" => true };
    doc! { "update" => collection, "updates" => array![statement] }
}

/// `[{field: {operator: 0}}, {field: {operator: -1}}, …]`: no branch matches.
fn branches(count: i32, field: &str, operator: &str) -> Value<'static> {
    Value::array((0..count).map(|at| {
        let value = call(operator, Value::Double(-1.5 - f64::from(at)));
        Value::from(DocBuf::build(|out| out.put_value(field, &value)))
    }))
}

/// A document of many fields.
fn fields(count: i32, of: impl Fn(i32) -> (String, Value<'static>)) -> DocBuf {
    DocBuf::build(|out| {
        for at in 0..count {
            let (name, value) = of(at);
            out.put_value(&name, &value);
        }
    })
}

/// All requests.
pub fn requests() -> Vec<Hostile> {
    let mut all = Vec::new();
    let mut add = |name, command| all.push(Hostile { name, command });
    expressions(&mut add);
    texts(&mut add);
    pipelines(&mut add);
    filters(&mut add);
    updates(&mut add);
    all
}

type Add<'a> = &'a mut dyn FnMut(&'static str, DocBuf);

fn expressions(add: Add<'_>) {
    let filter = |input: Value<'static>, cond: Value<'static>| {
        call("$filter", doc! { "input" => input, "cond" => cond })
    };
    let is_in = |list: Value<'static>| call("$in", array!["$$this", list]);
    let millions = || range("$million");
    let thousands = || range("$thousands");
    add(
        "$filter with $in over $range of a million",
        evaluate(filter(millions(), is_in(millions()))),
    );
    add(
        "the same in a find",
        find("long", doc! { "$expr" => filter(millions(), is_in(millions())) }),
    );
    let constant = || range(3_000_000);
    add("$filter with $in over a constant", evaluate(filter(constant(), is_in(constant()))));
    add("$map of $sum", evaluate(map(thousands(), call("$sum", thousands()))));
    let cubed = map(range(3000), map(range(3000), map(range(3000), 1)));
    add("$map in $map in $map", evaluate(call("$size", cubed)));
    let concat = call("$concatArrays", array!["$$value", array!["$$this"]]);
    let reduce = |body: Value<'static>, initial: Value<'static>| {
        call("$reduce", doc! { "input" => "$n", "initialValue" => initial, "in" => body })
    };
    add("$reduce with $concatArrays", evaluate(reduce(concat, array![])));
    let concat = call("$concat", array!["$$value", "xxxxxxxx"]);
    add("$reduce with $concat", evaluate(reduce(concat, "".into())));
    let merged = call("$setUnion", array!["$$value", array!["$$this"]]);
    add("$reduce with $setUnion", evaluate(reduce(merged, array![])));
    let nested = call("$mergeObjects", array!["$$value", doc! { "k" => "$$this" }]);
    add("$map of $reduce with $mergeObjects", evaluate(map("$n", reduce(nested, doc! {}.into()))));
    for (name, operator) in [
        ("$map of $setUnion", "$setUnion"),
        ("$map of $setIntersection", "$setIntersection"),
        ("$map of $setDifference", "$setDifference"),
        ("$map of $setEquals", "$setEquals"),
        ("$map of $setIsSubset", "$setIsSubset"),
    ] {
        add(name, evaluate(map("$n", call(operator, array!["$n", "$m"]))));
    }
    let sorted = doc! { "input" => "$pairs", "sortBy" => doc! { "y" => 1, "s" => -1 } };
    add("$map of $sortArray", evaluate(map("$n", call("$sortArray", sorted))));
    add(
        "$map of $arrayElemAt",
        evaluate(map(thousands(), call("$arrayElemAt", array!["$n", "$$this"]))),
    );
    add(
        "$map of $indexOfArray",
        evaluate(map("$n", call("$indexOfArray", array!["$m", "$$this"]))),
    );
    add("$map of $slice", evaluate(map("$n", call("$slice", array!["$m", "$$this", 5]))));
    add("$map of $reverseArray", evaluate(map("$n", call("$size", call("$reverseArray", "$m")))));
    let zipped = call("$zip", doc! { "inputs" => array!["$n", "$m"] });
    add("$map of $zip", evaluate(map("$n", call("$size", zipped))));
    add("$map of $max", evaluate(map("$n", call("$max", "$m"))));
    add("$map of $stdDevPop", evaluate(map("$n", call("$stdDevPop", "$m"))));
    let median = call("$median", doc! { "input" => "$m", "method" => "approximate" });
    add("$map of $median", evaluate(map("$n", median)));
    add("$map of $maxN", evaluate(map("$n", call("$maxN", doc! { "n" => 5, "input" => "$m" }))));
    add("$map of $mergeObjects", evaluate(map("$n", call("$mergeObjects", "$objects"))));
    add(
        "$map of $objectToArray",
        aggregate(
            "wide",
            vec![call(
                "$project",
                doc! {
                    "x" => map(range(100_000), call("$size", call("$objectToArray", "$$ROOT"))),
                },
            )],
        ),
    );
    let switch = Value::array((0..1000).map(|at| {
        Value::from(doc! { "case" => call("$eq", array!["$$this", -1 - at]), "then" => at })
    }));
    let switch = call("$switch", doc! { "branches" => switch, "default" => 0 });
    add("$map of $switch", evaluate(map(millions(), switch)));
    add("$map of a path", evaluate(map(millions(), "$pairs.s")));
}

fn texts(add: Add<'_>) {
    let each = |expression: Value<'static>| evaluate(map("$n", expression));
    add("$map of $split", each(call("$size", call("$split", array!["$text", " "]))));
    let replaced = doc! { "input" => "$text", "find" => "m", "replacement" => "nn" };
    add("$map of $replaceAll", each(call("$strLenBytes", call("$replaceAll", replaced))));
    add("$map of $toUpper", each(call("$strLenBytes", call("$toUpper", "$text"))));
    add("$map of $indexOfCP", each(call("$indexOfCP", array!["$text", "none"])));
    let trimmed = doc! { "input" => "$text", "chars" => "lorem ipsu" };
    add("$map of $trim", each(call("$trim", trimmed)));
    let regex = |pattern: &'static str| doc! { "input" => "$text", "regex" => pattern };
    add("$regexMatch", each(call("$regexMatch", regex("(?=.*x)(?=.*y)"))));
    add("$map of $regexFindAll", each(call("$size", call("$regexFindAll", regex("m")))));
    add(
        "$regex in a filter",
        find("long", doc! { "text" => doc! { "$regex" => "(?=.*x)(?=.*y)" } }),
    );
    add("$map of $toHashedIndexKey", each(call("$toHashedIndexKey", "$text")));
}

fn pipelines(add: Add<'_>) {
    let lookup = |of: DocBuf| call("$lookup", of);
    let everything = || lookup(doc! { "from" => "many", "pipeline" => array![], "as" => "all" });
    let unwind = || call("$unwind", "$all");
    add(
        "$lookup of everything with $unwind",
        aggregate(
            "many",
            vec![everything(), unwind(), everything(), unwind(), call("$count", "n")],
        ),
    );
    let expression = call("$expr", call("$lt", array!["$a", "$$a"]));
    let inner = array![call("$match", expression), call("$count", "n")];
    add(
        "$lookup by an expression",
        aggregate(
            "many",
            vec![
                lookup(doc! {
                    "from" => "many", "let" => doc! { "a" => "$a" }, "pipeline" => inner, "as" => "all",
                }),
                call("$count", "n"),
            ],
        ),
    );
    add(
        "$unwind of two arrays",
        aggregate(
            "long",
            vec![
                call("$project", doc! { "n" => 1, "m" => 1 }),
                call("$unwind", "$n"),
                call("$unwind", "$m"),
                call("$count", "n"),
            ],
        ),
    );
    let graph = doc! {
        "from" => "many", "startWith" => "$a", "connectFromField" => "next",
        "connectToField" => "a", "as" => "all",
    };
    add("$graphLookup", aggregate("many", vec![call("$graphLookup", graph), call("$count", "n")]));
    let group = fields(20_001, |at| match at {
        0 => ("_id".to_owned(), "$a".into()),
        _ => (format!("s{at}"), call("$sum", "$a")),
    });
    add("$group with 20,000 accumulators", aggregate("many", vec![call("$group", group)]));
    let object = fields(100_000, |at| (format!("f{at}"), "$a".into()));
    add(
        "an object of 100,000 fields",
        aggregate(
            "many",
            vec![call("$project", doc! { "x" => object }), call("$group", doc! { "_id" => "$x" })],
        ),
    );
    let window = doc! {
        "sortBy" => doc! { "a" => 1 },
        "output" => doc! { "x" => doc! {
            "$push" => "$text", "window" => doc! { "documents" => array![-1000, 1000] },
        } },
    };
    add(
        "$setWindowFields",
        aggregate(
            "many",
            vec![
                call("$setWindowFields", window),
                call("$project", doc! { "x" => call("$size", "$x") }),
                call("$count", "n"),
            ],
        ),
    );
    let facets = fields(50, |at| {
        let stages = array![everything(), unwind(), call("$count", "n")];
        (format!("f{at}"), stages)
    });
    add("$facet of $lookup", aggregate("many", vec![call("$facet", facets)]));
    let buckets = doc! { "groupBy" => map(range(20_000), call("$multiply", array!["$$this", "$a"])), "buckets" => 5 };
    add("$bucketAuto", aggregate("many", vec![call("$bucketAuto", buckets)]));
    let key = doc! { "k" => map(range(20_000), call("$mod", array!["$$this", 7])) };
    add(
        "$sort by long arrays",
        aggregate(
            "many",
            vec![call("$addFields", key), call("$sort", doc! { "k" => 1 }), call("$count", "n")],
        ),
    );
    let redact = call(
        "$cond",
        array![call("$in", array![-1, map(range(10_000), "$$this")]), "$$PRUNE", "$$DESCEND",],
    );
    add("$redact", aggregate("many", vec![call("$redact", redact), call("$count", "n")]));
    add(
        "$unionWith",
        aggregate(
            "many",
            vec![
                call(
                    "$unionWith",
                    doc! { "coll" => "many", "pipeline" => array![everything(), unwind()] },
                ),
                call("$count", "n"),
            ],
        ),
    );
    let long = || map(range(20_000), call("$add", array!["$$this", "$a"]));
    add("$sortByCount", aggregate("many", vec![call("$sortByCount", long())]));
    let bucket =
        doc! { "groupBy" => call("$size", long()), "boundaries" => array![0, 5], "default" => 5 };
    add("$bucket", aggregate("many", vec![call("$bucket", bucket)]));
    let documents = map(range(5_000_000), doc! { "x" => "$$this" });
    add(
        "$documents",
        doc! {
            "aggregate" => 1, "pipeline" => array![call("$documents", documents), call("$count", "n")],
            "cursor" => doc! {},
        },
    );
    let and = |stage: Value<'static>| {
        // Documents of valid size, so that only an interruption ends the request.
        let pair = doc! { "a" => "$_id", "b" => "$all._id" };
        let project = call("$project", doc! { "_id" => pair });
        aggregate("many", vec![everything(), unwind(), project, stage])
    };
    add("$out of a product", and(call("$out", "product")));
    add("$merge of a product", and(call("$merge", doc! { "into" => "merged" })));
    add(
        "distinct of a product",
        aggregate(
            "many",
            vec![everything(), unwind(), call("$group", doc! { "_id" => array!["$a", "$all.a"] })],
        ),
    );
}

fn filters(add: Add<'_>) {
    add("$or of 20,000", find("many", doc! { "$or" => branches(20_000, "tags", "$lt") }));
    add("$nor of 20,000", find("many", doc! { "$nor" => branches(20_000, "tags", "$lt") }));
    let all = Value::array(
        (0..20_000).map(|at| call("$elemMatch", doc! { "$gte" => LONG - 9 + at % 3 })),
    );
    add("$all of 20,000 $elemMatch", find("long", doc! { "n" => doc! { "$all" => all } }));
    let items = branches(20_000, "x", "$lt");
    let any = doc! { "$elemMatch" => doc! { "$or" => items.clone() } };
    add("$elemMatch with $or of 20,000", find("long", doc! { "pairs" => any.clone() }));
    add(
        "projection $elemMatch with $or of 20,000",
        doc! {
            "find" => "long", "filter" => doc! {}, "projection" => doc! { "pairs" => any },
        },
    );
    let patterns = Value::array((0..2000).map(|at| {
        let pattern = format!("^(a|{at})+x");
        Value::Regex { pattern: pattern.into(), options: "".into() }
    }));
    add("$in of 2,000 regexes", find("many", doc! { "text" => doc! { "$in" => patterns } }));
    // Every element satisfies the condition after all branches.
    let none = doc! {
        "anyOf" => Value::array((0..2000).map(|at| Value::from(doc! { "minProperties" => 10 + at }))),
    };
    let items = doc! { "items" => doc! { "not" => none } };
    let schema = doc! { "properties" => doc! { "pairs" => items } };
    add("$jsonSchema", find("long", doc! { "$jsonSchema" => schema }));
}

fn updates(add: Add<'_>) {
    let renames = fields(WIDE, |at| (format!("f{at}"), Value::from(format!("deep.g{at}.h"))));
    // Repeated, so that even a rename in linear time takes long.
    let statement = doc! { "q" => doc! {}, "u" => doc! { "$rename" => renames } };
    add(
        "$rename of 30,000 fields",
        doc! {
            "bulkWrite" => 1, "nsInfo" => array![doc! { "ns" => "test.wide" }],
            "ops" => Value::array((0..8).map(|_| {
                let document = statement.as_doc();
                Value::from(DocBuf::build(|out| {
                    out.put("update", 0);
                    out.put("filter", doc! {});
                    out.put_value("updateMods", &document.value("u"));
                }))
            })),
        },
    );
    let filter = doc! { "$or" => branches(20_000, "x.x", "$lt") };
    let set = doc! { "$set" => doc! { "pairs.$[x].z" => 1 } };
    let statement = doc! { "q" => doc! {}, "u" => set, "arrayFilters" => array![filter] };
    add(
        "arrayFilters with $or of 20,000",
        doc! {
            "update" => "long", "updates" => array![statement],
        },
    );
    let condition = doc! { "$or" => branches(20_000, "x", "$lt") };
    add(
        "$pull with $or of 20,000",
        update("long", doc! {}, doc! { "$pull" => doc! { "pairs" => condition } }),
    );
    let computed = map(range("$million"), call("$sum", "$n"));
    let stage = call("$set", doc! { "x" => call("$size", computed.clone()) });
    add("a pipeline update", update("long", doc! {}, array![stage]));
    add(
        "findAndModify",
        doc! {
            "findAndModify" => "long", "query" => doc! { "$expr" => computed.clone() }, "remove" => true,
        },
    );
    let delete = doc! { "q" => doc! { "$expr" => call("$eq", array![call("$size", computed.clone()), 0]) }, "limit" => 0 };
    add("a delete", doc! { "delete" => "long", "deletes" => array![delete] });
    add("a count", doc! { "count" => "long", "query" => doc! { "$expr" => computed } });
}
