//! `autoCompact`: switches compaction in the background on and off. The engine's cleaner compacts all the time, so
//! the command only keeps what is asked for.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};
use std::sync::{Mutex, PoisonError};

/// See the module's head.
pub const COMMAND: Command =
    Command { ..Command::admin("autoCompact", "switches background compaction on or off", run) };

/// What may be free in a file before it is compacted, unless the command says otherwise.
const FREE_SPACE_TARGET_MB: i64 = 20;

/// The free space in MB that the compaction in the background is to leave; `None` while it is off.
#[derive(Default)]
pub struct AutoCompact(Mutex<Option<i64>>);

impl AutoCompact {
    fn enable(&self, target_mb: i64, once: bool) -> Result<()> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some_and(|current| current != target_mb || once) {
            bail!(
                AlreadyInitialized,
                "Cannot reconfigure background compaction while it's already running."
            );
        }
        // One run has no work to do, and ends at once.
        if !once {
            *running = Some(target_mb);
        }
        Ok(())
    }

    fn disable(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("autoCompact");
        let target = invocation.target()?;
        let Some(enable) = args.given(target, Args::bool)? else {
            return Err(args.missing("autoCompact"));
        };
        let (mut target_mb, mut once) = (FREE_SPACE_TARGET_MB, false);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "freeSpaceTargetMB" => {
                    if let Some(given) = args.given(elem, |args, elem| args.at_least(elem, 1))? {
                        target_mb = given;
                    }
                }
                "runOnce" => once = args.given(elem, Args::bool)?.unwrap_or(false),
                _ => args.other(elem)?,
            }
        }
        let state = &invocation.server.auto_compact;
        if !enable {
            state.disable();
            return Ok(());
        }
        if target_mb.checked_mul(1 << 20).is_none() {
            bail!(
                BadValue,
                "BSON field 'freeSpaceTargetMB' value '{target_mb}' is too large: its bytes exceed \
                 a 64-bit integer"
            );
        }
        state.enable(target_mb, once)
    })
}
