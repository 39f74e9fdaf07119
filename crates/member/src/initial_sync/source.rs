//! The copies of the engine's files that a leader gives to members without data.
//!
//! Each member has one copy at most. The log keeps the frames that a copy lacks until its member has them.

use super::message::{Content, File, Piece};
use crate::checkpoint;
use crate::stored::Stored;
use kauri_storage::{CopyPart, LogCopy, StorageError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Copies at the same time, at most: each keeps space from being used again.
const COPIES_MAX: usize = 4;
/// A copy that nobody reads for so long is forgotten.
const IDLE_NS: u64 = 60_000_000_000;
/// One that is not made for so long will not be.
const MAKING_NS_MAX: u64 = 600_000_000_000;
/// Pieces that are being read for a member, at most.
const READING_MAX: usize = 32;

enum Copy {
    Making,
    Made(Arc<dyn LogCopy>),
    /// The member has it, and is to say so by following.
    Taken,
}

struct Giving {
    number: u64,
    copy: Copy,
    stored: Stored,
    files: Vec<File>,
    /// Contents of the files that are not the log, by their places.
    contents: Vec<Vec<u8>>,
    /// Frames behind this one are kept.
    keeps: u64,
    /// The copy has this frame.
    has: u64,
    heard_ns: u64,
    /// Counted by its holders.
    reading: Arc<()>,
}

/// See the module's head.
#[derive(Default)]
pub struct Source(BTreeMap<u64, Giving>);

/// A copy that was made aside, and for whom.
pub struct MadeCopy {
    /// The member that wants it.
    pub to: u64,
    /// Its number.
    pub number: u64,
    /// It, or why there is none.
    pub copy: Result<Box<dyn LogCopy>, StorageError>,
}

/// What becomes of a wish for a copy.
#[derive(PartialEq, Debug)]
pub enum Begun {
    /// One is to be made.
    Make,
    /// It is made already: what is said of it.
    Made(Content),
    /// Later.
    Wait,
}

/// A piece to be read, beside everything else.
pub struct Reading {
    piece: Piece,
    of: Of,
    _counted: Arc<()>,
}

/// What becomes of a wish for a piece.
pub enum Wanted {
    /// It is to be read.
    Read(Reading),
    /// So many are being read that it is to be asked for again.
    Later,
    /// There is no such copy.
    Gone,
}

enum Of {
    Log(Arc<dyn LogCopy>),
    Bytes(Vec<u8>),
}

impl Reading {
    /// Reads it. A copy that cannot be read is as good as none.
    pub fn read(self) -> Content {
        match self.of {
            Of::Bytes(bytes) => Content::Data(self.piece, bytes),
            Of::Log(copy) => {
                let mut bytes = vec![0; self.piece.bytes as usize];
                match copy.read(self.piece.offset, &mut bytes) {
                    Ok(()) => Content::Data(self.piece, bytes),
                    Err(_) => Content::Gone(self.piece.copy),
                }
            }
        }
    }
}

impl Source {
    /// Member `to` wants a copy. `stored` is the state now, `statements` reads the checkpoint's file, `frames` the purged
    /// frame and the last one.
    pub fn begin(
        &mut self,
        (to, number): (u64, u64),
        stored: &Stored,
        statements: impl FnOnce() -> kauri_base::Result<Option<Vec<u8>>>,
        (purged, last): (u64, u64),
        now_ns: u64,
    ) -> kauri_base::Result<Begun> {
        if let Some(giving) = self.0.get_mut(&to) {
            // Who asks again and again and reads nothing keeps no copy.
            match &giving.copy {
                Copy::Making => return Ok(Begun::Wait),
                Copy::Made(_) => return Ok(Begun::Made(giving.describe())),
                Copy::Taken => {}
            }
        }
        let is_new = !self.0.contains_key(&to);
        if is_new && self.0.len() >= COPIES_MAX {
            return Ok(Begun::Wait);
        }
        let contents: Vec<Vec<u8>> = statements()?.into_iter().collect();
        let files = contents.iter().map(|bytes| small(checkpoint::FILE, bytes)).collect();
        let (keeps, has, heard_ns) = (purged, last, now_ns);
        let (copy, stored) = (Copy::Making, stored.clone());
        let reading = Arc::default();
        let giving =
            Giving { number, copy, stored, files, contents, keeps, has, heard_ns, reading };
        self.0.insert(to, giving);
        Ok(Begun::Make)
    }

    /// The copy of this number is made; what is said of it. `None` if nobody wants it any more.
    pub fn made(&mut self, to: u64, number: u64, copy: Box<dyn LogCopy>) -> Option<Content> {
        let giving = self.0.get_mut(&to).filter(|giving| giving.number == number)?;
        for (name, bytes) in copy.files() {
            giving.files.push(small(name, bytes));
            giving.contents.push(bytes.clone());
        }
        let (name, bytes) = copy.log_file();
        let (name, parts) = (name.to_owned(), joined(copy.parts()));
        giving.files.push(File { name, bytes, parts, is_log: true });
        giving.copy = Copy::Made(copy.into());
        giving.keeps = giving.has;
        Some(giving.describe())
    }

    /// The copy of this number could not be made, or is not wanted any more.
    pub fn drop_copy(&mut self, to: u64, number: u64) {
        if self.0.get(&to).is_some_and(|giving| giving.number == number) {
            self.0.remove(&to);
        }
    }

    /// Member `to` wants a piece.
    pub fn read(&mut self, to: u64, piece: Piece, now_ns: u64) -> Wanted {
        match self.find(to, piece, now_ns) {
            None => Wanted::Gone,
            // One of them is the copy's own.
            Some(reading) if Arc::strong_count(&reading._counted) > READING_MAX + 1 => {
                Wanted::Later
            }
            Some(reading) => Wanted::Read(reading),
        }
    }

    fn find(&mut self, to: u64, piece: Piece, now_ns: u64) -> Option<Reading> {
        let giving = self.0.get_mut(&to).filter(|giving| giving.number == piece.copy)?;
        let Copy::Made(copy) = &giving.copy else { return None };
        let file = giving.files.get(piece.file)?;
        piece.offset.checked_add(piece.bytes).filter(|end| *end <= file.bytes)?;
        giving.heard_ns = now_ns;
        let of = match giving.contents.get(piece.file) {
            None => Of::Log(copy.clone()),
            Some(bytes) => {
                let at = piece.offset as usize;
                Of::Bytes(bytes.get(at..at + piece.bytes as usize)?.to_vec())
            }
        };
        Some(Reading { piece, of, _counted: giving.reading.clone() })
    }

    /// Member `to` has the copy of this number.
    pub fn end(&mut self, to: u64, number: u64, now_ns: u64) {
        if let Some(giving) = self.0.get_mut(&to).filter(|giving| giving.number == number) {
            giving.copy = Copy::Taken;
            giving.heard_ns = now_ns;
        }
    }

    /// Forgets what nobody reads, and members that follow: `reached` tells what their logs have.
    pub fn look_after(&mut self, now_ns: u64, reached: impl Fn(u64) -> Option<u64>) {
        self.0.retain(|to, giving| {
            let follows = matches!(giving.copy, Copy::Taken)
                && reached(*to).is_some_and(|index| index >= giving.has);
            let limit_ns = match giving.copy {
                Copy::Making => MAKING_NS_MAX,
                _ => IDLE_NS,
            };
            !follows && now_ns.saturating_sub(giving.heard_ns) <= limit_ns
        });
    }

    /// Frames behind this one are kept.
    pub fn keeps(&self) -> Option<u64> {
        self.0.values().map(|giving| giving.keeps).min()
    }

    /// The member does not lead any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Giving {
    fn describe(&self) -> Content {
        let (stored, files) = (Box::new(self.stored.clone()), self.files.clone());
        Content::Begun { copy: self.number, stored, files }
    }
}

fn small(name: &str, bytes: &[u8]) -> File {
    let length = bytes.len() as u64;
    let parts = [CopyPart { offset: 0, bytes: length }];
    let parts = parts.into_iter().filter(|part| part.bytes > 0).collect();
    File { name: name.to_owned(), bytes: length, parts, is_log: false }
}

/// Parts that touch each other are one.
fn joined(parts: &[CopyPart]) -> Vec<CopyPart> {
    let mut joined: Vec<CopyPart> = Vec::new();
    for part in parts.iter().filter(|part| part.bytes > 0) {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == part.offset => last.bytes += part.bytes,
            _ => joined.push(*part),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::CommitSeq;

    struct Fixed;

    impl LogCopy for Fixed {
        fn seq(&self) -> CommitSeq {
            CommitSeq(5)
        }
        fn files(&self) -> &[(&'static str, Vec<u8>)] {
            static FILES: std::sync::OnceLock<[(&str, Vec<u8>); 1]> = std::sync::OnceLock::new();
            FILES.get_or_init(|| [("meta", b"abc".to_vec())])
        }
        fn log_file(&self) -> (&'static str, u64) {
            ("log", 100)
        }
        fn parts(&self) -> &[CopyPart] {
            const { &[part(0, 10), part(10, 20), part(50, 5)] }
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError> {
            into.fill(offset as u8);
            Ok(())
        }
    }

    const fn part(offset: u64, bytes: u64) -> CopyPart {
        CopyPart { offset, bytes }
    }

    fn begin(source: &mut Source, to: u64, number: u64) -> Begun {
        let stored = crate::stored::tests::stored();
        source.begin((to, number), &stored, || Ok(None), (3, 9), 0).unwrap()
    }

    #[test]
    fn a_copy_is_described_read_and_kept_until_its_member_follows() {
        let mut source = Source::default();
        assert_eq!(
            (begin(&mut source, 2, 77), begin(&mut source, 2, 78)),
            (Begun::Make, Begun::Wait)
        );
        assert_eq!(source.keeps(), Some(3), "what the copy will have is not known");
        assert_eq!(source.made(2, 78, Box::new(Fixed)), None);
        let said = source.made(2, 77, Box::new(Fixed)).expect("it is wanted");
        assert_eq!(source.keeps(), Some(9));
        assert_eq!(begin(&mut source, 2, 79), Begun::Made(said.clone()));
        let Content::Begun { copy: 77, files, .. } = said else { panic!("{said:?}") };
        let parts: Vec<_> = files.iter().map(|file| (&*file.name, file.parts.clone())).collect();
        assert_eq!(parts, [("meta", vec![part(0, 3)]), ("log", vec![part(0, 30), part(50, 5)])]);
        let piece = |file, offset, bytes| Piece { copy: 77, file, offset, bytes };
        let mut read = |piece| match source.read(2, piece, 0) {
            Wanted::Read(reading) => Some(reading.read()),
            _ => None,
        };
        let (small, large) = (piece(0, 1, 2), piece(1, 50, 5));
        assert_eq!(read(small), Some(Content::Data(small, b"bc".to_vec())));
        assert_eq!(read(large), Some(Content::Data(large, vec![50; 5])));
        for piece in [piece(0, 1, 3), piece(1, 98, 3), piece(2, 0, 1), Piece { copy: 76, ..small }]
        {
            assert_eq!(read(piece), None);
        }
        let many: Vec<_> = (0..READING_MAX).map(|_| source.read(2, small, 0)).collect();
        assert!(many.iter().all(|one| matches!(one, Wanted::Read(_))));
        assert!(matches!(source.read(2, small, 0), Wanted::Later));
        drop(many);
        assert!(matches!(source.read(2, small, 0), Wanted::Read(_)));
        source.end(2, 77, 0);
        assert!(matches!(source.read(2, small, 0), Wanted::Gone));
        source.look_after(0, |_| Some(8));
        assert_eq!(source.keeps(), Some(9));
        source.look_after(0, |_| Some(9));
        assert_eq!(source.keeps(), None);
    }

    #[test]
    fn copies_are_few_and_not_kept_for_those_who_do_not_read() {
        let mut source = Source::default();
        for to in 0..COPIES_MAX as u64 {
            assert_eq!(begin(&mut source, to, to), Begun::Make);
        }
        assert_eq!(begin(&mut source, 9, 9), Begun::Wait);
        source.drop_copy(1, 0);
        assert_eq!(begin(&mut source, 9, 9), Begun::Wait, "another one has failed");
        source.drop_copy(1, 1);
        assert_eq!(begin(&mut source, 9, 9), Begun::Make);
        assert!(source.made(0, 0, Box::new(Fixed)).is_some());
        assert!(matches!(begin(&mut source, 0, 5), Begun::Made(_)), "asks again, reads nothing");
        source.look_after(IDLE_NS + 1, |_| None);
        let piece = Piece { copy: 0, file: 0, offset: 0, bytes: 1 };
        assert!(matches!(source.read(0, piece, 0), Wanted::Gone));
        assert_eq!(source.0.len(), 3, "those that are being made are not forgotten");
        source.look_after(MAKING_NS_MAX + 1, |_| None);
        assert!(source.0.is_empty());
        begin(&mut source, 0, 5);
        source.clear();
        assert_eq!(source.keeps(), None);
    }
}
