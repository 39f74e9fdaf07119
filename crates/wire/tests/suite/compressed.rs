//! OP_COMPRESSED: round trips, wrong sizes, damaged contents.

use kauri_base::ErrorCode;
use kauri_wire::{Compressed, Compressor, Message, MsgWriter, compress};

const ALL: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

/// An OP_MSG whose body is about `size` bytes long.
fn message(size: usize, byte: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut out = Vec::new();
    let writer = MsgWriter::begin(&mut out, 3, 4, 0);
    out.extend_from_slice(&((size + 5) as i32).to_le_bytes());
    out.extend((0..size).map(byte));
    out.push(0);
    writer.finish(&mut out).unwrap();
    out
}

fn noise(i: usize) -> u8 {
    ((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn decompress(bytes: &[u8]) -> kauri_base::Result<Vec<u8>> {
    let mut out = b"what was there before".to_vec();
    Compressed::parse(bytes)?.decompress(&mut out)?;
    Ok(out)
}

#[test]
fn every_compressor_round_trips_every_size() {
    for compressor in ALL {
        for size in [0, 1, 100, 70_000, 3_000_000] {
            for message in [message(size, |_| b'a'), message(size, noise)] {
                let mut bytes = b"before".to_vec();
                compress(&message, compressor, &mut bytes).unwrap();
                let bytes = bytes.split_off(6);
                let (header, Message::Compressed(parsed)) = Message::parse(&bytes).unwrap() else {
                    panic!("not an OP_COMPRESSED")
                };
                assert_eq!((header.request_id, header.response_to), (3, 4));
                assert_eq!(parsed.compressor, compressor);
                assert!(decompress(&bytes).unwrap() == message, "{compressor:?} {size}");
                if size == 70_000 && compressor != Compressor::Noop && message[30] == b'a' {
                    assert!(bytes.len() < message.len() / 10, "{compressor:?} compresses");
                }
            }
        }
    }
}

#[test]
fn contents_of_a_wrong_size_are_refused() {
    let message = message(10_000, |i| (i / 100) as u8);
    for compressor in ALL {
        let mut bytes = Vec::new();
        compress(&message, compressor, &mut bytes).unwrap();
        let right = i32::from_le_bytes(bytes[20..24].try_into().unwrap());
        for wrong in [0, 1, right - 1, right + 1, right * 30, 47_999_984] {
            bytes[20..24].copy_from_slice(&wrong.to_le_bytes());
            let error = decompress(&bytes).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadValue, "{compressor:?} {wrong}");
        }
    }
}

#[test]
fn sizes_beyond_the_limit_are_refused_before_decompression() {
    let mut bytes = Vec::new();
    compress(&message(10, noise), Compressor::Zstd, &mut bytes).unwrap();
    for wrong in [-1, i32::MIN, i32::MAX, 47_999_985] {
        bytes[20..24].copy_from_slice(&wrong.to_le_bytes());
        assert_eq!(Compressed::parse(&bytes).unwrap_err().code(), ErrorCode::BadValue, "{wrong}");
    }
}

#[test]
fn invalid_headers_are_refused() {
    let mut bytes = Vec::new();
    compress(&message(10, noise), Compressor::Snappy, &mut bytes).unwrap();
    for length in 0..25 {
        let error = Compressed::parse(&bytes[..length]).unwrap_err();
        assert_eq!(error.message(), "Invalid compressed message header");
    }
    let mut unknown = bytes.clone();
    unknown[24] = 4;
    assert_eq!(Compressed::parse(&unknown).unwrap_err().code(), ErrorCode::InternalError);
    let mut nested = bytes.clone();
    nested[16..20].copy_from_slice(&2012i32.to_le_bytes());
    assert_eq!(Compressed::parse(&nested).unwrap_err().code(), ErrorCode::ProtocolError);
}

#[test]
fn damaged_contents_never_panic() {
    for compressor in ALL {
        let message = message(2_000, |i| noise(i / 7));
        let mut bytes = Vec::new();
        compress(&message, compressor, &mut bytes).unwrap();
        for at in 25..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(out) = decompress(&damaged) {
                assert_eq!(out.len(), message.len(), "{compressor:?} at {at}");
            }
            assert!(decompress(&bytes[..at]).is_err(), "{compressor:?} cut at {at}");
        }
    }
}

#[test]
fn a_small_message_cannot_claim_a_large_allocation() {
    // Thirty bytes of snappy that claim 40 MB: rejected by the ratio alone.
    let mut bytes = Vec::new();
    compress(&message(10, noise), Compressor::Snappy, &mut bytes).unwrap();
    bytes.truncate(25);
    bytes[20..24].copy_from_slice(&40_000_000i32.to_le_bytes());
    bytes.extend_from_slice(&[0x80, 0xB4, 0x89, 0x13, 0, 0]);
    let error = decompress(&bytes).unwrap_err();
    assert_eq!(error.message(), "Compressed message was invalid or corrupted");
}

#[test]
fn compressor_names_match_the_handshake() {
    for compressor in ALL {
        assert_eq!(Compressor::from_id(compressor.id()), Some(compressor));
    }
    assert_eq!(Compressor::from_name("zstd"), Some(Compressor::Zstd));
    assert_eq!(Compressor::from_name("noop"), None);
    assert_eq!(Compressor::from_name("lz4"), None);
    assert_eq!(Compressor::from_id(4), None);
}
