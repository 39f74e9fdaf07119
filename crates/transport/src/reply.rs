//! The buffer of a reply, leased from the session for one message.
//!
//! Bytes are appended to [`ReplyBuf::buffer`]. A large payload elsewhere in memory (a document in the storage
//! engine's memory) is offered with [`ReplyBuf::splice`]. Then the buffered bytes and the payload go to the
//! transport at once, and only the part that the transport does not accept is copied into the buffer.
//!
//! Invariants: bytes are sent in order, first those that are no longer in `bytes` (`departed`), then
//! `bytes[..start]`. After the first byte was sent, the message cannot be taken back. Its length must then match
//! its header; `poll_sink` checks that, or the session ends.

use kauri_base::work::MemoryAccount;
use kauri_wire::{HEADER_BYTES, claimed_length};
use std::sync::Arc;

/// Payloads smaller than this are copied: that is cheaper than a system call of their own.
pub const SPLICE_BYTES_MIN: usize = 64 * 1024;

/// A transport that can take bytes of a reply before the reply is complete.
pub trait SendNow: Send + Sync {
    /// Sends as much of `first` and then `second` as is possible without waiting. Returns the number of bytes; 0
    /// also if the connection is broken, which the next `poll_sink` reports.
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize;
}

/// A reply that is being written.
pub struct ReplyBuf {
    bytes: Vec<u8>,
    start: usize,
    departed: usize,
    /// The message's length by its header, noted when its first bytes left.
    announced: Option<usize>,
    early: Option<Arc<dyn SendNow>>,
    /// It may be sent together with others, after a short delay.
    together: bool,
    /// The memory account until it is sent.
    account: Option<Arc<MemoryAccount>>,
}

impl ReplyBuf {
    /// An empty reply over `memory`; with `early` if the transport takes parts of a message.
    pub fn new(mut memory: Vec<u8>, early: Option<Arc<dyn SendNow>>) -> Self {
        memory.clear();
        ReplyBuf {
            bytes: memory,
            start: 0,
            departed: 0,
            announced: None,
            early,
            together: true,
            account: None,
        }
    }

    /// A message that is written already.
    pub(crate) fn written(message: Vec<u8>) -> Self {
        let mut written = ReplyBuf::new(Vec::new(), None);
        written.bytes = message;
        written
    }

    /// Keeps this account, in which its memory was counted, until it is sent.
    pub fn count_in(&mut self, account: Arc<MemoryAccount>) {
        self.account = Some(account);
    }

    /// The buffer to append to. Existing bytes may be patched, but not shortened or reordered. After a `splice`
    /// they are gone: their lengths must have been right before.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether a part of this message has left already, so that it can no longer be replaced by an
    /// error reply.
    pub fn is_committed(&self) -> bool {
        self.announced.is_some()
    }

    /// Discards the written bytes, for another reply. False if it is too late for that.
    #[must_use]
    pub fn clear(&mut self) -> bool {
        if self.is_committed() {
            return false;
        }
        self.bytes.clear();
        true
    }

    /// Appends `payload`. For an early send, the message's header with the final length must be in the buffer
    /// before.
    ///
    /// `payload` is read only during this call: the part that the peer accepts at once is sent from its place, the
    /// rest is copied.
    pub fn splice(&mut self, payload: &[u8]) {
        let taken = match &self.early {
            Some(early) if payload.len() >= SPLICE_BYTES_MIN => {
                let announced = self.header_length();
                if announced.is_some_and(|length| length >= self.total_len() + payload.len()) {
                    self.announced = announced;
                    early.send_now(self.unsent(), payload)
                } else {
                    0
                }
            }
            _ => 0,
        };
        let buffered = self.unsent().len();
        if taken < buffered {
            self.start += taken;
        } else {
            self.departed += self.bytes.len() + taken - buffered;
            self.bytes.clear();
            self.start = 0;
        }
        let rest = payload.get(taken.saturating_sub(buffered)..).unwrap_or_default();
        if self.is_committed() && !rest.is_empty() {
            // The peer takes no more at present: no use in asking again before `poll_sink`.
            self.early = None;
        }
        self.bytes.extend_from_slice(rest);
    }

    fn header_length(&self) -> Option<usize> {
        if self.is_committed() {
            return self.announced;
        }
        if self.bytes.len() < HEADER_BYTES {
            return None;
        }
        usize::try_from(claimed_length(&self.bytes)?).ok()
    }

    /// Length of the whole reply so far, including sent bytes.
    pub fn total_len(&self) -> usize {
        self.departed + self.bytes.len()
    }

    /// For transports: whether the reply is one message of the length that its header says.
    pub fn is_whole(&self) -> bool {
        self.header_length() == Some(self.total_len())
    }

    /// For transports: the unsent bytes.
    pub fn unsent(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// For transports: `count` more bytes of `unsent` have left.
    pub fn note_sent(&mut self, count: usize) {
        self.announced = self.header_length();
        self.start = (self.start + count).min(self.bytes.len());
    }

    /// For transports: whether it may be sent together with others that become ready at the same time, a
    /// moment later.
    pub fn goes_together(&self) -> bool {
        self.together
    }

    /// For transports: the memory, and the start of the unsent bytes, until [`ReplyBuf::restore`]. The rest is then
    /// sent separately.
    pub fn lend(&mut self) -> (Vec<u8>, usize) {
        self.together = false;
        (std::mem::take(&mut self.bytes), self.start)
    }

    /// For transports: returns the memory of [`ReplyBuf::lend`].
    pub fn restore(&mut self, memory: Vec<u8>) {
        self.bytes = memory;
    }

    /// For transports: takes the memory back, the reply being sent or not wanted.
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Takes so many bytes at each call, and keeps them.
    struct Taker {
        appetite: Mutex<Vec<usize>>,
        got: Mutex<Vec<u8>>,
    }

    impl SendNow for Taker {
        fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
            let all = [first, second].concat();
            let count = self.appetite.lock().unwrap().pop().unwrap_or(0).min(all.len());
            self.got.lock().unwrap().extend_from_slice(&all[..count]);
            count
        }
    }

    fn message(parts: &[&[u8]]) -> Vec<u8> {
        let length = HEADER_BYTES + parts.iter().map(|p| p.len()).sum::<usize>();
        let mut bytes = (length as i32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&[7; 12]);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    #[test]
    fn whatever_the_socket_takes_the_bytes_leave_once_and_in_order() {
        let big: Vec<u8> = (0..SPLICE_BYTES_MIN * 2).map(|i| (i % 251) as u8).collect();
        let whole = message(&[b"head", &big, b"mid", &big, b"tail"]);
        for first in [0, 1, 15, 16, 20, 21, 5000, 16 + 4 + big.len(), usize::MAX] {
            for second in [0, 2, 3, 4, 70_000, usize::MAX] {
                let appetite = Mutex::new(vec![second, first]);
                let taker = Arc::new(Taker { appetite, got: Mutex::default() });
                let mut reply = ReplyBuf::new(Vec::new(), Some(taker.clone()));
                reply.buffer().extend_from_slice(&whole[..20]);
                reply.splice(&big);
                reply.buffer().extend_from_slice(b"mid");
                reply.splice(&big);
                reply.buffer().extend_from_slice(b"tail");
                assert_eq!(reply.total_len(), whole.len());
                assert!(reply.is_whole());
                let mut got = taker.got.lock().unwrap().clone();
                assert!(reply.is_committed());
                got.extend_from_slice(reply.unsent());
                assert!(got == whole, "first {first} second {second}");
            }
        }
    }

    #[test]
    fn nothing_leaves_without_a_header_that_announces_it() {
        let big = vec![1; SPLICE_BYTES_MIN];
        let mut too_short = message(&[&big]);
        too_short[..4].copy_from_slice(&(big.len() as i32).to_le_bytes());
        for prefix in [&b""[..], &[0; 15], &too_short[..16]] {
            let taker = Arc::new(Taker { appetite: Mutex::new(vec![9]), got: Mutex::default() });
            let mut reply = ReplyBuf::new(Vec::new(), Some(taker.clone()));
            reply.buffer().extend_from_slice(prefix);
            reply.splice(&big);
            assert!(taker.got.lock().unwrap().is_empty());
            assert!(!reply.is_committed() && !reply.is_whole());
            assert!(reply.clear());
        }
    }

    #[test]
    fn a_reply_that_has_begun_to_leave_cannot_be_replaced() {
        let big = vec![1; SPLICE_BYTES_MIN];
        let taker = Arc::new(Taker { appetite: Mutex::new(vec![100]), got: Mutex::default() });
        let mut reply = ReplyBuf::new(Vec::new(), Some(taker));
        reply.buffer().extend_from_slice(&message(&[&big, b"x"])[..16]);
        reply.splice(&big);
        assert!(!reply.clear());
        assert!(!reply.is_whole(), "one byte is missing");
        reply.buffer().push(b'x');
        assert!(reply.is_whole());
    }
}
