//! Shared fixtures: directories removed at the end, and bytes that encode their own position.

use kauri_medium::plain::DirectoryOptions;
use kauri_medium::{Dax, Faults};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of this test, removed at the end.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        TempDir::under(&std::env::temp_dir(), name)
    }

    pub fn under(parent: &Path, name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kauri-medium-{name}-{}-{number}", std::process::id());
        let path = parent.join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Options of a directory with these faults, whose log files are files on any file system.
pub fn with_faults(faults: &Arc<Faults>) -> DirectoryOptions {
    let faults = Arc::clone(faults);
    DirectoryOptions { faults, dax: Dax::Off, ..DirectoryOptions::default() }
}

/// A small generator for choices (xorshift).
pub struct Choices(pub u64);

impl Choices {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The byte at an offset of a segment in one of its lives.
pub fn pattern(segment: u32, life: u32, offset: usize) -> u8 {
    let word = (u64::from(segment) << 40 | u64::from(life) << 32 | (offset as u64 >> 3))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (word >> ((offset & 7) * 8)) as u8
}

/// The pattern's bytes in a range.
pub fn pattern_of(segment: u32, life: u32, offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| pattern(segment, life, at)).collect()
}

/// Whether `bytes` match the pattern.
pub fn matches_pattern(bytes: &[u8], segment: u32, life: u32, offset: usize) -> bool {
    bytes.iter().enumerate().all(|(i, byte)| *byte == pattern(segment, life, offset + i))
}
