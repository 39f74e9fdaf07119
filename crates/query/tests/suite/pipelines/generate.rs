//! Random pipelines over documents from the matcher's generator.

use crate::generate::Generator;
use bson::{Bson, Document, bson, doc};
use std::fmt;

/// Documents, and a pipeline over them.
#[derive(Clone)]
pub struct Case {
    /// The collection that the pipeline reads.
    pub docs: Vec<Document>,
    /// The other collection, `f`.
    pub foreign: Vec<Document>,
    /// Whether `f` has an index on `a`.
    pub foreign_index: bool,
    pub pipeline: Vec<Document>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, name: &str, docs: &[Document]| {
            writeln!(f, "{name}:")?;
            docs.iter().try_for_each(|doc| writeln!(f, "  {doc}"))
        };
        list(f, "docs", &self.docs)?;
        list(f, if self.foreign_index { "f, indexed" } else { "f" }, &self.foreign)?;
        list(f, "pipeline", &self.pipeline)
    }
}

pub fn case(seed: u64) -> Case {
    let g = Stages { g: Generator::new(seed), joins: !seed.is_multiple_of(3) };
    let docs = g.docs(9);
    let foreign = if g.joins { g.docs(6) } else { Vec::new() };
    let foreign_index = g.below(2) == 0;
    let pipeline = g.pipeline(1 + g.below(5), 0);
    Case { docs, foreign, foreign_index, pipeline }
}

struct Stages {
    g: Generator,
    /// Whether there are documents to join with.
    joins: bool,
}

/// Paths without positions: their meaning differs between stages.
const PATHS: [&str; 9] = ["a", "b", "c", "n", "a.b", "b.a", "a.a", "b.c", "_id"];
const NEW: [&str; 4] = ["a", "b", "x", "y"];

impl Stages {
    fn below(&self, limit: u64) -> u64 {
        self.g.below(limit)
    }

    fn path(&self) -> String {
        self.g.pick(&PATHS).to_owned()
    }

    fn field(&self) -> Bson {
        Bson::String(format!("${}", self.path()))
    }

    fn docs(&self, most: u64) -> Vec<Document> {
        let doc = |id: u64| {
            let mut doc = doc! { "_id": id as i32 };
            if self.below(3) > 0 {
                doc.insert("n", self.number());
            }
            doc.extend(self.g.document());
            doc
        };
        (0..self.below(most + 1)).map(doc).collect()
    }

    /// Operands of sums, which are exact in any order of addition.
    fn number(&self) -> Bson {
        let n = self.below(6) as i32 - 2;
        match self.below(9) {
            0..=3 => Bson::Int32(n),
            4 => Bson::Int64(i64::from(n)),
            5 | 6 => Bson::Double(f64::from(n) + 0.5),
            7 => Bson::Null,
            _ => Bson::String("x".to_owned()),
        }
    }

    fn pipeline(&self, count: u64, depth: u32) -> Vec<Document> {
        let mut stages = Vec::new();
        for _ in 0..count {
            let stage = self.stage(depth);
            let is_graph = stage.contains_key("$graphLookup");
            stages.push(stage);
            if is_graph {
                // The order in which documents are reached is not defined.
                let sorted = doc! { "$sortArray": { "input": "$x", "sortBy": { "_id": 1 } } };
                stages.push(doc! { "$addFields": { "x": sorted } });
            }
        }
        stages
    }

    fn stage(&self, depth: u32) -> Document {
        match self.below(if depth == 0 { 37 } else { 29 }) {
            0..=3 => doc! { "$match": self.filter() },
            4 | 5 => doc! { "$project": self.projection() },
            6 | 7 => {
                let name = self.g.pick(&["$addFields", "$set"]);
                doc! { name: self.additions() }
            }
            8 => doc! { "$unset": self.path() },
            9..=11 => doc! { "$group": self.group() },
            12 | 13 => doc! { "$sort": self.sort() },
            14 | 15 => doc! { "$limit": 1 + self.below(5) as i32 },
            16 => doc! { "$skip": self.below(3) as i32 },
            17..=20 => doc! { "$unwind": self.unwind() },
            21 if self.below(3) == 0 => doc! { "$count": "n" },
            21 | 22 => doc! { "$sortByCount": self.single(1) },
            23 => doc! { "$replaceRoot": { "newRoot": self.root() } },
            24 => doc! { "$replaceWith": self.root() },
            25 => doc! { "$bucket": self.bucket() },
            26 | 27 => doc! { "$redact": self.redact() },
            28 => doc! { "$setWindowFields": self.windows() },
            29 | 30 => doc! { "$graphLookup": self.graph_lookup() },
            31 | 32 => doc! { "$facet": self.facet() },
            33 => {
                doc! { "$unionWith": { "coll": "f", "pipeline": self.pipeline(self.below(3), 1) } }
            }
            _ => doc! { "$lookup": self.lookup() },
        }
    }

    fn filter(&self) -> Document {
        if self.below(4) == 0 {
            let operator = self.g.pick(&["$eq", "$ne", "$gt", "$lte"]);
            return doc! { "$expr": { operator: [self.expression(1), self.expression(1)] } };
        }
        self.g.filter(1)
    }

    /// A literal that no stage interprets as anything else.
    fn literal(&self) -> Bson {
        let value = match self.below(4) {
            0 => Bson::Array(vec![Bson::Int32(self.below(3) as i32), Bson::Null]),
            1 => Bson::Document(doc! { "b": self.below(2) as i32 }),
            2 => Bson::String("x".to_owned()),
            _ => self.number(),
        };
        bson!({ "$literal": value })
    }

    /// An expression that fails for no document.
    fn expression(&self, depth: u32) -> Bson {
        let inner = |g: &Self| g.expression(depth - 1);
        match self.below(if depth == 0 { 6 } else { 13 }) {
            0..=4 => self.field(),
            5 => self.literal(),
            6 => bson!({ "$ifNull": [inner(self), inner(self)] }),
            7 => bson!({ "$cond": [inner(self), inner(self), inner(self)] }),
            8 => {
                let operator = self.g.pick(&["$eq", "$gt", "$lt", "$cmp"]);
                bson!({ operator: [inner(self), inner(self)] })
            }
            9 => bson!({ "$type": [inner(self)] }),
            10 => bson!({ "$isArray": [inner(self)] }),
            11 => {
                let operator = self.g.pick(&["$and", "$or"]);
                bson!({ operator: [inner(self), inner(self)] })
            }
            _ => bson!([inner(self), inner(self)]),
        }
    }

    /// An expression that is not a list; some places take a list as a list of arguments.
    fn single(&self, depth: u32) -> Bson {
        loop {
            match self.expression(depth) {
                Bson::Array(_) => {}
                expression => return expression,
            }
        }
    }

    fn projection(&self) -> Document {
        let mut spec = Document::new();
        if self.below(3) == 0 {
            spec.insert("_id", 0);
        }
        let exclusion = self.below(4) == 0;
        for top in ["a", "b", "c", "n", "x"] {
            if self.below(2) == 0 {
                continue;
            }
            let name = if self.below(4) == 0 { format!("{top}.b") } else { top.to_owned() };
            let value = match self.below(3) {
                _ if exclusion => Bson::Int32(0),
                0 => self.expression(1),
                _ => Bson::Int32(1),
            };
            spec.insert(name, value);
        }
        if spec.is_empty() {
            spec.insert("a", 1);
        }
        spec
    }

    fn additions(&self) -> Document {
        let mut spec = Document::new();
        for top in ["a", "x", "n"] {
            let name = if self.below(4) == 0 { format!("{top}.b") } else { top.to_owned() };
            if spec.is_empty() || self.below(3) == 0 {
                spec.insert(name, self.expression(2));
            }
        }
        spec
    }

    fn group(&self) -> Document {
        let id = match self.below(6) {
            0 => Bson::Null,
            1 => bson!({ "p": self.field(), "q": self.field() }),
            2 => self.expression(2),
            _ => self.field(),
        };
        let mut spec = doc! { "_id": id };
        for name in ["a", "b", "n"].iter().take(self.below(4) as usize) {
            let accumulator = match self.below(9) {
                0 | 1 => bson!({ "$sum": "$n" }),
                2 => bson!({ "$sum": 1 }),
                3 => bson!({ "$avg": "$n" }),
                4 => bson!({ "$min": self.single(1) }),
                5 => bson!({ "$max": self.single(1) }),
                6 => bson!({ "$push": self.single(1) }),
                7 => bson!({ "$addToSet": self.single(1) }),
                _ => {
                    let operator = self.g.pick(&["$first", "$last"]);
                    bson!({ operator: self.single(1) })
                }
            };
            spec.insert(*name, accumulator);
        }
        spec
    }

    fn sort(&self) -> Document {
        let direction = |g: &Self| Bson::Int32(if g.below(2) == 0 { 1 } else { -1 });
        let mut spec = Document::new();
        for keys in [["a", "a.b"], ["b", "b.a"], ["n", "_id"]] {
            if self.below(2) == 0 {
                spec.insert(self.g.pick(&keys), direction(self));
            }
        }
        if spec.is_empty() {
            spec.insert("_id", direction(self));
        }
        spec
    }

    fn unwind(&self) -> Bson {
        let path = self.g.pick(&["$a", "$a", "$b", "$c", "$a.b", "$b.a", "$x", "$n"]);
        if self.below(2) == 0 {
            return Bson::String(path.to_owned());
        }
        let mut spec = doc! { "path": path, "preserveNullAndEmptyArrays": self.below(2) == 0 };
        if self.below(2) == 0 {
            spec.insert("includeArrayIndex", self.g.pick(&["i", "i", "a", "b.i"]));
        }
        Bson::Document(spec)
    }

    /// An expression that returns a document.
    fn root(&self) -> Bson {
        match self.below(3) {
            0 => {
                let field = self.field();
                bson!({ "$cond": [{ "$eq": [{ "$type": field.clone() }, "object"] }, field, "$$ROOT"] })
            }
            1 => bson!({ self.g.pick(&NEW): self.expression(1), "keep": "$_id" }),
            _ => bson!({ "$mergeObjects": ["$$ROOT", { self.g.pick(&NEW): self.expression(1) }] }),
        }
    }

    fn bucket(&self) -> Document {
        let mut spec = doc! { "groupBy": "$n", "boundaries": [-1, 0.5, 2], "default": "other" };
        if self.below(2) == 0 {
            spec.insert("output", doc! { "n": { "$sum": "$n" }, "a": { "$push": self.single(1) } });
        }
        spec
    }

    fn redact(&self) -> Bson {
        let verdict = |g: &Self| g.g.pick(&["$$KEEP", "$$DESCEND", "$$DESCEND", "$$PRUNE"]);
        bson!({ "$cond": [self.expression(1), verdict(self), verdict(self)] })
    }

    fn windows(&self) -> Document {
        let mut spec = doc! { "sortBy": self.sort() };
        if self.below(2) == 0 {
            spec.insert("partitionBy", bson!({ "$type": [self.field()] }));
        }
        let end = |low: i32, word: &str| match self.below(4) {
            0 => Bson::String("unbounded".to_owned()),
            1 => Bson::String(word.to_owned()),
            _ => Bson::Int32(low + self.below(3) as i32),
        };
        let mut output = Document::new();
        for name in ["x", "a.b"] {
            let operator =
                self.g.pick(&["$sum", "$avg", "$min", "$max", "$first", "$last", "$push"]);
            let mut function = doc! { operator: if operator == "$sum" || operator == "$avg" {
                Bson::String("$n".to_owned())
            } else {
                self.single(1)
            } };
            if self.below(4) > 0 {
                let window = bson!([end(-2, "current"), end(0, "current")]);
                function.insert("window", doc! { "documents": window });
            }
            if output.is_empty() || self.below(2) == 0 {
                output.insert(name, function);
            }
        }
        spec.insert("output", output);
        spec
    }

    fn graph_lookup(&self) -> Document {
        let mut spec = doc! {
            "from": "f", "as": "x", "startWith": self.expression(1),
            "connectFromField": self.g.pick(&["a", "b", "n", "a.b"]),
            "connectToField": self.g.pick(&["a", "n", "_id", "b.a"]),
        };
        if self.below(2) == 0 {
            spec.insert("maxDepth", self.below(3) as i32);
        }
        if self.below(2) == 0 {
            spec.insert("depthField", self.g.pick(&["depth", "a", "b.d"]));
        }
        if self.below(4) == 0 {
            spec.insert("restrictSearchWithMatch", self.g.filter(0));
        }
        spec
    }

    fn facet(&self) -> Document {
        let mut spec = doc! { "a": self.facet_pipeline(), "b": self.facet_pipeline() };
        if self.below(2) == 0 {
            spec.insert("x", self.facet_pipeline());
        }
        spec
    }

    fn facet_pipeline(&self) -> Vec<Bson> {
        self.pipeline(self.below(3), 1).into_iter().map(Bson::Document).collect()
    }

    fn lookup(&self) -> Document {
        let mut spec = doc! { "from": "f", "as": self.g.pick(&["x", "x", "a", "b.j"]) };
        let by_fields = self.below(3) > 0;
        if by_fields {
            spec.insert("localField", self.g.pick(&["a", "b", "n", "a.b", "_id", "c"]));
            spec.insert("foreignField", self.g.pick(&["a", "a", "b", "n", "a.b", "_id"]));
        }
        // The order in which documents are found is not defined.
        let mut stages = vec![doc! { "$sort": { "_id": 1 } }];
        if !by_fields || self.below(2) == 0 {
            spec.insert("let", doc! { "v": self.expression(1) });
            let operator = self.g.pick(&["$eq", "$eq", "$eq", "$gt"]);
            let sides = match self.below(2) {
                0 => bson!([self.field(), "$$v"]),
                _ => bson!(["$$v", self.field()]),
            };
            stages.insert(0, doc! { "$match": { "$expr": { operator: sides } } });
        }
        if self.below(3) == 0 {
            stages.extend(self.pipeline(1, 1));
        }
        spec.insert("pipeline", stages);
        spec
    }
}
