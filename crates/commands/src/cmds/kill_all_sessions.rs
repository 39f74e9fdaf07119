//! `killAllSessions` and `killAllSessionsByPattern`.
//!
//! Without users, sessions have no owner: a list of users matches no session, an empty list matches all.

use super::session_ids;
use crate::args::Args;
use crate::concerns;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::sessions::SessionId;
use kauri_base::Result;
use kauri_bson::Doc;

/// `killAllSessions`.
pub const COMMAND: Command = Command {
    api_v1: false,
    ..Command::new("killAllSessions", "kills all logical sessions of some users, or of all", run)
};

/// `killAllSessionsByPattern`.
pub const BY_PATTERN: Command = Command::new(
    "killAllSessionsByPattern",
    "kills all logical sessions that match a pattern",
    run_by_pattern,
);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let users = session_ids::main_array(invocation, "killAllSessions")?;
        let args = Args::new("killAllSessions.killAllSessions");
        for elem in users {
            if let Some(user) = args.given(elem, Args::object)? {
                check_user(user)?;
            }
        }
        let own = invocation.op.state().id;
        session_ids::kill(invocation.server, own, |_| users.is_empty());
        Ok(())
    })
}

fn check_user(user: Doc<'_>) -> Result<()> {
    let args = Args::new("killAllSessions.killAllSessions");
    let (mut name, mut db) = (false, false);
    for field in user {
        match field.key() {
            "user" => name = args.given(field, Args::string)?.is_some(),
            "db" => db = args.given(field, Args::string)?.is_some(),
            other => return Err(args.unknown(other)),
        }
    }
    match (name, db) {
        (false, _) => Err(args.missing("user")),
        (_, false) => Err(args.missing("db")),
        _ => Ok(()),
    }
}

fn run_by_pattern<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let patterns = session_ids::main_array(invocation, "killAllSessionsByPattern")?;
        let args = Args::new("killAllSessionsByPattern.killAllSessionsByPattern");
        let mut ids = Vec::new();
        let mut all = patterns.is_empty();
        for elem in patterns {
            match pattern(args.object(elem)?, args)? {
                Pattern::All => all = true,
                Pattern::One(id) => ids.push(id),
                Pattern::Nobody => {}
            }
        }
        let own = invocation.op.state().id;
        session_ids::kill(invocation.server, own, |id| all || ids.contains(id));
        Ok(())
    })
}

enum Pattern {
    All,
    One(SessionId),
    Nobody,
}

fn pattern(doc: Doc<'_>, args: Args<'_>) -> Result<Pattern> {
    let mut pattern = Pattern::All;
    for field in doc {
        match field.key() {
            "lsid" => pattern = Pattern::One(concerns::session_id(field)?),
            // Users and their digests belong to nobody while there are no users.
            "uid" => pattern = Pattern::Nobody,
            _ => args.accepted(field)?,
        }
    }
    Ok(pattern)
}
