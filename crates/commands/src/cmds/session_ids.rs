//! Shared code of the commands on logical sessions: reads lists of ids, ends cursors and operations of sessions.

use crate::args::Args;
use crate::concerns::internal_session;
use crate::invocation::Invocation;
use crate::server::Server;
use crate::sessions::SessionId;
use kauri_base::{ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, Elem, Value};

/// Most sessions in one command.
const LIST_MAX: usize = 10_000;

/// The list that is the command's main argument: `[{id: UUID}, …]`.
pub fn parse_list(invocation: &Invocation<'_>, command: &str) -> Result<Vec<SessionId>> {
    let list = main_array(invocation, command)?;
    let path = format!("{command}.{command}");
    let mut ids = Vec::new();
    for (position, elem) in list.iter().enumerate() {
        if position >= LIST_MAX {
            bail!(BadValue, "{command} takes at most {LIST_MAX} sessions");
        }
        if let Some(entry) = Args::new(&path).given(elem, Args::object)? {
            ids.push(parse_one(entry, &format!("{path}.{position}"))?);
        }
    }
    Ok(ids)
}

/// The main argument, which has to be an array.
pub fn main_array<'a>(invocation: &Invocation<'a>, command: &str) -> Result<Doc<'a>> {
    let target = invocation.target()?;
    if target.value().is_nullish() {
        return Err(Args::new(command).missing(command));
    }
    Args::new(command).array(target)
}

fn parse_one(entry: Doc<'_>, path: &str) -> Result<SessionId> {
    let args = Args::new(path);
    let mut id = None;
    for field in entry {
        match field.key() {
            "id" => id = args.given(field, uuid)?,
            "uid" => {
                if !matches!(field.value(), Value::Binary { subtype: 0, .. }) {
                    return Err(args.wrong_type(field, &["binData"]));
                }
            }
            "txnNumber" | "txnUUID" => return Err(internal_session()),
            other => return Err(args.unknown(other)),
        }
    }
    id.ok_or_else(|| args.missing("id"))
}

fn uuid(args: &Args<'_>, elem: Elem<'_>) -> Result<SessionId> {
    match elem.value() {
        Value::Binary { subtype: 4, bytes } => match SessionId::try_from(&*bytes) {
            Ok(id) => Ok(id),
            Err(_) => {
                bail!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
            }
        },
        Value::Binary { .. } => bail!(
            TypeMismatch,
            "BSON field '{}' is the wrong binData type, expected type 'UUID'",
            elem.key()
        ),
        _ => Err(args.wrong_type(elem, &["binData"])),
    }
}

/// Ends what belongs to the sessions for which `doomed` holds: cursors, and operations but the one
/// that asks.
pub fn kill(server: &Server, own_operation: u64, doomed: impl Fn(&SessionId) -> bool) {
    server.cursors.kill_where(|_, lsid| lsid.as_ref().is_some_and(&doomed));
    server.operations.kill_where(ErrorCode::Interrupted, |running| {
        running.state.id != own_operation && running.lsid.as_ref().is_some_and(&doomed)
    });
}

/// Notes these sessions as used now.
pub fn refresh(server: &Server, ids: &[SessionId]) -> Result<()> {
    let now = server.clock.monotonic();
    ids.iter().try_for_each(|id| server.sessions.touch(*id, now))
}

/// A new session's id.
pub fn new_id(server: &Server) -> SessionId {
    let mut id = [0; 16];
    for half in id.chunks_exact_mut(8) {
        half.copy_from_slice(&server.random.next_u64().to_le_bytes());
    }
    id[6] = id[6] & 0x0F | 0x40;
    id[8] = id[8] & 0x3F | 0x80;
    id
}

/// `localLogicalSessionTimeoutMinutes`.
pub fn timeout_minutes(server: &Server) -> i32 {
    match server.parameters.number("localLogicalSessionTimeoutMinutes") {
        0 => limits::LOGICAL_SESSION_IDLE_MINUTES,
        minutes => minutes as i32,
    }
}
