//! The file of the statements of numbered writes whose frames may be purged.
//!
//! ```text
//! file      (when (8) . length (4) . unit)* . CRC32C of all (4)
//! ```
//! `when` is the time of the session's last use in milliseconds since 1970, a unit as in
//! [`crate::statements::encoding`]. What is later than the file is in the frames behind the purged one. Some of that may
//! be in the file, too: everything in it was committed when it was written.

use kauri_base::{Error, ErrorCode, Result};
use kauri_medium::Directory;
use kauri_replication::reader::Reader;

/// Its name.
pub const FILE: &str = "replica-set.statements";
const CRC_BYTES: usize = 4;

fn failed(why: &str) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("the file {FILE} in the data directory: {why}"))
}

/// Adds a unit to the contents of a file.
pub fn put(to: &mut Vec<u8>, when_ms: i64, unit: &[u8]) {
    to.extend_from_slice(&when_ms.to_le_bytes());
    to.extend_from_slice(&(unit.len() as u32).to_le_bytes());
    to.extend_from_slice(unit);
}

/// Replaces the file. Durable when this returns.
pub fn write(directory: &dyn Directory, mut contents: Vec<u8>) -> Result<()> {
    let crc = crc32c::crc32c(&contents);
    contents.extend_from_slice(&crc.to_le_bytes());
    let written = directory.replace_file(FILE, &contents, "member.checkpoint");
    written.map_err(|error| failed(&error.to_string()))
}

/// The file as it is; `None` if there is none.
pub fn contents(directory: &dyn Directory) -> Result<Option<Vec<u8>>> {
    directory.read_file(FILE).map_err(|error| failed(&error.to_string()))
}

/// Its units with their times; none if there is no file.
pub fn read(directory: &dyn Directory, mut each: impl FnMut(i64, &[u8])) -> Result<()> {
    let Some(bytes) = contents(directory)? else { return Ok(()) };
    let damaged = || {
        failed(
            "it is damaged. Remove the contents of the data directory and start again: the member copies another \
             one's data",
        )
    };
    let (contents, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(damaged)?;
    if crc32c::crc32c(contents) != u32::from_le_bytes(*crc) {
        return Err(damaged());
    }
    let mut from = Reader(contents);
    while !from.0.is_empty() {
        let when = from.long().map_err(|_| damaged())? as i64;
        let length = from.int().map_err(|_| damaged())? as usize;
        each(when, from.take(length).map_err(|_| damaged())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_emulator::{Emulator, EmulatorConfig};

    #[test]
    fn units_are_read_as_they_were_written_and_damage_is_told() {
        let directory = Emulator::new(EmulatorConfig::default());
        let read_all = || {
            let mut all = Vec::new();
            read(&directory, |when, unit| all.push((when, unit.to_vec()))).map(|()| all)
        };
        assert_eq!(read_all().unwrap(), []);
        let mut contents = Vec::new();
        put(&mut contents, 5, b"one");
        put(&mut contents, -6, b"");
        write(&directory, contents).unwrap();
        assert_eq!(read_all().unwrap(), [(5, b"one".to_vec()), (-6, Vec::new())]);
        let mut bytes = directory.read_file(FILE).unwrap().unwrap();
        bytes[9] ^= 1;
        directory.replace_file(FILE, &bytes, "test").unwrap();
        assert!(read_all().unwrap_err().message().contains("it is damaged"));
        directory.replace_file(FILE, b"x", "test").unwrap();
        assert!(read_all().is_err());
    }
}
