//! Repairs a directory with damaged records, so that a server can start: moves damaged records aside and deletes
//! them.
//!
//! Only current data is lost. Damage to outdated versions affects no document. Damaged summaries, header copies and
//! index images have another copy or are created again. An unreadable log (a lost segment header; a damaged record
//! header in a segment with a damaged summary) is made readable first: see [`crate::salvage`].

use crate::engine::PmLog;
use crate::format::record::record_bytes;
use crate::options::Options;
use crate::verify::{Damage, Report};
use kauri_base::Result;
use kauri_base::sync::Arc;
use kauri_medium::{Directory, Medium};
use std::io::IoSlice;

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The lost records, and the files with their remains.
    pub lost: Vec<(Damage, String)>,
}

/// Puts bytes into the log in place of others that are damaged, durably, once those are in a file aside,
/// the name of which is answered.
pub(crate) fn overwrite(
    directory: &dyn Directory,
    medium: &dyn Medium,
    (damage, old): (&Damage, &[u8]),
    (at, bytes): (u64, &[u8]),
) -> Result<String> {
    let name = put_aside(directory, damage, old)?;
    medium.store(at, &[IoSlice::new(bytes)])?;
    medium.persist(at, bytes.len() as u64, "repair.persist")?;
    medium.drain("repair.drain")?;
    Ok(name)
}

/// Copies the remains of a damaged place to a file of its own, durably. A file of that name with other contents is
/// an earlier repair's and stays.
fn put_aside(directory: &dyn Directory, damage: &Damage, bytes: &[u8]) -> Result<String> {
    let base = format!("quarantine.{}.{}", damage.segment, damage.offset);
    let (mut name, mut tries) = (base.clone(), 1u32);
    while directory.read_file(&name)?.is_some_and(|found| found != bytes) {
        tries += 1;
        name = format!("{base}.{tries}");
    }
    // Also if it is there: its name may not be durable yet.
    directory.replace_file(&name, bytes, "repair.aside")?;
    Ok(name)
}

/// Repairs a directory by what a check has found in it. Nothing is changed unless the log can be
/// followed to its end.
pub fn repair(
    directory: &Arc<dyn Directory>,
    options: Options,
    report: &Report,
) -> Result<Repaired> {
    let segment_bytes = u64::from(report.segment_bytes);
    let engine = PmLog::open(directory.clone(), options)?;
    let mut repaired = Repaired::default();
    let log = directory.open_log(crate::format::LOG_FILE)?;
    for damage in report.damage.iter().filter(|damage| damage.current == Some(true)) {
        let (Some(collection), Some(record)) = (damage.collection, damage.record) else { continue };
        let at = u64::from(damage.segment) * segment_bytes + u64::from(damage.offset);
        let left = segment_bytes.saturating_sub(u64::from(damage.offset));
        let len = u64::from(record_bytes(damage.payload_len)).min(left);
        let mut bytes = vec![0; len as usize];
        log.read(at, &mut bytes)?;
        // What was there is safe before the record ends.
        let name = put_aside(&**directory, damage, &bytes)?;
        if engine.bury_damaged(collection, record)? {
            repaired.lost.push((damage.clone(), name));
        }
    }
    engine.close()?;
    Ok(repaired)
}
