//! Pending units: outcomes from the newest resolution record, and the units that are still pending.

use crate::address::{Address, Slot};
use crate::format::record::{CommitPayload, Kind, record_bytes};
use crate::format::resolution::Resolution;
use crate::format::summary::Entry;
use crate::on_medium::corrupt;
use crate::on_medium::{Kept, Log};
use crate::pending_units::{PendingEntry, Unit};
use crate::reader::{Next, RecordReader};
use crate::registry::Registry;
use crate::segments::Segments;
use crate::slots::RECORDS_MAX;
use kauri_base::CollectionId;
use kauri_base::sync::Arc;
use kauri_medium::EpochDomain;
use kauri_storage::{LogPosition, StorageError};
use std::collections::BTreeMap;

/// Pending units in the log.
pub struct FoundPending {
    /// Which have been resolved.
    pub resolution: Resolution,
    /// The commit that resolved the last of them.
    pub resolved_by: u64,
    /// The place of the newest resolution; none if there is none.
    pub at: Slot,
    /// The units that are still pending, in order.
    pub units: Vec<Unit>,
}

/// A record, and the segment that it is in.
type Place<'k> = (&'k Kept, Entry);

impl FoundPending {
    /// Looks through what counts.
    pub fn find(log: Log<'_>, kept: &[Kept]) -> Result<FoundPending, StorageError> {
        let kept: Vec<&Kept> = kept.iter().filter(|kept| kept.contents.has_pending()).collect();
        let mut newest: Option<Place<'_>> = None;
        for kept in &kept {
            kept.contents.for_each(|entry| {
                let order =
                    |(kept, entry): &Place<'_>| (entry.seq, log.segments.get(kept.segment).order());
                let newer =
                    newest.as_ref().is_none_or(|place| order(place) < order(&(kept, entry)));
                if entry.kind == Kind::Resolution && newer {
                    newest = Some((kept, entry));
                }
            });
        }
        let mut found = FoundPending {
            resolution: Resolution::default(),
            resolved_by: 0,
            at: Slot::NONE,
            units: Vec::new(),
        };
        if let Some(place) = newest {
            let payload = read_payload(log, place)?;
            found.resolution =
                Resolution::decode(&payload).ok_or_else(|| damaged(place, "resolution"))?;
            (found.at, found.resolved_by) = (slot(place), place.1.seq);
        }
        found.find_units(log, &kept)?;
        Ok(found)
    }

    fn find_units(&mut self, log: Log<'_>, kept: &[&Kept]) -> Result<(), StorageError> {
        let resolution = &self.resolution;
        let mut left = vec![false; resolution.dropped.len()];
        let mut units: BTreeMap<u64, Vec<Place<'_>>> = BTreeMap::new();
        for kept in kept {
            kept.contents.for_each(|entry| {
                let pending = matches!(
                    entry.kind,
                    Kind::PendingPut | Kind::PendingTombstone | Kind::PendingCommit
                );
                if !pending || resolution.is_committed(entry.seq) {
                    return;
                }
                let range =
                    resolution.dropped.iter().position(|(a, b)| (*a..=*b).contains(&entry.seq));
                match range.and_then(|range| left.get_mut(range)) {
                    Some(left) => *left = true,
                    None => units.entry(entry.seq).or_default().push((kept, entry)),
                }
            });
        }
        for (seq, places) in units {
            self.units.push(unit(log, seq, places)?);
        }
        // Of some that were dropped nothing is left to be kept out.
        let mut left = left.into_iter();
        self.resolution.dropped.retain(|_| left.next().unwrap_or(true));
        Ok(())
    }

    /// Counts pending records as live, and reserves the ids of inserts.
    pub fn keep(&mut self, registry: &Registry, segments: &Segments, domain: &Arc<EpochDomain>) {
        let mut guard = domain.register();
        guard.enter();
        if !self.at.is_none() {
            segments.add_live(self.at);
        }
        for unit in &mut self.units {
            segments.add_live(unit.commit);
            for entry in &mut unit.entries {
                let store = registry.store(entry.collection);
                let is_put = !entry.slot.is_tombstone();
                let new = |store: &Arc<crate::collection::Collection>| {
                    is_put && store.slots.load(&guard, entry.record).is_none()
                };
                match store.filter(new) {
                    None => segments.add_live(entry.slot),
                    Some(store) => {
                        entry.insert = true;
                        segments.add_live(entry.placeholder());
                        entry.set_placeholder(&guard, &store);
                    }
                }
            }
        }
    }
}

fn slot((kept, entry): Place<'_>) -> Slot {
    let address = Address { segment: kept.segment, offset: entry.offset };
    let tombstone = entry.kind == Kind::PendingTombstone;
    Slot::new(address, record_bytes(entry.payload_len), tombstone, 0)
}

fn damaged((kept, entry): Place<'_>, what: &str) -> StorageError {
    corrupt(format!(
        "segment {}: the {what} record at offset {} is damaged",
        kept.segment, entry.offset
    ))
}

fn read_payload(log: Log<'_>, place: Place<'_>) -> Result<Vec<u8>, StorageError> {
    let (kept, entry) = place;
    let Log { medium, faults, segments, .. } = log;
    let mut reader =
        RecordReader::new(medium, faults, segments, kept.segment, kept.epoch, kept.end);
    reader.seek(entry.offset);
    match reader.next().map_err(crate::io_error)? {
        Next::Record(record) if record.payload_whole => Ok(record.payload.to_vec()),
        _ => Err(damaged(place, "commit or resolution")),
    }
}

/// A pending unit of these records.
fn unit(log: Log<'_>, seq: u64, mut places: Vec<Place<'_>>) -> Result<Unit, StorageError> {
    places.sort_unstable_by_key(|(kept, entry)| (kept.epoch, entry.offset));
    let torn = || corrupt(format!("the pending unit of commit {seq} is not whole"));
    let commit = places.pop().filter(|(_, entry)| entry.kind == Kind::PendingCommit);
    let commit = commit.ok_or_else(torn)?;
    let payload = CommitPayload::decode(&read_payload(log, commit)?).ok_or_else(torn)?;
    let impossible = |(_, entry): &Place<'_>| entry.record == 0 || entry.record >= RECORDS_MAX;
    if payload.count as usize != places.len() || places.iter().any(impossible) {
        return Err(torn());
    }
    let entry = |place: &Place<'_>| PendingEntry {
        collection: CollectionId(place.1.collection),
        record: place.1.record,
        slot: slot(*place),
        payload_len: place.1.payload_len,
        insert: false,
    };
    Ok(Unit {
        position: LogPosition { term: payload.term, index: payload.index },
        seq,
        owner: 0,
        entries: places.iter().map(entry).collect(),
        commit: slot(commit),
    })
}
