//! The system calls that std lacks, each behind a safe function: epoll, eventfd, a listening socket with its
//! options, receive and send without a timeout, the monotonic clock.
//!
//! Position: at the bottom of this crate; the only place with unsafe code except `shared_memory::sys`. Functions
//! take and return std's owned or borrowed descriptors, so no call can use a closed descriptor.
#![allow(unsafe_code)]

use kauri_base::virtual_time;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Connections that wait for `accept`, as many as the kernel's own limit lets wait.
const LISTEN_BACKLOG: libc::c_int = 4096;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Nanoseconds of the monotonic clock, or of the thread's simulated world.
pub fn monotonic_ns() -> u64 {
    virtual_time::now_ns().unwrap_or_else(|| clock_ns(libc::CLOCK_MONOTONIC))
}

/// Maximum lag of [`monotonic_coarse_ns`]: some of the kernel's ticks at their slowest, one of which may be late.
pub const COARSE_NS_MAX: u64 = 50_000_000;

/// The same as of the kernel's last tick, for a fraction of the time.
pub fn monotonic_coarse_ns() -> u64 {
    virtual_time::now_ns().unwrap_or_else(|| clock_ns(libc::CLOCK_MONOTONIC_COARSE))
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, which is all that the call writes to.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// An event of epoll on one descriptor.
#[derive(Clone, Copy)]
pub struct Event {
    /// The number given at registration.
    pub key: u64,
    /// There is something to read, or the end of the stream.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has closed (at least its sending half), or the connection is broken.
    pub closed: bool,
}

/// The kernel's list of descriptors to watch.
pub struct Epoll {
    fd: OwnedFd,
}

/// Room for the events of one wait.
pub struct EventList {
    raw: Vec<libc::epoll_event>,
    filled: usize,
}

impl EventList {
    /// Room for `capacity` events a wait.
    pub fn new(capacity: usize) -> Self {
        EventList { raw: vec![libc::epoll_event { events: 0, u64: 0 }; capacity], filled: 0 }
    }

    /// Number of events of the last wait.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last wait gave none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.raw.iter().take(self.filled).map(|raw| {
            let bits = raw.events;
            let has = |mask: libc::c_int| bits & mask as u32 != 0;
            Event {
                key: raw.u64,
                readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                writable: has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR),
                closed: has(libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
            }
        })
    }
}

impl Epoll {
    /// An empty list.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(Epoll { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Reports each change of `fd` once (edge-triggered): readable, writable, closed by the peer.
    pub fn add_stream(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.add(fd, key, interest as u32)
    }

    /// Reports `fd` as long as it is readable (level-triggered).
    pub fn add_readable(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        self.add(fd, key, libc::EPOLLIN as u32)
    }

    fn add(&self, fd: BorrowedFd<'_>, key: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: both descriptors are open while they are borrowed; the event is live.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        })?;
        Ok(())
    }

    /// Forgets a descriptor that others may hold open.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open while they are borrowed; no event is read.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Waits until something happens or `timeout` is over; `None` waits for ever.
    pub fn wait(&self, events: &mut EventList, timeout: Option<Duration>) -> io::Result<()> {
        events.filled = 0;
        // Rounded up: a wait that ends before a timer is due would only be repeated.
        let timeout_ms = match timeout {
            None => -1,
            Some(t) => t.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as libc::c_int,
        };
        // SAFETY: the kernel writes at most as many events as the vector holds.
        let count = check(unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.raw.as_mut_ptr(),
                events.raw.len() as libc::c_int,
                timeout_ms,
            )
        });
        match count {
            Ok(count) => events.filled = count as usize,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// Wakes a thread that waits in epoll.
#[derive(Debug)]
pub struct EventFd {
    file: std::fs::File,
}

impl EventFd {
    /// A counter at zero.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(EventFd { file: unsafe { OwnedFd::from_raw_fd(fd) }.into() })
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // It fails only if the counter is full, and then it is readable already.
        let _ = io::Write::write(&mut &self.file, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next signal.
    pub fn reset(&self) {
        // It fails only if there was no signal.
        let _ = io::Read::read(&mut &self.file, &mut [0; 8]);
    }

    /// For registration with epoll.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }
}

impl From<OwnedFd> for EventFd {
    /// An event that another process has made.
    fn from(fd: OwnedFd) -> Self {
        EventFd { file: fd.into() }
    }
}

/// Whether a byte is there to be received (1), or the end of the stream (0). Never waits.
pub fn peek(fd: BorrowedFd<'_>) -> io::Result<usize> {
    receive_as(fd, &mut [0], libc::MSG_PEEK)
}

/// Receives available bytes. Never waits.
pub fn receive_now(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    receive_as(fd, bytes, 0)
}

fn receive_as(fd: BorrowedFd<'_>, bytes: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes at most as many bytes as the slice has.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) })
}

/// Receives into the part of `buffer` that lies between its length and its capacity, and makes
/// what came part of it. Never waits.
pub fn recv_append(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    append_received(fd, buffer, libc::MSG_DONTWAIT)
}

/// The same, but waits as the socket does.
pub fn recv_append_waiting(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    append_received(fd, buffer, 0)
}

fn append_received(
    fd: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    flags: libc::c_int,
) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    // SAFETY: the kernel writes at most `spare.len()` bytes, all in memory that we own.
    let received = check_len(unsafe {
        libc::recv(fd.as_raw_fd(), spare.as_mut_ptr().cast(), spare.len(), flags)
    })?;
    let filled = buffer.len() + received;
    // SAFETY: `received` is at most the spare capacity, and those bytes were just written.
    unsafe { buffer.set_len(filled) };
    Ok(received)
}

/// Sends what the socket takes of `bytes`. Never waits, never raises SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads `bytes.len()` bytes from a live slice.
    check_len(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends what the socket takes of `first` and then `second`, in one call.
pub fn send_two(fd: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let mut parts = [first, second]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: a zeroed msghdr is a valid one without address, parts or control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header and its parts are live, and sendmsg only reads what they point to.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &message, flags) })
}

fn set_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is a live int, and its size is given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// When a silent peer is probed, and when it counts as gone.
pub struct KeepAlive {
    /// Silence before the first probe, in seconds.
    pub idle_s: u32,
    /// Between probes, in seconds.
    pub interval_s: u32,
    /// Unanswered probes before the connection is broken.
    pub probes_max: u32,
}

/// For a connection that only shows that the peer lives, because all other data goes another way: the end of the
/// peer's host is noticed within 20 s.
pub const SIGN_OF_LIFE: KeepAlive = KeepAlive { idle_s: 10, interval_s: 2, probes_max: 5 };

/// Sets what every TCP connection has: no delay, and keepalive.
pub fn set_tcp_options(fd: BorrowedFd<'_>, keepalive: &KeepAlive) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, keepalive.idle_s as libc::c_int)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, keepalive.interval_s as libc::c_int)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, keepalive.probes_max as libc::c_int)
}

/// The core on which the kernel has taken in the newest packet of a socket (`SO_INCOMING_CPU`); None if there
/// was none, as on Unix domain sockets.
pub fn incoming_core(fd: BorrowedFd<'_>) -> Option<usize> {
    let mut core: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let value = std::ptr::from_mut(&mut core).cast();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_INCOMING_CPU);
    // SAFETY: the pointers are to a live integer of the given length, and to that length.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &mut len) }).ok()?;
    usize::try_from(core).ok()
}

/// A listening TCP socket. An IPv6 one takes no IPv4 connections, so that `::` and `0.0.0.0` can
/// be bound side by side.
pub fn listen_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes no pointers.
    let raw = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let borrowed = std::os::fd::AsFd::as_fd(&fd);
    set_int(borrowed, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if address.is_ipv6() {
        set_int(borrowed, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    bind(&fd, address)?;
    // SAFETY: takes no pointers; the descriptor is open.
    check(unsafe { libc::listen(fd.as_raw_fd(), LISTEN_BACKLOG) })?;
    Ok(fd)
}

fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    // SAFETY: `with_raw` gives a live address of that size.
    with_raw(address, |raw, bytes| check(unsafe { libc::bind(fd.as_raw_fd(), raw, bytes) }))?;
    Ok(())
}

/// Lends an address as the kernel takes it, and its size.
fn with_raw<R>(
    address: SocketAddr,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> R,
) -> R {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            call((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            call((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
    }
}

/// Begins to connect, without waiting. The socket is writable once it is connected or has failed (`SO_ERROR`).
pub fn begin_connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointers.
    let raw = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: `with_raw` gives a live address of that size.
    let begun =
        with_raw(address, |to, bytes| check(unsafe { libc::connect(fd.as_raw_fd(), to, bytes) }));
    match begun {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(fd),
    }
}

/// Ends the sending half of a connection. An error means that it is broken anyway.
pub fn shutdown_send(fd: BorrowedFd<'_>) {
    // SAFETY: takes no pointers; the descriptor is open while it is borrowed.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// The cores that this thread may run on, by their numbers.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    // SAFETY: a set of cores is plain bits, and all zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = std::mem::size_of_val(&set);
    // SAFETY: the pointer is to a live set of so many bytes, which is all that the call writes to.
    check(unsafe { libc::sched_getaffinity(0, bytes, &mut set) })?;
    let cores = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: looks at one bit of the set, and the numbers are below its size.
    Ok(cores.filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Keeps this thread, and those that it starts from now on, on these cores.
pub fn run_on_cores(cores: &[usize]) -> io::Result<()> {
    // SAFETY: as in `allowed_cores`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores {
        if core >= libc::CPU_SETSIZE as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: sets one bit of the set, and the number is below its size.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the call only reads the live set of so many bytes.
    check(unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set) })?;
    Ok(())
}

/// Sets whether this thread, when woken, lets the running thread of its core continue for a while (`SCHED_BATCH`,
/// else `SCHED_OTHER`). False if nothing has changed, because it was set already, or because the process was
/// started with another policy.
pub fn let_others_finish(does: bool) -> bool {
    let (batch, other) = (libc::SCHED_BATCH, libc::SCHED_OTHER);
    let (from, to) = if does { (other, batch) } else { (batch, other) };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: no memory is involved; the second call only reads the live parameters.
    unsafe {
        libc::sched_getscheduler(0) == from && libc::sched_setscheduler(0, to, &parameters) == 0
    }
}

/// Raises the process's limit of open descriptors as far as possible. Returns the limit.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit, which is all that the call writes to.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the call only reads the live rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_cur)
}
