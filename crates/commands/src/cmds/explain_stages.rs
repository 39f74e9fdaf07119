//! `explain` output of a pipeline's stages after its plan: each stage as written, and the execution statistics of
//! stages that may spill.

use kauri_bson::{Doc, DocBuf, DocWriter};
use kauri_query::exec::{Stage, Verbosity};
use kauri_query::pipeline::StageSpec;
use std::sync::Arc;

/// Stages that may spill, and their names in a tree.
const SPILLING: [(&str, &str); 4] = [
    ("$sort", "SORT"),
    ("$group", "GROUP"),
    ("$bucketAuto", "BUCKET_AUTO"),
    ("$setWindowFields", "SET_WINDOW_FIELDS"),
];

/// Reported fields of a stage in a tree, and their names beside the stage.
const TOLD: [(&str, &str); 7] = [
    ("totalDataSizeSorted", "totalDataSizeSortedBytesEstimate"),
    ("usedDisk", "usedDisk"),
    ("spills", "spills"),
    ("spilledDataStorageSize", "spilledDataStorageSize"),
    ("spilledBytes", "spilledBytes"),
    ("spilledRecords", "spilledRecords"),
    ("nReturned", "nReturned"),
];

/// The execution statistics, one for each of `stages`.
pub fn executed(root: &dyn Stage, stages: &[Arc<dyn StageSpec>]) -> Vec<DocBuf> {
    let tree = DocBuf::build(|out| root.explain(out, Verbosity::ExecutionStats));
    let mut found: Vec<DocBuf> = Vec::with_capacity(stages.len());
    let mut at = Some(tree.as_doc());
    for stage in stages.iter().rev() {
        let name = SPILLING.iter().find(|(spec, _)| *spec == stage.name()).map(|(_, name)| *name);
        let told = name.and_then(|name| {
            while let Some(doc) = at {
                at = doc.get("inputStage").and_then(|elem| elem.as_doc());
                if doc.value("stage").as_str() == Some(name) {
                    return Some(told(doc));
                }
            }
            None
        });
        found.push(told.unwrap_or_default());
    }
    found.reverse();
    found
}

fn told(stage: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for (name, told) in TOLD {
            if let Some(elem) = stage.get(name) {
                out.put_elem_as(told, elem);
            }
        }
    })
}

/// Writes a stage and its statistics.
pub fn write(out: &mut DocWriter<'_>, stage: &dyn StageSpec, told: Option<&DocBuf>) {
    stage.explain(out);
    if let Some(told) = told {
        out.put_all(told.as_doc());
    }
}
