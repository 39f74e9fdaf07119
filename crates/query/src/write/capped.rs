//! Space in capped collections: the oldest documents are deleted in the unit that inserts the new ones.

use kauri_base::{Access, RecordId, Result};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::{Collection, KeyScratch};
use kauri_storage::{Direction, KeyChange, OpKind, Operation, RecordScan, StorageError, WriteUnit};

/// Adds the deletes to the unit that keep the collection within its bounds after the unit's inserts.
pub async fn make_room(
    op: &mut Operation,
    collection: &Collection,
    unit: &mut WriteUnit<'_>,
    scratch: &mut KeyScratch,
) -> Result<()> {
    let (mut records, mut bytes) = (0, 0);
    for write in &unit.ops {
        if let OpKind::Insert { doc } = &write.kind {
            records += 1;
            bytes += doc.len() as u64;
        }
    }
    let Some((mut excess_records, mut excess_bytes)) = collection.capped_excess(records, bytes)?
    else {
        return Ok(());
    };
    let mut scan = RecordScan::new(Direction::Forward);
    while excess_records > 0 || excess_bytes > 0 {
        let reader = op.scope().enter();
        let found = oldest(collection, &*reader, &mut scan);
        drop(reader);
        match found? {
            Access::WouldBlock(ticket) => op.wait(ticket).await?,
            Access::Ready(None) => break,
            Access::Ready(Some((record, version, doc))) => {
                excess_records = excess_records.saturating_sub(1);
                excess_bytes = excess_bytes.saturating_sub(doc.as_bytes().len() as u64);
                let op = collection.delete(unit, record, version, doc.as_doc(), scratch)?;
                if let Some(error) = duplicate_of(unit, op, record) {
                    return Err(collection.explain_commit_error(error));
                }
            }
        }
    }
    Ok(())
}

/// The error of an insert that has a unique key of the document that is removed to make room for it: the
/// document is still there when the insert is checked.
fn duplicate_of(unit: &WriteUnit<'_>, removed: usize, record: RecordId) -> Option<StorageError> {
    for gone in unit.keys_of(removed) {
        let key = unit.key_bytes(gone);
        for op in 0..removed {
            let has_key = |k: &&KeyChange| {
                k.add && k.unique && k.index == gone.index && unit.key_bytes(k) == key
            };
            if let Some(added) = unit.keys_of(op).iter().find(has_key) {
                return Some(StorageError::DuplicateKey {
                    index: added.index,
                    op,
                    key: key.to_vec(),
                    type_bits: unit.type_bits(added).to_vec(),
                    existing: Some(record),
                });
            }
        }
    }
    None
}

type Found = (RecordId, kauri_base::CommitSeq, DocBuf);

fn oldest(
    collection: &Collection,
    ru: &dyn kauri_storage::RecoveryUnit,
    scan: &mut RecordScan,
) -> Result<Access<Option<Found>>> {
    loop {
        let Some(id) = scan.next_buffered() else {
            if scan.ended() {
                return Ok(Access::Ready(None));
            }
            match collection.fill(ru, scan)? {
                Access::Ready(()) => continue,
                Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            }
        };
        match collection.get(ru, id)? {
            Access::Ready(Some(record)) => {
                let doc: Doc<'_> = record.doc;
                return Ok(Access::Ready(Some((id, record.version, doc.to_buf()))));
            }
            Access::Ready(None) => {}
            Access::WouldBlock(ticket) => {
                scan.put_back();
                return Ok(Access::WouldBlock(ticket));
            }
        }
    }
}
