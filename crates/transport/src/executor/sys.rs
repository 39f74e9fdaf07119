//! Several sends in one system call, by io_uring.
//!
//! Each send is non-blocking (`MSG_DONTWAIT`), so all sends are complete when the call returns. Partial sends are
//! reported as by `send`. The kernel reads the bytes only during [`SendRing::send_all`], which returns only after
//! every send that the kernel accepted has completed.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends in one call; more take several.
const ENTRIES: usize = 64;

/// One send: descriptor and bytes.
pub(crate) type Send<'b> = (BorrowedFd<'b>, &'b [u8]);

pub(crate) struct SendRing {
    ring: IoUring,
}

impl SendRing {
    /// Fails where the kernel has no io_uring, or does not let this process have it.
    pub fn new() -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_coop_taskrun().setup_submit_all();
        let ring = builder
            .build(ENTRIES as u32)
            // Kernels before 6.0 do not know all of these, which only save time.
            .or_else(|_| IoUring::new(ENTRIES as u32))?;
        Ok(SendRing { ring })
    }

    /// Sends of each what goes at once, and answers how much that was, in order. On an error some of it
    /// was not tried, which is `Interrupted` in `results`; the ring is of no use any more then.
    pub fn send_all(
        &mut self,
        sends: &[Send<'_>],
        results: &mut Vec<io::Result<usize>>,
    ) -> io::Result<()> {
        results.clear();
        results.resize_with(sends.len(), || Err(io::ErrorKind::Interrupted.into()));
        for (sends, results) in sends.chunks(ENTRIES).zip(results.chunks_mut(ENTRIES)) {
            self.send_some(sends, results)?;
        }
        Ok(())
    }

    fn send_some(
        &mut self,
        sends: &[Send<'_>],
        results: &mut [io::Result<usize>],
    ) -> io::Result<()> {
        for (place, (fd, bytes)) in sends.iter().enumerate() {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let entry = opcode::Send::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build()
                .user_data(place as u64);
            // SAFETY: descriptor and bytes are borrowed for longer than this function runs, and it
            // returns only when each entry that the kernel has taken is completed; those that it has not
            // taken it never will: an error ends the ring's use.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        }
        let mut completed = 0;
        while completed < sends.len() {
            let asked = self.ring.submit_and_wait(sends.len() - completed);
            for entry in self.ring.completion() {
                completed += 1;
                if let Some(result) = results.get_mut(entry.user_data() as usize) {
                    *result = match usize::try_from(entry.result()) {
                        Ok(sent) => Ok(sent),
                        Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
                    };
                }
            }
            // Those under way have to be waited for, whatever has happened.
            let under_way = sends.len() - completed - self.ring.submission().len();
            match asked {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if under_way == 0 => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn each_socket_gets_what_is_for_it_and_takes_what_it_can() {
        let mut ring = SendRing::new().unwrap();
        // More than one call's, and of two sockets one is full and one has gone.
        let pairs: Vec<_> = (0..ENTRIES + 9).map(|_| UnixStream::pair().unwrap()).collect();
        let (full, gone) = (3, ENTRIES + 4);
        let filling = vec![7; 1 << 20];
        pairs[full].0.set_nonblocking(true).unwrap();
        let taken = crate::sys::send(pairs[full].0.as_fd(), &filling).unwrap();
        assert!(taken < filling.len());
        pairs[gone].1.shutdown(std::net::Shutdown::Both).unwrap();
        let messages: Vec<_> = (0..pairs.len()).map(|n| vec![n as u8; n + 1]).collect();
        for round in 0..3 {
            let sends: Vec<_> =
                pairs.iter().zip(&messages).map(|((a, _), m)| (a.as_fd(), &m[..])).collect();
            let mut results = Vec::new();
            ring.send_all(&sends, &mut results).unwrap();
            assert_eq!(results.len(), pairs.len());
            for (n, result) in results.into_iter().enumerate() {
                match result {
                    Err(error) if n == full => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    Err(error) if n == gone => assert_eq!(error.kind(), ErrorKind::BrokenPipe),
                    sent => assert_eq!(sent.unwrap(), n + 1, "round {round}"),
                }
            }
        }
        for (n, (_, mut peer)) in
            pairs.into_iter().enumerate().filter(|(n, _)| ![full, gone].contains(n))
        {
            let mut received = vec![0; 3 * (n + 1)];
            peer.read_exact(&mut received).unwrap();
            assert!(received.iter().all(|byte| *byte == n as u8), "{n}");
        }
        ring.send_all(&[], &mut Vec::new()).unwrap();
    }

    #[test]
    fn what_a_socket_takes_in_part_is_told() {
        let mut ring = SendRing::new().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let long = vec![1; 64 << 20];
        let mut results = Vec::new();
        ring.send_all(&[(ours.as_fd(), &long)], &mut results).unwrap();
        let sent = *results[0].as_ref().unwrap();
        assert!(sent > 0 && sent < long.len(), "{sent}");
    }
}
