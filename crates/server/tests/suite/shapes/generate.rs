//! Random shapes: deep, wide, long, chained, stored and used.

use super::{aggregate, field, find, nested};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, Value, array, doc};

/// The commands of one shape, in order.
pub type Commands = Vec<DocBuf>;

/// A seeded source of shapes.
pub struct Generator {
    random: SeededRandom,
    made: u64,
}

type Make = fn(&mut Generator) -> Commands;

const KINDS: [(&str, Make); 26] = [
    ("filter", Generator::filter_request),
    ("expression", Generator::expression_request),
    ("long pipeline", Generator::long_pipeline),
    ("nested pipelines", Generator::nested_pipelines),
    ("deepening pipeline", Generator::deepening_pipeline),
    ("views", Generator::views),
    ("validator", Generator::validator),
    ("json schema", Generator::schema_request),
    ("partial index", Generator::partial_index),
    ("index keys", Generator::index_keys),
    ("deep document", Generator::deep_document),
    ("update operators", Generator::update_operators),
    ("update paths", Generator::update_paths),
    ("update pipeline", Generator::update_pipeline),
    ("array filters", Generator::array_filters),
    ("upsert", Generator::upsert),
    ("projection", Generator::projection),
    ("sort", Generator::sort),
    ("regex", Generator::regex),
    ("group", Generator::group),
    ("let of a command", Generator::command_let),
    ("options", Generator::options),
    ("wide let", Generator::wide_let),
    ("explain", Generator::explain),
    ("values", Generator::deep_values),
    ("bulk write", Generator::bulk_write),
];

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { random: SeededRandom::new(seed), made: 0 }
    }

    /// The next shape; all kinds take turns.
    pub fn shape(&mut self) -> (&'static str, Commands) {
        let (name, make) = KINDS[self.made as usize % KINDS.len()];
        self.made += 1;
        (name, make(self))
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Nesting levels: often few, often as many as a message may have, sometimes more.
    fn levels(&mut self) -> usize {
        let most = self.pick(&[5, 30, 60, 95, 190, 190, 260]);
        1 + self.below(most)
    }

    fn width(&mut self) -> usize {
        let most = self.pick(&[3, 30, 1000, 6000]);
        1 + self.below(most)
    }

    fn length(&mut self) -> usize {
        let most = self.pick(&[10, 100, 500, 1000, 1000, 1100]);
        1 + self.below(most)
    }

    fn path(&mut self) -> String {
        let most = self.pick(&[3, 100, 199, 250, 10_000]);
        let parts = 1 + self.below(most);
        let part = self.pick(&["a", "a", "0", "b"]);
        vec![part; parts].join(".")
    }

    fn name(&self, what: &str) -> String {
        format!("{what}{}", self.made)
    }

    /// An expression: nested operators of one or several kinds, with a wide one at the bottom.
    fn expression(&mut self) -> Value<'static> {
        let levels = self.levels() / 2;
        let fixed = if self.below(2) == 0 { Some(self.below(WRAPS)) } else { None };
        let mut inner: Value<'static> = self.pick(&["$n", "$a", "$$ROOT", "$t"]).into();
        if self.below(3) == 0 {
            let width = self.width();
            inner = field("$concatArrays", array![Value::array(vec![inner; width])]).into();
        }
        for _ in 0..levels {
            let kind = fixed.unwrap_or_else(|| self.below(WRAPS));
            inner = wrap_expression(kind, inner);
        }
        inner
    }

    fn filter(&mut self) -> DocBuf {
        let levels = self.levels() / 2;
        let fixed = if self.below(2) == 0 { Some(self.below(9)) } else { None };
        let path = if self.below(4) == 0 { self.path() } else { "a".to_owned() };
        let mut inner = match self.below(5) {
            0 => field("$expr", self.expression()),
            1 => field("$jsonSchema", self.schema()),
            2 => {
                let width = self.width();
                field("$or", Value::array(vec![Value::from(field(&path, 1)); width]))
            }
            _ => field(&path, doc! { "$gte" => 0 }),
        };
        for _ in 0..levels {
            inner = match fixed.unwrap_or_else(|| self.below(9)) {
                0 => field("$and", array![inner, doc! { "n" => 1 }]),
                1 => field("$or", array![inner, doc! { "n" => 1 }]),
                2 => field("$nor", array![inner]),
                3 => field("a", field("$elemMatch", inner)),
                4 => field("a", field("$not", field("$elemMatch", inner))),
                5 => field("a", field("$all", array![field("$elemMatch", inner)])),
                6 => field("a", field("$not", field("$in", array![inner]))),
                7 => field("a", field("$eq", inner)),
                _ => field("$and", array![inner]),
            };
        }
        inner
    }

    fn schema(&mut self) -> DocBuf {
        let levels = self.levels() / 2;
        let fixed = if self.below(2) == 0 { Some(self.below(9)) } else { None };
        let mut inner = doc! { "bsonType" => array!["int", "array", "object", "string"] };
        for _ in 0..levels {
            inner = match fixed.unwrap_or_else(|| self.below(9)) {
                0 => field("properties", field("a", inner)),
                1 => field("items", inner),
                2 => field("allOf", array![inner]),
                3 => field("anyOf", array![inner, doc! { "required" => array!["a"] }]),
                4 => field("oneOf", array![inner]),
                5 => field("not", inner),
                6 => field("additionalProperties", inner),
                7 => field("patternProperties", field("^a", inner)),
                _ => field("dependencies", field("a", inner)),
            };
        }
        inner
    }

    fn stage(&mut self) -> DocBuf {
        match self.below(21) {
            17 => doc! { "$densify" => doc! {
            "field" => "n", "range" => doc! { "step" => 1, "bounds" => array![0, 5] } } },
            18 => doc! { "$fill" => doc! { "sortBy" => doc! { "_id" => 1 },
            "output" => doc! { "n" => doc! { "method" => "linear" } } } },
            19 => {
                doc! { "$setWindowFields" => doc! { "sortBy" => doc! { "_id" => 1 }, "output" => doc! {
                "w" => doc! { "$derivative" => doc! { "input" => "$n" },
                "window" => doc! { "documents" => array![-1, 0] } } } } }
            }
            20 => {
                doc! { "$setWindowFields" => doc! { "sortBy" => doc! { "_id" => 1 }, "output" => doc! {
                "w" => doc! { "$expMovingAvg" => doc! { "input" => "$n", "N" => 2 } },
                "v" => doc! { "$locf" => "$n" } } } }
            }
            0 => field("$addFields", field("x", self.small_expression())),
            1 => field("$project", field("x", self.small_expression())),
            2 => field("$match", doc! { "n" => doc! { "$gte" => 0 } }),
            3 => doc! { "$sort" => doc! { "n" => 1 } },
            4 => doc! { "$limit" => 5 },
            5 => doc! { "$skip" => 0 },
            6 => doc! { "$group" => doc! { "_id" => "$n", "x" => doc! { "$push" => "$$ROOT" } } },
            7 => {
                doc! { "$unwind" => doc! { "path" => "$a", "preserveNullAndEmptyArrays" => true } }
            }
            8 => doc! { "$sortByCount" => "$n" },
            9 => doc! { "$replaceWith" => doc! { "a" => "$a", "n" => "$n" } },
            10 => doc! { "$redact" => "$$DESCEND" },
            11 => doc! { "$lookup" => doc! {
            "from" => "c", "localField" => "n", "foreignField" => "_id", "as" => "a" } },
            12 => doc! { "$graphLookup" => doc! { "from" => "c", "startWith" => "$n",
            "connectFromField" => "n", "connectToField" => "_id", "as" => "g" } },
            13 => doc! { "$setWindowFields" => doc! { "sortBy" => doc! { "_id" => 1 },
            "output" => doc! { "w" => doc! { "$push" => "$n" } } } },
            14 => doc! { "$bucketAuto" => doc! { "groupBy" => "$n", "buckets" => 2 } },
            15 => doc! { "$unionWith" => "none" },
            _ => doc! { "$bucket" => doc! {
            "groupBy" => "$n", "boundaries" => array![0, 5], "default" => 7 } },
        }
    }

    fn small_expression(&mut self) -> Value<'static> {
        let kind = self.below(WRAPS);
        wrap_expression(kind, "$n".into())
    }

    fn filter_request(&mut self) -> Commands {
        let filter = self.filter();
        match self.below(5) {
            0 => vec![doc! { "count" => "c", "query" => filter }],
            1 => vec![doc! { "distinct" => "c", "key" => "n", "query" => filter }],
            2 => {
                let delete = doc! { "q" => filter, "limit" => 0 };
                vec![doc! { "delete" => "none", "deletes" => array![delete] }]
            }
            3 => vec![aggregate("c", [field("$match", filter)])],
            _ => vec![find("c", filter)],
        }
    }

    fn expression_request(&mut self) -> Commands {
        let expression = self.expression();
        match self.below(3) {
            0 => vec![find("c", field("$expr", expression))],
            1 => vec![aggregate("c", [field("$addFields", field("x", expression))])],
            _ => vec![aggregate("c", [field("$group", field("_id", expression))])],
        }
    }

    fn long_pipeline(&mut self) -> Commands {
        let length = self.length();
        let stages: Vec<DocBuf> = if self.below(2) == 0 {
            vec![self.stage(); length]
        } else {
            (0..length).map(|_| self.stage()).collect()
        };
        vec![aggregate("c", stages)]
    }

    /// `$lookup` in `$lookup`, `$unionWith`, `$facet`, each with its own stages.
    fn nested_pipelines(&mut self) -> Commands {
        let levels = 1 + self.below(23);
        let length = self.pick(&[1, 2, 10, 60]);
        let kind = self.below(4);
        let mut stages: Vec<Value<'static>> = vec![doc! { "$limit" => 2 }.into()];
        for _ in 0..levels {
            let pipeline = Value::array(std::mem::take(&mut stages));
            let kind = if kind == 3 { self.below(3) } else { kind };
            let inner = match kind {
                0 => {
                    let options = doc! { "from" => "c", "as" => "x", "pipeline" => pipeline,
                    "let" => doc! { "v" => "$n" } };
                    field("$lookup", options)
                }
                1 => doc! { "$unionWith" => doc! { "coll" => "c", "pipeline" => pipeline } },
                _ => doc! { "$facet" => doc! { "x" => pipeline } },
            };
            let stage = Value::from(doc! { "$addFields" => doc! { "y" => "$n" } });
            stages = vec![stage; length - 1];
            stages.insert(0, doc! { "$limit" => 2 }.into());
            stages.push(inner.into());
        }
        vec![doc! {
        "aggregate" => "c", "pipeline" => Value::array(stages), "cursor" => doc! {} }]
    }

    /// Documents that nest deeper with each stage, and stages that compare, hash and group them.
    fn deepening_pipeline(&mut self) -> Commands {
        let levels = self.pick(&[1, 10, 80]);
        let length = self.pick(&[5, 40, 200]);
        let deeper = match self.below(4) {
            0 => field("$replaceWith", nested(levels, "$$ROOT".into(), |v| field("a", v).into())),
            1 => field("$project", field("a", nested(levels, "$$ROOT".into(), |v| array![v]))),
            2 => {
                doc! { "$group" => doc! { "_id" => Value::Null, "a" => doc! { "$push" => "$$ROOT" } } }
            }
            _ => doc! { "$lookup" => doc! { "from" => "c", "as" => "a.b.c.d.e.f",
            "pipeline" => array![doc! { "$limit" => 1 }] } },
        };
        let mut stages = vec![deeper; length];
        let user = self.below(10);
        stages.push(match user {
            0 => doc! { "$sort" => doc! { "a" => 1 } },
            1 => doc! { "$group" => doc! { "_id" => "$$ROOT" } },
            2 => {
                doc! { "$group" => doc! { "_id" => "$a", "s" => doc! { "$addToSet" => "$$ROOT" } } }
            }
            3 => doc! { "$match" => doc! { "$expr" => doc! { "$eq" => array!["$$ROOT", "$a"] } } },
            4 => doc! { "$project" => doc! { "x" => doc! { "$toHashedIndexKey" => "$$ROOT" } } },
            5 => doc! { "$redact" => "$$DESCEND" },
            6 => doc! { "$bucketAuto" => doc! { "groupBy" => "$a", "buckets" => 2 } },
            7 => doc! { "$project" => doc! { "x" => doc! { "$toUpper" => "$$ROOT" } } },
            8 => doc! { "$merge" => doc! { "into" => "merged" } },
            _ => doc! { "$sortByCount" => "$a" },
        });
        if user == 8 {
            return vec![aggregate("c", stages)];
        }
        stages.push(doc! { "$count" => "rows" });
        vec![aggregate("c", stages)]
    }

    fn views(&mut self) -> Commands {
        let depth = 1 + self.below(23);
        let length = self.pick(&[1, 40, 150, 900]);
        let stages: Vec<Value<'static>> = if self.below(2) == 0 {
            vec![self.stage().into(); length]
        } else {
            (0..length).map(|_| self.stage().into()).collect()
        };
        let base = self.name("v");
        let mut on = "c".to_owned();
        let mut commands = Vec::new();
        for level in 0..depth {
            let name = format!("{base}_{level}");
            let mut pipeline = stages.clone();
            if self.below(3) == 0 {
                let from = on.as_str();
                pipeline.push(
                    doc! { "$lookup" => doc! {
                    "from" => from, "as" => "l", "pipeline" => array![doc! { "$limit" => 1 }] } }
                    .into(),
                );
            }
            let pipeline = Value::array(pipeline);
            let (this, below) = (name.as_str(), on.as_str());
            commands.push(doc! { "create" => this, "viewOn" => below, "pipeline" => pipeline });
            on = name;
        }
        let on = on.as_str();
        let first = format!("{base}_0");
        commands.push(find(on, doc! {}));
        commands.push(
            doc! { "collMod" => first.as_str(), "viewOn" => "c", "pipeline" => Value::array(vec![
            Value::from(doc! { "$addFields" => doc! { "z" => 1 } }); 700]) },
        );
        commands.push(doc! { "count" => on });
        commands.push(aggregate(on, [self.stage()]));
        commands.push(aggregate("c", [doc! { "$unionWith" => on }]));
        commands
    }

    fn validator(&mut self) -> Commands {
        let name = self.name("checked");
        let name = name.as_str();
        let validator = self.filter();
        let document = self.document(30);
        vec![
            doc! { "create" => name, "validator" => validator },
            doc! { "insert" => name, "documents" => array![document] },
            doc! { "update" => name, "updates" => array![
            doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "n" => 2 } }, "upsert" => true }] },
            doc! { "collMod" => name, "validator" => field("$jsonSchema", self.schema()) },
            doc! { "insert" => name, "documents" => array![doc! { "a" => doc! { "a" => 1 } }] },
            doc! { "validate" => name },
        ]
    }

    fn schema_request(&mut self) -> Commands {
        let name = self.name("schema");
        let name = name.as_str();
        let levels = self.levels().min(170);
        let deep = nested(levels, 1.into(), |v| field("a", v).into());
        let schema = self.schema();
        vec![
            find("c", field("$jsonSchema", schema.clone())),
            doc! { "create" => name, "validator" => field("$jsonSchema", schema) },
            doc! { "insert" => name, "documents" => array![deep] },
        ]
    }

    fn partial_index(&mut self) -> Commands {
        let name = self.name("partial");
        let name = name.as_str();
        let filter = match self.below(2) {
            0 => self.filter(),
            _ => {
                let levels = self.levels() / 2;
                let wide: Vec<Value<'static>> = vec![doc! { "n" => 1 }.into(); self.width()];
                let inner = Value::from(field("$and", Value::array(wide)));
                let filter = nested(levels, inner, |v| field("$and", array![v]).into());
                filter.as_document().unwrap().to_buf()
            }
        };
        let index = doc! { "key" => doc! { "n" => 1 }, "name" => "n",
        "partialFilterExpression" => filter.clone(), "expireAfterSeconds" => 100_000 };
        let deep = self.document(170);
        vec![
            doc! { "insert" => name, "documents" => array![doc! { "n" => 1 }] },
            doc! { "createIndexes" => name, "indexes" => array![index] },
            doc! { "insert" => name, "documents" => array![deep] },
            find(name, filter),
        ]
    }

    fn index_keys(&mut self) -> Commands {
        let name = self.name("indexed");
        let name = name.as_str();
        let path = self.path();
        let width = self.width().min(100);
        let key = match self.below(3) {
            0 => field(&path, 1),
            1 => DocBuf::build(|out| (0..width).for_each(|n| out.put(&format!("f{n}"), 1))),
            _ => field("a", nested(self.levels(), 1.into(), |v| field("a", v).into())),
        };
        let index = doc! { "key" => key.clone(), "name" => "k" };
        let deep = self.document(178);
        vec![
            doc! { "insert" => name, "documents" => array![deep.clone()] },
            doc! { "createIndexes" => name, "indexes" => array![index] },
            doc! { "createIndexes" => name, "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" }] },
            doc! { "insert" => name, "documents" => array![deep] },
            doc! { "find" => name, "sort" => doc! { "a" => 1 }, "projection" => doc! { "a" => 1, "_id" => 0 } },
            doc! { "find" => name, "hint" => doc! { "a" => 1 }, "projection" => doc! { "a" => 1, "_id" => 0 } },
            doc! { "distinct" => name, "key" => "a" },
            doc! { "find" => name, "hint" => key },
            doc! { "validate" => name, "full" => true },
        ]
    }

    /// A document of this nesting depth, of documents, arrays or both.
    fn document(&mut self, most: usize) -> DocBuf {
        let levels = 1 + self.below(most);
        let kind = self.below(3);
        let mut level = 0;
        let inner = nested(levels, 1.into(), |v| {
            level += 1;
            match (kind, level % 2) {
                (0, _) | (2, 0) => field("a", v).into(),
                _ => array![v, 1],
            }
        });
        field("a", inner)
    }

    fn deep_document(&mut self) -> Commands {
        let name = self.name("deep");
        let name = name.as_str();
        let document = self.document(205);
        vec![
            doc! { "insert" => name, "documents" => array![document.clone(), document.clone()] },
            find(name, document.clone()),
            find(name, field("a", field("$in", array![document.clone(), 1]))),
            doc! { "find" => name, "sort" => doc! { "a" => 1 } },
            doc! { "distinct" => name, "key" => "a" },
            aggregate(name, [doc! { "$group" => doc! { "_id" => "$a" } }]),
            aggregate(
                name,
                [field("$match", field("$expr", field("$eq", array!["$a", document])))],
            ),
        ]
    }

    fn update_operators(&mut self) -> Commands {
        let operator = self.pick(&["$set", "$push", "$addToSet", "$pull", "$min", "$setOnInsert"]);
        let value = match self.below(3) {
            0 => self.filter(),
            1 => self.document(200),
            _ => doc! { "$each" => Value::array(vec![Value::from(1); self.width()]) },
        };
        self.update(field(operator, field("u", value)), array![])
    }

    fn update_paths(&mut self) -> Commands {
        let operator = self.pick(&["$set", "$unset", "$inc", "$rename", "$push", "$pop", "$bit"]);
        let width = self.width().min(300);
        let path = self.path();
        let paths = DocBuf::build(|out| match operator {
            "$rename" => out.put(&path, "elsewhere"),
            _ if width.is_multiple_of(2) => out.put(&path, 1),
            _ => (0..width).for_each(|n| out.put(&format!("{path}.f{n}"), 1)),
        });
        self.update(field(operator, paths), array![])
    }

    fn update_pipeline(&mut self) -> Commands {
        let length = self.length();
        let stage = match self.below(3) {
            0 => field("$set", field("u", self.expression())),
            1 => field("$set", field("u", "$$ROOT")),
            _ => field("$replaceWith", field("u", self.small_expression())),
        };
        let length = if self.below(2) == 0 { 1 } else { length };
        let stages = Value::array(vec![Value::from(stage); length]);
        self.update_with(stages, array![])
    }

    fn array_filters(&mut self) -> Commands {
        let inner = self.filter();
        let levels = self.levels() / 2;
        let filter = match self.below(3) {
            0 => field("x", field("$not", field("$elemMatch", inner))),
            1 => field("x", field("$elemMatch", inner)),
            _ => {
                let leaf = Value::from(doc! { "x.b" => doc! { "$gte" => 0 } });
                let nest = nested(levels, leaf, |v| field("$and", array![v]).into());
                nest.as_document().unwrap().to_buf()
            }
        };
        let path = vec!["$[x]"; 1 + self.below(250)].join(".");
        let update = match self.below(2) {
            0 => doc! { "$set" => doc! { "a.$[x].b" => 2 } },
            _ => field("$set", field(&format!("a.{path}"), 1)),
        };
        self.update(update, array![filter])
    }

    fn update(&mut self, update: DocBuf, filters: Value<'static>) -> Commands {
        self.update_with(update.into(), filters)
    }

    fn update_with(&mut self, update: Value<'static>, filters: Value<'static>) -> Commands {
        let name = self.name("updated");
        let name = name.as_str();
        let items = array![doc! { "b" => 1 }, array![doc! { "b" => 1 }]];
        let insert =
            doc! { "insert" => name, "documents" => array![doc! { "_id" => 1, "a" => items }] };
        let statement = DocBuf::build(|out| {
            out.put("q", doc! {});
            out.put_value("u", &update);
            out.put("upsert", true);
            if filters != array![] {
                out.put_value("arrayFilters", &filters);
            }
        });
        let modify = doc! { "findAndModify" => name, "query" => doc! { "_id" => 9 }, "upsert" => true,
        "update" => update };
        vec![insert, doc! { "update" => name, "updates" => array![statement] }, modify]
    }

    fn upsert(&mut self) -> Commands {
        let name = self.name("upserted");
        let name = name.as_str();
        let query = match self.below(3) {
            0 => field(&self.path(), 1),
            1 => self.document(200),
            _ => self.filter(),
        };
        let statement =
            doc! { "q" => query, "u" => doc! { "$set" => doc! { "z" => 1 } }, "upsert" => true };
        vec![doc! { "update" => name, "updates" => array![statement] }]
    }

    fn projection(&mut self) -> Commands {
        let levels = self.levels();
        let path = self.path();
        let projection = match self.below(5) {
            0 => field("a", nested(levels, 1.into(), |v| field("a", v).into())),
            1 => field(&path, 1),
            2 => field("a", field("$elemMatch", self.filter())),
            3 => field("x", self.expression()),
            _ => field("a", nested(levels, "$n".into(), |v| field("b", v).into())),
        };
        let find = doc! { "find" => "c", "projection" => projection.clone() };
        vec![find, aggregate("c", [field("$project", projection)])]
    }

    fn sort(&mut self) -> Commands {
        let width = self.width();
        let path = self.path();
        let sort = match self.below(3) {
            0 => field(&path, 1),
            1 => DocBuf::build(|out| (0..width).for_each(|n| out.put(&format!("f{n}"), 1))),
            _ => field("a", nested(self.levels(), 1.into(), |v| field("a", v).into())),
        };
        vec![doc! { "find" => "c", "sort" => sort.clone() }, aggregate("c", [field("$sort", sort)])]
    }

    fn regex(&mut self) -> Commands {
        let levels = self.pick(&[10, 200, 249, 260, 4000]);
        let open = self.pick(&["(", "(?:", "(?=", "(a|"]);
        let text = format!("{}x{}", open.repeat(levels), ")".repeat(levels));
        let text = Value::from(text);
        let matched = doc! { "$regexMatch" => doc! { "input" => "$t", "regex" => text.clone() } };
        vec![
            find("c", field("t", field("$regex", text))),
            aggregate("c", [field("$project", field("x", matched))]),
        ]
    }

    fn group(&mut self) -> Commands {
        let width = self.width();
        let accumulator =
            self.pick(&["$sum", "$push", "$mergeObjects", "$addToSet", "$max", "$first"]);
        let expression = self.expression();
        let group = DocBuf::build(|out| {
            out.put_value("_id", &expression);
            (0..width.min(1000))
                .for_each(|n| out.put(&format!("f{n}"), field(accumulator, "$$ROOT")));
        });
        vec![aggregate("c", [field("$group", group)])]
    }

    fn command_let(&mut self) -> Commands {
        let expression = self.expression();
        let width = self.width();
        let variables = DocBuf::build(|out| {
            out.put_value("v", &expression);
            (0..width.min(500)).for_each(|n| out.put(&format!("v{n}"), n as i32));
        });
        let mut command = find("c", field("$expr", doc! { "$eq" => array!["$$v", 1] }));
        command = DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("let", variables);
        });
        vec![command]
    }

    fn options(&mut self) -> Commands {
        let deep = self.document(195);
        let name = self.name("made");
        let name = name.as_str();
        vec![
            doc! { "find" => "c", "collation" => deep.clone() },
            doc! { "find" => "c", "comment" => deep.clone() },
            doc! { "find" => "c", "hint" => deep.clone() },
            doc! { "find" => "c", "min" => deep.clone(), "max" => deep.clone(), "hint" => doc! { "_id" => 1 } },
            doc! { "create" => name, "storageEngine" => deep.clone(), "collation" => deep.clone() },
            doc! { "create" => name, "clusteredIndex" => deep.clone() },
            doc! { "insert" => name, "documents" => array![deep.clone()], "writeConcern" => deep.clone() },
            doc! { "configureFailPoint" => "none", "mode" => deep.clone() },
            doc! { "hello" => 1, "client" => deep.clone() },
            deep,
        ]
    }

    fn wide_let(&mut self) -> Commands {
        let width = self.width();
        let vars = DocBuf::build(|out| (0..width).for_each(|n| out.put(&format!("v{n}"), "$n")));
        let wide = field("$let", doc! { "vars" => vars, "in" => "$$v0" });
        let levels = self.levels() / 4;
        let nest = nested(levels, wide.into(), |v| {
            field("$let", doc! { "vars" => doc! { "w" => "$n" }, "in" => v }).into()
        });
        vec![
            find("c", field("$expr", nest.clone())),
            aggregate("c", [field("$project", field("x", nest))]),
        ]
    }

    fn explain(&mut self) -> Commands {
        let made = match self.below(4) {
            0 => self.filter_request(),
            1 => self.long_pipeline(),
            2 => self.nested_pipelines(),
            _ => self.projection(),
        };
        let verbosity = self.pick(&["queryPlanner", "executionStats", "allPlansExecution"]);
        made.into_iter().map(|c| doc! { "explain" => c, "verbosity" => verbosity }).collect()
    }

    /// Expressions whose values nest deeper than the expression itself.
    fn deep_values(&mut self) -> Commands {
        let items = Value::array((0..self.pick(&[3, 190, 250])).map(Value::from));
        let wrapped = match self.below(4) {
            0 => Value::from(field("a", "$$value")),
            1 => array!["$$value"],
            2 => doc! { "$mergeObjects" => array![doc! { "a" => "$$value" }] }.into(),
            _ => doc! { "$setField" => doc! { "field" => "a", "input" => doc! {}, "value" => "$$value" } }
                .into(),
        };
        let reduce = doc! { "input" => items, "initialValue" => doc! {}, "in" => wrapped };
        let reduce = Value::from(field("$reduce", reduce));
        let levels = self.levels() / 3;
        let deep = nested(levels, reduce, |v| field("k", v).into());
        let user =
            self.pick(&["$toHashedIndexKey", "$objectToArray", "$bsonSize", "$toString", "$size"]);
        vec![
            aggregate("c", [field("$project", field("x", deep.clone()))]),
            aggregate("c", [field("$project", field("x", field(user, deep.clone())))]),
            find("c", field("$expr", field("$eq", array![deep.clone(), deep.clone()]))),
            aggregate("c", [field("$group", field("_id", deep.clone()))]),
            aggregate(
                "c",
                [field("$addFields", field("s", deep)), doc! { "$sort" => doc! { "s" => 1 } }],
            ),
        ]
    }

    fn bulk_write(&mut self) -> Commands {
        let filter = self.filter();
        let deep = self.document(195);
        let update =
            doc! { "update" => 0, "filter" => filter.clone(), "updateMods" => deep.clone() };
        let delete = doc! { "delete" => 0, "filter" => filter };
        let insert = doc! { "insert" => 0, "document" => deep };
        let info = array![doc! { "ns" => "test.bulk" }];
        vec![doc! { "bulkWrite" => 1, "ops" => array![insert, update, delete], "nsInfo" => info }]
    }
}

/// Kinds of [`wrap_expression`].
const WRAPS: usize = 22;

/// An operator around an expression.
fn wrap_expression(kind: usize, inner: Value<'static>) -> Value<'static> {
    let branch = |case: Value<'static>| doc! { "case" => case, "then" => 1 };
    let wrapped = match kind {
        0 => field("$add", array![inner, 1]),
        1 => field("$and", array![inner, "$n"]),
        2 => field("$not", array![inner]),
        3 => field("$cond", array!["$n", inner, 0]),
        4 => field("$cond", array![inner, 1, 0]),
        5 => field("$ifNull", array![inner, 0]),
        6 => field("$switch", doc! { "branches" => array![branch(inner)], "default" => 0 }),
        7 => {
            field("$switch", doc! { "branches" => array![branch("$n".into())], "default" => inner })
        }
        8 => field("$let", doc! { "vars" => doc! { "v" => inner }, "in" => "$$v" }),
        9 => field("$let", doc! { "vars" => doc! { "v" => "$n" }, "in" => inner }),
        10 => field("$map", doc! { "input" => "$a", "in" => inner }),
        11 => field("$map", doc! { "input" => inner, "in" => "$$this" }),
        12 => field("$filter", doc! { "input" => "$a", "cond" => inner }),
        13 => field("$reduce", doc! { "input" => "$a", "initialValue" => 0, "in" => inner }),
        14 => {
            field("$reduce", doc! { "input" => "$a", "initialValue" => inner, "in" => "$$value" })
        }
        15 => field("o", inner),
        16 => return array![inner],
        17 => field("$mergeObjects", array![doc! {}, inner]),
        18 => field("$setField", doc! { "field" => "f", "input" => doc! {}, "value" => inner }),
        19 => field("$objectToArray", field("o", inner)),
        20 => field("$arrayToObject", array![array![doc! { "k" => "k", "v" => inner }]]),
        _ => field("$concatArrays", array![array![inner]]),
    };
    wrapped.into()
}
