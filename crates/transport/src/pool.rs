//! Buffers of one worker: receive buffers of one size, and reply buffers.
//!
//! Idle sessions own no buffer. A session takes one when there is data to read or a reply to write, and returns it.
//! The pool keeps a bounded number of buffers. It counts the buffers in use, so that many suspended requests can be
//! moved into memory of their exact size (`crowded`).

use std::cell::{Cell, RefCell};

/// Size of a receive buffer.
pub(crate) const RECEIVE_BYTES: usize = 64 * 1024;
/// Buffers of each kind that a worker keeps for the next use.
const KEPT_MAX: usize = 16;
/// Buffers of each kind that may be out before requests that wait have to do with less.
const OUT_COMFORTABLE: usize = 64;
/// First capacity of a reply buffer.
const REPLY_BYTES: usize = 16 * 1024;
/// Reply buffers that a worker keeps take so much together at most.
const REPLY_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

pub(crate) struct BufferPool {
    receive: RefCell<Vec<Vec<u8>>>,
    receive_out: Cell<usize>,
    reply: RefCell<Vec<Vec<u8>>>,
    reply_out: Cell<usize>,
}

impl BufferPool {
    pub fn new() -> Self {
        BufferPool {
            receive: RefCell::default(),
            receive_out: Cell::new(0),
            reply: RefCell::default(),
            reply_out: Cell::new(0),
        }
    }

    /// Frees the pooled buffers.
    pub fn let_go(&self) {
        self.receive.take();
        self.reply.take();
    }

    /// An empty buffer of `RECEIVE_BYTES` capacity.
    pub fn take_receive(&self) -> Vec<u8> {
        self.receive_out.set(self.receive_out.get() + 1);
        let kept = self.receive.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(RECEIVE_BYTES))
    }

    pub fn give_receive(&self, mut buffer: Vec<u8>) {
        self.receive_out.set(self.receive_out.get().saturating_sub(1));
        let mut kept = self.receive.borrow_mut();
        // One that has grown is no longer of the size that all expect.
        if kept.len() < KEPT_MAX && buffer.capacity() <= RECEIVE_BYTES {
            buffer.clear();
            kept.push(buffer);
        }
    }

    /// So many buffers are in use that a waiting request should not keep one.
    pub fn crowded(&self) -> bool {
        self.receive_out.get() > OUT_COMFORTABLE
    }

    /// An empty reply buffer with room for `size_hint` bytes.
    pub fn take_reply(&self, size_hint: usize) -> Vec<u8> {
        self.reply_out.set(self.reply_out.get() + 1);
        let mut buffer = self.reply.borrow_mut().pop().unwrap_or_default();
        // While very many replies are in the making, most of them wait: let them grow as needed.
        let many = self.reply_out.get() > OUT_COMFORTABLE;
        buffer.reserve(if many { size_hint } else { size_hint.max(REPLY_BYTES) });
        buffer
    }

    pub fn give_reply(&self, mut buffer: Vec<u8>) {
        self.reply_out.set(self.reply_out.get().saturating_sub(1));
        let mut kept = self.reply.borrow_mut();
        let bytes = buffer.capacity() + kept.iter().map(Vec::capacity).sum::<usize>();
        if kept.len() < KEPT_MAX && bytes <= REPLY_KEPT_BYTES_MAX {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_reply_buffers_take_little_together_and_are_let_go() {
        let pool = BufferPool::new();
        let kept = |pool: &BufferPool| pool.reply.borrow().iter().map(Vec::capacity).sum::<usize>();
        for _ in 0..4 {
            pool.give_reply(Vec::with_capacity(REPLY_KEPT_BYTES_MAX / 2));
        }
        pool.give_reply(Vec::with_capacity(REPLY_KEPT_BYTES_MAX + 1));
        assert_eq!(kept(&pool), REPLY_KEPT_BYTES_MAX);
        pool.let_go();
        assert_eq!(kept(&pool), 0);
    }
}
