//! MongoDB's wire protocol: framing and codecs, without I/O.
//!
//! Where it sits: above `base` only. It knows of a BSON document nothing but its length field; what
//! is inside is the business of the layers above, who must validate it. Readers borrow from the
//! message and never copy; writers append to a buffer of the caller's. No input makes a reader
//! panic, and nothing is allocated by a length that a peer merely claims.

mod header;

pub use header::{HEADER_BYTES, Header, checked_length, claimed_length};
