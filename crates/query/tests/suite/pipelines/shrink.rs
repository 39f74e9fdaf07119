//! Shrinks a failing case as far as it still fails.

use super::generate::Case;
use bson::{Bson, Document};

/// Removes stages, documents and fields for as long as the case fails.
pub fn shrink(mut case: Case, fails: impl Fn(&Case) -> bool) -> Case {
    loop {
        let Some(smaller) = candidates(&case).find(|smaller| fails(smaller)) else { return case };
        case = smaller;
    }
}

fn candidates(case: &Case) -> impl Iterator<Item = Case> + '_ {
    let stages = (0..case.pipeline.len()).map(|at| {
        let mut smaller = case.clone();
        smaller.pipeline.remove(at);
        smaller
    });
    let docs = without(&case.docs).map(|docs| Case { docs, ..case.clone() });
    let foreign = without(&case.foreign).map(|foreign| Case { foreign, ..case.clone() });
    let unindexed = case.foreign_index.then(|| Case { foreign_index: false, ..case.clone() });
    stages.chain(docs).chain(foreign).chain(unindexed)
}

/// The lists with one document less, or with one field less in one document.
fn without(docs: &[Document]) -> impl Iterator<Item = Vec<Document>> + '_ {
    let whole = (0..docs.len()).map(|at| {
        let mut fewer = docs.to_vec();
        fewer.remove(at);
        fewer
    });
    let fields = docs.iter().enumerate().flat_map(move |(at, doc)| {
        smaller(doc).into_iter().map(move |smaller| {
            let mut docs = docs.to_vec();
            docs[at] = smaller;
            docs
        })
    });
    whole.chain(fields)
}

fn smaller(doc: &Document) -> Vec<Document> {
    let mut all = Vec::new();
    for (name, value) in doc.iter().filter(|(name, _)| *name != "_id") {
        let mut less = doc.clone();
        less.remove(name);
        all.push(less);
        for inner in smaller_values(value) {
            let mut less = doc.clone();
            less.insert(name, inner);
            all.push(less);
        }
    }
    all
}

fn smaller_values(value: &Bson) -> Vec<Bson> {
    match value {
        Bson::Document(doc) => smaller(doc).into_iter().map(Bson::Document).collect(),
        Bson::Array(items) => (0..items.len())
            .map(|at| {
                let mut fewer = items.clone();
                fewer.remove(at);
                Bson::Array(fewer)
            })
            .collect(),
        _ => Vec::new(),
    }
}
