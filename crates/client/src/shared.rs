//! Blocking transfers through rings: polls for a while, then sleeps.

use crate::deadline::Deadline;
use crate::stream::{Stream, reserve_early};
use crate::{ClientError, Result};
use kauri_transport::rdma::DialedFabric;
use kauri_transport::ring::{Fabric, LARGE_BYTES, PROBE_BYTES, RingEnd, RingError};
use kauri_transport::shared_memory::{SharedFabric, sys};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Maximum time of a server to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that the end of a connection waits for sent bytes.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum wait for a server that has yet to read some of the bytes.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a polling client checks that the server lives.
const ALIVE_EACH: Duration = Duration::from_millis(1);
/// Polls between two reads of the clock.
const LOOKS_A_CLOCK: u32 = 64;

/// A client's requirements of a fabric, besides transfers.
pub trait Waits: Fabric {
    /// Whether something has happened since the last look.
    fn has_arrivals(&self) -> bool;
    /// From now on the bell rings at the next event. False: an event has happened, so do not sleep.
    fn fall_asleep(&self) -> bool;
    /// Takes that back.
    fn wake_up(&self);
    /// Readable once it was rung.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
    /// Forgets that it was rung.
    fn reset_bell(&self);
    /// Waits until the server has the sent bytes, if this side keeps them until then.
    fn flush(&mut self) {}
}

impl Waits for SharedFabric {
    fn has_arrivals(&self) -> bool {
        self.has_immediate()
    }

    fn fall_asleep(&self) -> bool {
        self.fall_asleep()
    }

    fn wake_up(&self) {
        self.wake_up();
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell().as_fd())
    }

    fn reset_bell(&self) {
        self.bell().reset();
    }
}

impl Waits for DialedFabric {
    fn has_arrivals(&self) -> bool {
        self.has_arrivals()
    }

    fn fall_asleep(&self) -> bool {
        self.fall_asleep()
    }

    fn wake_up(&self) {}

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell()
    }

    fn reset_bell(&self) {
        self.reset_bell();
    }

    fn flush(&mut self) {
        self.flush(FLUSH_TIMEOUT);
    }
}

/// The client's end of a ring, and the socket that shows that the server lives.
#[derive(Debug)]
pub struct RingWay<F> {
    end: RingEnd<F>,
    spin: Duration,
    /// Bytes received while waiting for credit.
    early: Vec<u8>,
}

/// The event that a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Bytes,
    /// Credit, or what the fabric had no room for.
    Credit {
        blocked: bool,
    },
    Probe([u8; PROBE_BYTES as usize]),
}

fn broken(error: RingError) -> ClientError {
    match error {
        RingError::Fabric(why) => io::Error::new(io::ErrorKind::ConnectionAborted, why).into(),
        lie => ClientError::Protocol(lie.to_string()),
    }
}

impl<F: Waits> RingWay<F> {
    /// Verifies both directions and leaves the stream. On an error the stream is unchanged.
    pub fn switch(
        mut end: RingEnd<F>,
        probe: [u8; PROBE_BYTES as usize],
        stream: &Stream,
        spin: Duration,
    ) -> Result<Self> {
        end.probe(probe);
        let deadline = Deadline::after(Some(PROBE_TIMEOUT)).or_earlier(stream.end());
        let mut way = RingWay { end, spin, early: Vec::new() };
        if !way.look(For::Probe(probe))? {
            way.wait_until(deadline, For::Probe(probe), stream)?;
        }
        Ok(way)
    }

    /// Waits until the server has the sent bytes, if this side keeps them until then.
    pub fn flush(&mut self, stream: &Stream) {
        self.end.fabric().flush();
        if self.end.owns_pieces() && stream.end_sending().is_ok() {
            // The server may still have to fetch some. It ends the session when it has.
            let _ = sys::wait_readable(stream.fd(), stream.fd(), Some(FETCH_TIMEOUT));
        }
    }

    /// Frees the memory of bytes received while waiting for credit, if all of them were consumed.
    pub fn trim(&mut self) {
        if self.early.is_empty() {
            self.early = Vec::new();
        }
    }

    /// Whether the fabric is known to have failed.
    pub fn has_failed(&self) -> bool {
        self.end.failure().is_some()
    }

    /// Whether nothing has come that was not received.
    pub fn is_quiet(&mut self) -> bool {
        self.early.is_empty() && self.end.look().is_ok_and(|event| !event.readable)
    }

    /// Appends received bytes, or waits for some.
    pub fn receive(&mut self, buffer: &mut Vec<u8>, stream: &Stream) -> Result<()> {
        if !self.early.is_empty() {
            buffer.append(&mut self.early);
            return Ok(());
        }
        self.wait(For::Bytes, stream)?;
        buffer.reserve(1);
        self.end.receive(buffer);
        Ok(())
    }

    /// Announces a message of this size in either direction.
    pub fn expect(&mut self, bytes: usize) {
        if bytes >= LARGE_BYTES {
            self.end.offer();
        }
    }

    /// Sends all bytes. Bytes that arrive meanwhile are kept, so that a server that waits for this client
    /// continues.
    pub fn send(&mut self, bytes: &[u8], stream: &Stream) -> Result<()> {
        self.expect(bytes.len());
        let (mut rest, mut waits) = (bytes, false);
        loop {
            // To be asked before it is tried: else what changes in between would be waited for.
            let blocked = waits && !self.end.fabric().has_room(true);
            let sent = self.end.send(rest, &[]);
            rest = rest.get(sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            if waits && sent == 0 {
                self.wait(For::Credit { blocked }, stream)?;
            }
            waits = sent == 0;
        }
    }

    /// Whether it has come, after a look.
    fn look(&mut self, what: For) -> Result<bool> {
        let event = self.end.look().map_err(broken)?;
        match what {
            For::Bytes => Ok(event.readable),
            For::Credit { blocked } => {
                // All of it: what stays would earn the server no credit, and nothing would tell of it again.
                while self.end.is_readable() {
                    reserve_early(&mut self.early, 64 << 10)?;
                    self.end.receive(&mut self.early);
                }
                Ok(event.credit || (blocked && self.end.fabric().has_room(true)))
            }
            For::Probe(probe) => match event.probe {
                Some(got) if got == probe => Ok(true),
                Some(_) => Err(broken(RingError::Probe)),
                None => Ok(false),
            },
        }
    }

    /// Waits as long as on the stream.
    fn wait(&mut self, what: For, stream: &Stream) -> Result<()> {
        // Whatever this finds out, a look at what was there before comes first.
        self.end.fabric().has_arrivals();
        match self.look(what)? {
            true => Ok(()),
            false => self.wait_until(stream.deadline(), what, stream),
        }
    }

    fn wait_until(&mut self, deadline: Deadline, what: For, stream: &Stream) -> Result<()> {
        if self.looks(what)? {
            return Ok(());
        }
        let (began, mut checked) = (Instant::now(), Duration::ZERO);
        loop {
            let waited = began.elapsed();
            let left = deadline.left()?;
            if waited >= self.spin || waited >= checked + ALIVE_EACH {
                checked = waited;
                let left = if waited < self.spin { Some(Duration::ZERO) } else { left };
                self.sleep(left, stream)?;
            }
            if self.look(what)? || self.looks(what)? {
                return Ok(());
            }
            // Where there are more threads than processors somebody else, such as the server, goes on meanwhile.
            std::thread::yield_now();
        }
    }

    /// Polls as often as is possible without reading the clock. Whether the event has happened.
    fn looks(&mut self, what: For) -> Result<bool> {
        for _ in 0..LOOKS_A_CLOCK {
            if self.end.fabric().has_arrivals() && self.look(what)? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Sleeps until something comes, the server ends, or the time is over.
    fn sleep(&mut self, left: Option<Duration>, stream: &Stream) -> Result<()> {
        let fabric = self.end.fabric();
        if !fabric.fall_asleep() {
            return Ok(());
        }
        let Some(bell) = fabric.bell() else { return Ok(()) };
        let waited = sys::wait_readable(bell, stream.fd(), left);
        fabric.wake_up();
        let (event, ended) = waited?;
        if event {
            fabric.reset_bell();
        }
        if ended && !fabric.has_arrivals() {
            // Nothing comes on the stream any more but its end.
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(())
    }
}
