//! OP_COMPRESSED: a message whose contents are compressed.
//!
//! ```text
//! header (16) | originalOpcode i32 | uncompressedSize i32 | compressorId u8 | compressed contents
//! ```
//!
//! The claimed size is limited by the message limit and by the maximum ratio of the compressor. Memory is allocated
//! only as contents are decompressed.

use crate::header::{HEADER_BYTES, Header};
use crate::opcode;
use crate::reader::Reader;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use kauri_base::limits::MESSAGE_BYTES_MAX;
use kauri_base::{Error, ErrorCode, Result, bail};
use std::io::Cursor;

/// Bytes before the compressed contents.
const PREFIX_BYTES: usize = HEADER_BYTES + 4 + 4 + 1;
/// No element of a snappy stream makes more than 64 bytes out of fewer than 3, or 4 out of 2.
const SNAPPY_RATIO_MAX: usize = 32;
/// Output is grown by so much at a time while it is inflated.
const INFLATE_STEP_BYTES: usize = 64 * 1024;
/// The levels that MongoDB uses: each library's default.
const ZSTD_LEVEL: i32 = 3;

/// A way to compress, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// Contents as they are; for tests.
    Noop,
    /// Snappy's raw format.
    Snappy,
    /// Zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// The compressors that a handshake may choose, in order of preference.
    pub const NEGOTIABLE: [Compressor; 3] =
        [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

    /// The compressor of a number on the wire.
    pub fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    /// Its number on the wire.
    pub fn id(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }

    /// The compressor of a name in a handshake's `compression` list.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NEGOTIABLE.into_iter().find(|compressor| compressor.name() == name)
    }

    /// Its name in a handshake and in `serverStatus`.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }
}

/// A parsed OP_COMPRESSED, borrowing from the message.
#[derive(Clone, Copy, Debug)]
pub struct Compressed<'a> {
    header: Header,
    original_opcode: i32,
    uncompressed_size: usize,
    /// The compressor of the contents.
    pub compressor: Compressor,
    contents: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Parses a whole message. The caller has seen to it that the header says OP_COMPRESSED.
    pub fn parse(message: &'a [u8]) -> Result<Self> {
        let header = Header::parse(message);
        let (Some(header), true) = (header, message.len() >= PREFIX_BYTES) else {
            bail!(BadValue, "Invalid compressed message header");
        };
        let mut reader = Reader::new(message);
        reader.bytes(HEADER_BYTES)?;
        let original_opcode = reader.i32()?;
        let claimed = reader.i32()?;
        let Some(compressor) = Compressor::from_id(reader.u8()?) else {
            bail!(InternalError, "Compression algorithm specified in message is not available");
        };
        let Ok(uncompressed_size) = usize::try_from(claimed) else {
            bail!(BadValue, "Decompressed message would be negative in size");
        };
        if uncompressed_size > MESSAGE_BYTES_MAX - HEADER_BYTES {
            bail!(BadValue, "Decompressed message would be larger than maximum message size");
        }
        if original_opcode == opcode::COMPRESSED {
            bail!(ProtocolError, "A compressed message contains a compressed message");
        }
        let contents = reader.rest();
        Ok(Compressed { header, original_opcode, uncompressed_size, compressor, contents })
    }

    /// Writes the original message, header and all, over what `out` holds.
    pub fn decompress(&self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let length = (HEADER_BYTES + self.uncompressed_size) as i32;
        let header = Header { length, op_code: self.original_opcode, ..self.header };
        out.extend_from_slice(&header.to_bytes());
        match self.compressor {
            Compressor::Noop => {
                self.expect_size(self.contents.len())?;
                out.extend_from_slice(self.contents);
            }
            Compressor::Snappy => self.unsnap(out)?,
            Compressor::Zlib => self.inflate(out)?,
            Compressor::Zstd => self.unzstd(out)?,
        }
        self.expect_size(out.len() - HEADER_BYTES)
    }

    fn expect_size(&self, size: usize) -> Result<()> {
        if size < self.uncompressed_size {
            bail!(BadValue, "Decompressing message returned less data than expected");
        }
        if size > self.uncompressed_size {
            bail!(BadValue, "Decompressing message returned more data than expected");
        }
        Ok(())
    }

    fn unsnap(&self, out: &mut Vec<u8>) -> Result<()> {
        let claimed = snap::raw::decompress_len(self.contents).map_err(|e| invalid("snappy", e))?;
        self.expect_size(claimed)?;
        if claimed > self.contents.len() * SNAPPY_RATIO_MAX {
            bail!(BadValue, "Compressed message was invalid or corrupted");
        }
        out.resize(HEADER_BYTES + claimed, 0);
        let output = out.get_mut(HEADER_BYTES..).unwrap_or_default();
        snap::raw::Decoder::new()
            .decompress(self.contents, output)
            .map_err(|e| invalid("snappy", e))?;
        Ok(())
    }

    fn inflate(&self, out: &mut Vec<u8>) -> Result<()> {
        let end = HEADER_BYTES + self.uncompressed_size;
        let mut stream = Decompress::new(true);
        loop {
            // One byte more than is expected, so that a stream that goes on is noticed.
            let step = (end + 1 - out.len()).min(INFLATE_STEP_BYTES);
            out.reserve(step);
            let (read, had) = (stream.total_in() as usize, out.len());
            let input = self.contents.get(read..).unwrap_or_default();
            let status = stream
                .decompress_vec(input, out, FlushDecompress::None)
                .map_err(|e| invalid("zlib", e))?;
            if status == Status::StreamEnd || out.len() > end {
                return Ok(());
            }
            if stream.total_in() as usize == read && out.len() == had {
                return Err(invalid("zlib", "stream ends early"));
            }
        }
    }

    fn unzstd(&self, out: &mut Vec<u8>) -> Result<()> {
        // Capacity that is not written to costs address space only.
        out.reserve_exact(self.uncompressed_size);
        let mut output = Cursor::new(std::mem::take(out));
        output.set_position(HEADER_BYTES as u64);
        let result = zstd::bulk::Decompressor::new()
            .and_then(|mut zstd| zstd.decompress_to_buffer(self.contents, &mut output));
        *out = output.into_inner();
        result.map_err(|e| invalid("zstd", e))?;
        Ok(())
    }
}

fn invalid(compressor: &str, error: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorCode::BadValue,
        format!("Compressed message was invalid or corrupted: {compressor}: {error}"),
    )
}

/// Appends `message`, a whole message of another kind, to `out` in compressed form.
pub fn compress(message: &[u8], compressor: Compressor, out: &mut Vec<u8>) -> Result<()> {
    let Some((header, contents)) = Header::parse(message).zip(message.get(HEADER_BYTES..)) else {
        bail!(ProtocolError, "A message of {} bytes has no header", message.len());
    };
    let start = out.len();
    let outer = Header { length: 0, op_code: opcode::COMPRESSED, ..header };
    out.extend_from_slice(&outer.to_bytes());
    out.extend_from_slice(&header.op_code.to_le_bytes());
    out.extend_from_slice(&(contents.len() as i32).to_le_bytes());
    out.push(compressor.id());
    let compressed = match compressor {
        Compressor::Noop => {
            out.extend_from_slice(contents);
            Ok(())
        }
        Compressor::Snappy => append_snappy(contents, out),
        Compressor::Zlib => append_zlib(contents, out),
        Compressor::Zstd => append_zstd(contents, out),
    };
    let length = out.len() - start;
    match (compressed, out.get_mut(start..start + 4)) {
        (Ok(()), Some(field)) if length <= MESSAGE_BYTES_MAX => {
            field.copy_from_slice(&(length as i32).to_le_bytes());
            Ok(())
        }
        (result, _) => {
            out.truncate(start);
            result?;
            bail!(BadValue, "Compressed message would be larger than maximum message size");
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::BadValue, format!("Could not compress message: {error}"))
}

fn append_snappy(contents: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let at = out.len();
    out.resize(at + snap::raw::max_compress_len(contents.len()), 0);
    let output = out.get_mut(at..).unwrap_or_default();
    let written = snap::raw::Encoder::new().compress(contents, output).map_err(failed)?;
    out.truncate(at + written);
    Ok(())
}

fn append_zlib(contents: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut stream = Compress::new(Compression::default(), true);
    loop {
        let read = stream.total_in() as usize;
        out.reserve(INFLATE_STEP_BYTES.min(contents.len() + 64));
        let input = contents.get(read..).unwrap_or_default();
        let status = stream.compress_vec(input, out, FlushCompress::Finish).map_err(failed)?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}

fn append_zstd(contents: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let at = out.len();
    out.reserve(zstd::zstd_safe::compress_bound(contents.len()));
    let mut output = Cursor::new(std::mem::take(out));
    output.set_position(at as u64);
    let result = zstd::bulk::Compressor::new(ZSTD_LEVEL)
        .and_then(|mut zstd| zstd.compress_to_buffer(contents, &mut output));
    *out = output.into_inner();
    result.map_err(failed)?;
    Ok(())
}
