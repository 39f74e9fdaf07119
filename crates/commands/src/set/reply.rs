//! What a member of a replica set adds to every reply: times, the topology's version with errors that tell of a change,
//! and labels. A server alone adds nothing.

use crate::server::Server;
use kauri_base::{Error, ErrorCode, Timestamp};
use kauri_bson::{DocWriter, Value};
use std::borrow::Cow;

/// The label of errors after which a numbered write may be sent again.
pub const RETRYABLE: &str = "RetryableWriteError";

/// Whether an error tells that this member is not what the client takes it for.
pub fn is_state_change(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::ShutdownInProgress
    )
}

/// Whether a numbered write that fails with this code may be sent again.
pub fn is_retryable(code: ErrorCode) -> bool {
    is_state_change(code)
        || matches!(
            code,
            ErrorCode::HostUnreachable
                | ErrorCode::HostNotFound
                | ErrorCode::NetworkTimeout
                | ErrorCode::SocketException
                | ErrorCode::ExceededTimeLimit
        )
}

/// The error with the label of its code, if it is of a numbered write. An error with labels keeps those.
pub fn labelled(error: Error, is_numbered: bool) -> Error {
    let wants = is_numbered && error.labels().is_empty() && is_retryable(error.code());
    if wants { error.with_label(RETRYABLE) } else { error }
}

/// Writes `topologyVersion`.
pub fn write_topology_version(out: &mut DocWriter<'_>, server: &Server) {
    let mut version = out.document("topologyVersion");
    version.put("processId", server.process_id);
    let counter = server.member.as_ref().map_or(0, |member| member.view().topology);
    version.put("counter", counter);
}

/// Writes `topologyVersion` if the error tells of a change. That a server ends is a change of the topology only while
/// `hello` tells it as well.
pub fn put_topology_version(out: &mut DocWriter<'_>, server: &Server, code: ErrorCode) {
    let Some(member) = &server.member else { return };
    let has_version = match code {
        ErrorCode::InterruptedAtShutdown | ErrorCode::ShutdownInProgress => {
            member.quiesce_ends().is_some()
        }
        code => is_state_change(code),
    };
    if has_version {
        write_topology_version(out, server);
    }
}

/// `operationTime` and `$clusterTime` of a reply that is written now; `None` where there are none.
pub fn times(server: &Server) -> Option<(Timestamp, Timestamp)> {
    server.member.as_ref()?.times_of_reply(server.backend.engine().visible())
}

/// Writes the times.
pub fn put_times(out: &mut DocWriter<'_>, server: &Server) {
    let Some((operation, cluster)) = times(server) else { return };
    {
        let mut out = out.document("$clusterTime");
        out.put("clusterTime", cluster);
        let mut signature = out.document("signature");
        // Nobody signs times.
        let hash = Value::Binary { subtype: 0, bytes: Cow::Borrowed(&[0; 20]) };
        signature.put_value("hash", &hash);
        signature.put("keyId", 0i64);
    }
    out.put("operationTime", operation);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_writes_have_the_label_of_their_error() {
        let labels = |code, is_numbered| {
            labelled(Error::new(code, ""), is_numbered)
                .labels()
                .iter()
                .map(|l| l.to_string())
                .collect::<Vec<_>>()
        };
        let none: [String; 0] = [];
        for number in [10107, 13435, 13436, 11600, 11602, 189, 91, 6, 7, 89, 9001, 262] {
            let code = ErrorCode::from_number(number);
            assert_eq!(labels(code, true), [RETRYABLE], "{number}");
            assert_eq!(labels(code, false), none, "{number}");
        }
        for code in [ErrorCode::BadValue, ErrorCode::DuplicateKey, ErrorCode::MaxTimeMSExpired] {
            assert_eq!(labels(code, true), none, "{code:?}");
        }
        let given = Error::new(ErrorCode::PrimarySteppedDown, "").with_label("x");
        assert_eq!(labelled(given, true).labels(), ["x"]);
    }
}
