//! Opening a directory again.

use super::subject::{Opening, Scratch, Subject};
use super::table::{Goal, Line};
use super::workload::{Collection, Documents};
use super::{Settings, median};
use kauri_base::Result;
use std::time::Instant;

/// Times the directory is opened.
const TIMES: usize = 5;

/// Documents a second that the opening takes up, with one thread.
pub fn measure(settings: &Settings) -> Result<Vec<Line>> {
    let mut table = Line::new("recovery from summaries, a core", "documents/s", Goal::AtLeast(3e6));
    let mut with_id = Line::new("recovery with _id, a core", "documents/s", Goal::AtLeast(1e6));
    for kind in &settings.kinds {
        let scratch = Scratch::new(&settings.memory_directory)?;
        let opening = Opening {
            cache_bytes: settings.cache_bytes(),
            segment_bytes: 8 << 20,
            ..Opening::default()
        };
        let subject = Subject::open(*kind, scratch.path(), &opening)?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        collection.load(&mut docs, 0, settings.documents as i64, 100)?;
        drop(collection);
        subject.close()?;
        let (mut opened, mut attached) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            let subject = Subject::open(*kind, scratch.path(), &opening)?;
            let open = began.elapsed().as_secs_f64();
            let collection = Collection::attach(&subject)?;
            let all = began.elapsed().as_secs_f64();
            assert_eq!(collection.store().stats().records, settings.documents);
            opened.push(settings.documents as f64 / open);
            attached.push(settings.documents as f64 / all);
            drop(collection);
            subject.close()?;
        }
        table.set(*kind, median(&mut opened));
        with_id.set(*kind, median(&mut attached));
    }
    table.remark(
        "files in memory, after a clean shutdown, one thread; WiredTiger reads nothing then",
    );
    Ok(vec![table, with_id])
}
