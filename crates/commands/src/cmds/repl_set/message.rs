//! `replSetMessage`: a message of another member, for this member's driver.
//!
//! It is no command of MongoDB's, and none for users: it is neither listed nor logged nor profiled. Members send it
//! with `moreToCome`, so it has no reply. The driver checks the message.

use super::member_of;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Report, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    is_internal: true,
    // Members hand over while they end.
    needs_no_login: true,
    report: Report::None,
    never_fails_by_failpoint: true,
    ..Command::admin("replSetMessage", "takes a message of another member", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        let args = Args::new("replSetMessage");
        let target = invocation.target()?;
        match target.value() {
            Value::Binary { bytes, .. } => member.receive(&bytes),
            _ => return Err(args.wrong_type(target, &["binData"])),
        }
        Ok(())
    })
}
