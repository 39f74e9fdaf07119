//! `killOp`.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, bail};

/// See the module's head.
pub const COMMAND: Command = Command::admin("killOp", "interrupts an operation", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let Some(op) = invocation.body.get("op") else {
            bail!(NoSuchKey, "Did not provide \"op\" field");
        };
        let value = op.value();
        if !value.is_number() {
            bail!(
                TypeMismatch,
                "Expected field \"op\" to have numeric type, but found {}",
                op.ty().alias()
            );
        }
        let Some(id) = value.as_i64_exact() else {
            bail!(
                BadValue,
                "Expected field \"op\" to have a value exactly representable as a 64-bit \
                             integer, but found op: {}",
                kauri_bson::shell_value(&value)
            );
        };
        if i32::try_from(id).is_err() {
            bail!(26823, "invalid op : {id}. Op ID cannot be represented with 32 bits");
        }
        // An operation that is not there is no error.
        let id = u64::from(id as i32 as u32);
        invocation.server.operations.kill(id, ErrorCode::Interrupted);
        invocation.reply.put("info", "attempting to kill op");
        Ok(())
    })
}
