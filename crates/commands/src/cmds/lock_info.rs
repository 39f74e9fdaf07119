//! `lockInfo`: locks that are held or waited for. There are none unless `lockGranularity` asks for
//! them.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::locks::GLOBAL;
use crate::registry::{Command, Run};
use kauri_base::rw_lock::LockStats;
use kauri_bson::DocWriter;

/// See the module's head.
pub const COMMAND: Command =
    Command { admin_only: true, ..Command::new("lockInfo", "lists locks", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("lockInfo");
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "includeStorageEngineDump" => {
                    let _ = args.given(elem, Args::safe_bool)?;
                }
                _ => args.other(elem)?,
            }
        }
        let mut list = invocation.reply.array("lockInfo");
        for (name, stats) in invocation.server.locks.list() {
            if stats.readers + stats.readers_waiting + stats.writers_waiting > 0 || stats.writer {
                let mut entry = list.document();
                entry.put("resourceId", if name == GLOBAL { "{Global}" } else { name.as_str() });
                write_holders(&mut entry, &stats);
            }
        }
        Ok(())
    })
}

fn write_holders(out: &mut DocWriter<'_>, stats: &LockStats) {
    let modes = |shared, exclusive| [("S", shared), ("X", exclusive)];
    let held = modes(stats.readers, usize::from(stats.writer));
    let waiting = modes(stats.readers_waiting, stats.writers_waiting);
    for (name, all) in [("granted", held), ("pending", waiting)] {
        let mut list = out.array(name);
        for (mode, count) in all {
            (0..count).for_each(|_| list.document().put("mode", mode));
        }
    }
}
