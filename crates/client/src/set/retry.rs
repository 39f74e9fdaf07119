//! Commands that may be repeated, and errors after which they are.
//!
//! A write is repeated only with a number in a session (`lsid`, `txnNumber`), by which the server tells a repetition
//! from a second write. Such a number has a write of single documents: an insert, an update without `multi`, a delete
//! with `limit: 1`, a findAndModify.

pub use super::description::Version;
use crate::options::SetOptions;
use crate::request::Sequence;
use kauri_base::ErrorCode;
use kauri_bson::{Doc, Value};

/// Whether a command may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// It may not.
    No,
    /// It is a read.
    Read,
    /// It is a write that has its number.
    Write,
    /// It is a write that can be given a number.
    NumberedWrite,
}

/// Errors of a server that is no longer what it was.
const STATE_CHANGES: [ErrorCode; 7] = [
    ErrorCode::NotWritablePrimary,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
    ErrorCode::InterruptedAtShutdown,
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::PrimarySteppedDown,
    ErrorCode::ShutdownInProgress,
];

/// Further errors after which a request may be repeated: of hosts and networks, and of a time limit.
const PASSING: [i64; 5] = [6, 7, 89, 262, 9001];

/// The label by which a server says that a write may be repeated.
const RETRYABLE_WRITE: &str = "RetryableWriteError";

/// The first wire protocol version of servers that say it: MongoDB 4.4.
const LABELS_WIRE_VERSION: i64 = 9;

const READS: [&str; 7] =
    ["find", "aggregate", "distinct", "count", "listDatabases", "listCollections", "listIndexes"];

/// Whether it is a read that a secondary may answer.
pub fn is_read(body: Doc<'_>) -> bool {
    let name = body.first().map_or("", |first| first.key());
    if name == "aggregate" {
        let writes = |stage: Doc<'_>| {
            stage.first().is_some_and(|stage| matches!(stage.key(), "$out" | "$merge"))
        };
        let pipeline = body.get("pipeline").and_then(|pipeline| pipeline.as_doc());
        let stages = pipeline.into_iter().flat_map(|pipeline| pipeline.iter());
        return !stages.filter_map(|stage| stage.as_doc()).any(writes);
    }
    READS.contains(&name)
}

/// Whether all statements of a write are of single documents.
fn is_single(body: Doc<'_>, sequences: &[Sequence<'_>], key: &str) -> bool {
    let single = |statement: Doc<'_>| match key {
        "updates" => !statement.value("multi").truthy(),
        _ => statement.value("limit").to_i64_saturating() == Some(1),
    };
    let within = body.get(key).and_then(|list| list.as_doc());
    let within = within.into_iter().flat_map(|list| list.iter());
    let beside = sequences.iter().filter(|sequence| sequence.name == key);
    within.filter_map(|one| one.as_doc()).all(single)
        && beside.flat_map(|sequence| sequence.documents).all(|one| single(*one))
}

/// Whether a command may be repeated. `has_sessions`: the server keeps numbers of writes.
pub fn repeat_of(
    body: Doc<'_>,
    sequences: &[Sequence<'_>],
    options: &SetOptions,
    has_sessions: bool,
) -> Repeat {
    // Statements of a transaction are repeated with the whole.
    if body.get("autocommit").is_some() {
        return Repeat::No;
    }
    if is_read(body) {
        return if options.retry_reads { Repeat::Read } else { Repeat::No };
    }
    let is_write = match body.first().map_or("", |first| first.key()) {
        "insert" | "findAndModify" | "findandmodify" => true,
        "update" => is_single(body, sequences, "updates"),
        "delete" => is_single(body, sequences, "deletes"),
        _ => false,
    };
    let concern = body.get("writeConcern").and_then(|concern| concern.as_doc());
    let w = concern.map(|concern| concern.value("w"));
    let is_acknowledged =
        !matches!(w, Some(Value::Int32(0) | Value::Int64(0))) && w != Some(Value::Double(0.0));
    if !is_write || !is_acknowledged || !options.retry_writes || !has_sessions {
        return Repeat::No;
    }
    match (body.get("lsid").is_some(), body.get("txnNumber").is_some()) {
        (false, false) => Repeat::NumberedWrite,
        (true, true) => Repeat::Write,
        _ => Repeat::No,
    }
}

/// The error in a reply, or in its write concern's part: its code and text.
fn error_of(reply: Doc<'_>) -> Option<(i64, String)> {
    let of = |error: Doc<'_>| {
        let code = error.value("code").to_i64_saturating()?;
        Some((code, error.value("errmsg").as_str().unwrap_or_default().to_owned()))
    };
    if !reply.value("ok").truthy() {
        return of(reply);
    }
    of(reply.get("writeConcernError")?.as_doc()?)
}

/// The error by which a server says that it is no longer what it was.
pub fn state_change(reply: Doc<'_>) -> Option<String> {
    let (code, message) = error_of(reply)?;
    let is_one = STATE_CHANGES.iter().any(|one| i64::from(one.number()) == code);
    is_one.then_some(message)
}

/// The `topologyVersion` of a reply.
pub fn version(reply: Doc<'_>) -> Option<Version> {
    Version::of(reply)
}

/// Whether a request that may be repeated is repeated after this reply of a server of this wire protocol version.
pub fn asks_for_repetition(reply: Doc<'_>, repeat: Repeat, wire_version: i64) -> bool {
    let Some((code, _)) = error_of(reply) else { return false };
    let is_passing =
        STATE_CHANGES.iter().map(|one| i64::from(one.number())).chain(PASSING).any(|c| c == code);
    match repeat {
        Repeat::No => false,
        Repeat::Read => is_passing,
        Repeat::Write | Repeat::NumberedWrite if wire_version < LABELS_WIRE_VERSION => is_passing,
        Repeat::Write | Repeat::NumberedWrite => {
            let labels = reply.get("errorLabels").and_then(|labels| labels.as_doc());
            let labels = labels.into_iter().flat_map(|labels| labels.iter());
            labels.into_iter().any(|label| label.value().as_str() == Some(RETRYABLE_WRITE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, array, doc};

    #[test]
    fn commands_are_repeated_by_what_they_do() {
        let options = SetOptions::new(Vec::new());
        let once = SetOptions { retry_writes: false, retry_reads: false, ..options.clone() };
        let none = Value::Int32(0);
        for (body, repeat) in [
            (doc! { "find" => "c" }, Repeat::Read),
            (
                doc! { "aggregate" => "c", "pipeline" => array![doc! { "$match" => doc! {} }] },
                Repeat::Read,
            ),
            (doc! { "aggregate" => "c", "pipeline" => array![doc! { "$out" => "d" }] }, Repeat::No),
            (doc! { "getMore" => 1i64 }, Repeat::No),
            (doc! { "create" => "c" }, Repeat::No),
            (doc! { "insert" => "c" }, Repeat::NumberedWrite),
            (doc! { "findAndModify" => "c" }, Repeat::NumberedWrite),
            (doc! { "insert" => "c", "lsid" => 1, "txnNumber" => 1i64 }, Repeat::Write),
            (doc! { "insert" => "c", "lsid" => 1 }, Repeat::No),
            (doc! { "insert" => "c", "writeConcern" => doc! { "w" => none } }, Repeat::No),
            (doc! { "insert" => "c", "autocommit" => false }, Repeat::No),
            (doc! { "find" => "c", "autocommit" => false }, Repeat::No),
            (
                doc! { "update" => "c", "updates" => array![doc! { "q" => 1 }] },
                Repeat::NumberedWrite,
            ),
            (doc! { "update" => "c", "updates" => array![doc! { "multi" => true }] }, Repeat::No),
            (
                doc! { "delete" => "c", "deletes" => array![doc! { "limit" => 1 }] },
                Repeat::NumberedWrite,
            ),
            (doc! { "delete" => "c", "deletes" => array![doc! { "limit" => 0 }] }, Repeat::No),
        ] {
            assert_eq!(repeat_of(body.as_doc(), &[], &options, true), repeat, "{body:?}");
            assert_eq!(repeat_of(body.as_doc(), &[], &once, true), Repeat::No, "{body:?}");
            let without = repeat_of(body.as_doc(), &[], &options, false);
            assert_eq!(without == Repeat::Read, repeat == Repeat::Read, "{body:?}");
        }
        let (one, all) = (doc! { "q" => 1, "limit" => 1 }, doc! { "multi" => true, "limit" => 0 });
        for (name, key) in [("update", "updates"), ("delete", "deletes")] {
            for (documents, repeat) in [
                (vec![one.as_doc()], Repeat::NumberedWrite),
                (vec![one.as_doc(), all.as_doc()], Repeat::No),
            ] {
                let sequence = Sequence { name: key, documents: &documents };
                let body = doc! { name => "c" };
                assert_eq!(repeat_of(body.as_doc(), &[sequence], &options, true), repeat);
            }
        }
    }

    #[test]
    fn errors_say_whether_the_server_changed_and_whether_to_repeat() {
        let failed = |code: i32| doc! { "ok" => 0.0, "code" => code, "errmsg" => "m" };
        let labelled = |code: i32| {
            let labels = array!["x", "RetryableWriteError"];
            doc! { "ok" => 0.0, "code" => code, "errmsg" => "m", "errorLabels" => labels }
        };
        let concern = doc! { "ok" => 1.0, "writeConcernError" => doc! { "code" => 91 } };
        // A reply; whether it is a state change; whether a read, a write, a write on an old server is repeated.
        let table: [(DocBuf, bool, [bool; 3]); 7] = [
            (failed(10107), true, [true, false, true]),
            (labelled(10107), true, [true, true, true]),
            (failed(189), true, [true, false, true]),
            (failed(6), false, [true, false, true]),
            (failed(11000), false, [false, false, false]),
            (concern, true, [true, false, true]),
            (doc! { "ok" => 1.0, "code" => 10107 }, false, [false, false, false]),
        ];
        for (reply, changed, repeated) in table {
            let reply = reply.as_doc();
            assert_eq!(state_change(reply).is_some(), changed, "{reply:?}");
            let cases = [(Repeat::Read, 21), (Repeat::NumberedWrite, 21), (Repeat::Write, 8)];
            let got = cases.map(|(repeat, version)| asks_for_repetition(reply, repeat, version));
            assert_eq!(got, repeated, "{reply:?}");
            assert!(!asks_for_repetition(reply, Repeat::No, 21));
        }
        for code in [10107, 13435, 13436, 11600, 11602, 189, 91] {
            assert!(state_change(failed(code).as_doc()).is_some(), "{code}");
        }
    }
}
