//! A session over a pair of sockets: buffers, room for large messages, replies in the outbox.

use super::*;
use crate::arrivals::Arrivals;
use crate::executor::shared::WorkerShared;
use crate::pool::RECEIVE_BYTES;
use crate::stream::inbox::{PACE, PARTIAL_BYTES_MIN};
use crate::sys::Event;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::task::Waker;

struct Bench {
    local: Rc<Local>,
    session: StreamSession,
    peer: UnixStream,
}

impl Bench {
    fn new() -> Self {
        let local = Local::new(Arc::new(WorkerShared::new(0).unwrap())).unwrap();
        let (session, peer) = session_on(&local);
        Bench { local, session, peer }
    }

    /// Lets the peer send `bytes`, tells the session, and polls it.
    fn source(&mut self, bytes: &[u8]) -> Poll<Result<Lease, SessionEnd>> {
        self.peer.write_all(bytes).unwrap();
        let event = Event { key: 0, readable: true, writable: false, closed: false };
        self.session.io.dispatch(event, monotonic_ns());
        self.session.poll_source(&mut Context::from_waker(Waker::noop()))
    }
}

fn session_on(local: &Rc<Local>) -> (StreamSession, UnixStream) {
    let (peer, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let info = Arc::new(SessionInfo {
        id: 1,
        remote: String::new(),
        local: String::new(),
        transport: "unix",
        worker: Default::default(),
        upgrade: Default::default(),
    });
    let session = StreamSession::open(ours.into(), local, info, Arc::default()).unwrap();
    (session, peer)
}

fn message(length: i32) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.resize(length as usize, 7);
    bytes
}

#[test]
fn a_session_holds_a_buffer_only_while_it_needs_one() {
    let mut bench = Bench::new();
    assert!(bench.source(b"").is_pending());
    assert_eq!(bench.session.inbox.bytes.capacity(), 0, "nothing came");
    let two_and_a_half = [message(20), message(30), message(40)[..25].to_vec()].concat();
    let Poll::Ready(Ok(lease)) = bench.source(&two_and_a_half) else { panic!("no message") };
    assert!(bench.session.inbox.pooled);
    assert_eq!(bench.session.request(&lease), message(20));
    bench.session.release(lease);
    let Poll::Ready(Ok(lease)) = bench.source(b"") else { panic!("no second message") };
    assert_eq!(bench.session.request(&lease), message(30));
    bench.session.release(lease);
    assert!(bench.source(b"").is_pending());
    assert!(!bench.session.inbox.pooled, "half a message moves out");
    assert!(bench.session.inbox.bytes.capacity() <= PARTIAL_BYTES_MIN);
    let Poll::Ready(Ok(lease)) = bench.source(&message(40)[25..]) else { panic!("no third") };
    assert_eq!(bench.session.request(&lease), message(40));
    bench.session.release(lease);
    assert_eq!(bench.session.inbox.bytes.capacity(), 0, "all is given back");
}

/// A local worker whose large messages may take so much, and two sessions that each have received the beginning of
/// one of 200,000 bytes.
fn two_with_room_for(bytes: u64) -> (Rc<Local>, Bench, Bench) {
    let shared = WorkerShared::with_arrivals(0, Arrivals::new(bytes)).unwrap();
    let local = Local::new(Arc::new(shared)).unwrap();
    let mut benches = [(); 2].map(|()| {
        let (session, peer) = session_on(&local);
        Bench { local: Rc::clone(&local), session, peer }
    });
    for bench in &mut benches {
        assert!(bench.source(&message(200_000)[..70_000]).is_pending());
    }
    let [first, second] = benches;
    (local, first, second)
}

#[test]
fn a_large_message_is_received_once_there_is_room_for_it() {
    let (local, mut first, mut second) = two_with_room_for(300_000);
    let arrivals = || local.shared.arrivals.snapshot();
    assert_eq!((arrivals().bytes, arrivals().waiting), (200_000, 1));
    assert!(second.session.inbox.bytes.len() <= RECEIVE_BYTES, "it is not read on");
    let Poll::Ready(Ok(lease)) = first.source(&message(200_000)[70_000..]) else {
        panic!("no message")
    };
    // The message is held while the request is at work.
    assert!(second.source(b"").is_pending());
    first.session.release(lease);
    assert_eq!((arrivals().bytes, arrivals().waiting), (200_000, 0));
    let Poll::Ready(Ok(lease)) = second.source(&message(200_000)[70_000..]) else {
        panic!("no second message")
    };
    assert_eq!(second.session.request(&lease), message(200_000));
    second.session.release(lease);
    assert_eq!(arrivals().bytes, 0);
}

#[test]
fn a_client_that_sends_nothing_is_ended_while_others_wait_for_room() {
    let (local, mut slow, waiting) = two_with_room_for(300_000);
    let arrivals = || local.shared.arrivals.snapshot();
    drop(waiting);
    assert_eq!(arrivals().waiting, 0);
    let began_ns = monotonic_ns();
    while monotonic_ns() - began_ns < 3 * PACE.as_nanos() as u64 {
        assert!(slow.source(b"").is_pending(), "nobody waits");
    }
    let (session, peer) = session_on(&local);
    let mut waiting = Bench { local: Rc::clone(&local), session, peer };
    assert!(waiting.source(&message(200_000)[..70_000]).is_pending());
    let began_ns = monotonic_ns();
    let end = loop {
        assert!(monotonic_ns() - began_ns < 1000 * PACE.as_nanos() as u64, "it holds the room");
        if let Poll::Ready(end) = slow.source(b"") {
            break end;
        }
    };
    assert!(matches!(end, Err(SessionEnd::Malformed)));
    assert_eq!(arrivals().slow, 1);
    drop(slow);
    assert!(waiting.source(&message(200_000)[70_000..]).is_ready());
}

#[test]
fn who_waits_for_room_hears_that_the_client_has_gone_or_the_server_ends() {
    let (_local, _first, mut second) = two_with_room_for(300_000);
    second.session.liveness.note_peer_closed();
    let end = second.source(b"");
    assert!(matches!(end, Poll::Ready(Err(SessionEnd::PeerClosed))));
    let (_local, _first, mut second) = two_with_room_for(300_000);
    second.session.liveness.drain();
    let end = second.source(b"");
    assert!(matches!(end, Poll::Ready(Err(SessionEnd::Cancelled))));
}

/// A reply of so many bytes that may go with others.
fn reply(session: &mut StreamSession, length: i32) -> ReplyBuf {
    let mut reply = session.reply_buf(0);
    reply.buffer().extend_from_slice(&message(length));
    reply
}

fn sink(session: &mut StreamSession, reply: &mut ReplyBuf) -> Poll<Result<(), SessionEnd>> {
    session.poll_sink(&mut Context::from_waker(Waker::noop()), reply)
}

#[test]
fn replies_in_the_outbox_come_to_what_they_would_by_themselves() {
    const LENGTH: i32 = 10_000;
    let Bench { local, session: mut first, peer: mut first_peer } = Bench::new();
    local.outbox.open(u64::MAX);
    let (mut full, mut full_peer) = session_on(&local);
    let (mut gone, gone_peer) = session_on(&local);
    drop(gone_peer);
    full_peer.set_nonblocking(true).unwrap();
    let mut filled = 0;
    while let Ok(sent) = full.channel.send(&[9; 1000]) {
        filled += sent;
    }
    for others in 0..COMPANY_MIN {
        let mut alone = reply(&mut first, LENGTH);
        assert!(matches!(sink(&mut first, &mut alone), Poll::Ready(Ok(()))), "{others} others");
        local.push(0);
    }
    let mut long = reply(&mut first, POSTED_BYTES_MAX as i32 + 1);
    assert!(matches!(sink(&mut first, &mut long), Poll::Ready(Ok(()))), "too long to wait");
    let (mut a, mut b, mut c) =
        (reply(&mut first, LENGTH), reply(&mut full, LENGTH), reply(&mut gone, LENGTH));
    assert!(sink(&mut first, &mut a).is_pending());
    assert!(sink(&mut full, &mut b).is_pending());
    assert!(sink(&mut gone, &mut c).is_pending());
    assert!(sink(&mut first, &mut a).is_pending(), "not yet tried");
    assert!(local.outbox.end_tick());
    assert!(!local.outbox.end_tick(), "all is sent");
    assert!(matches!(sink(&mut first, &mut a), Poll::Ready(Ok(()))));
    assert!(matches!(sink(&mut gone, &mut c), Poll::Ready(Err(SessionEnd::PeerClosed))));
    assert!(sink(&mut full, &mut b).is_pending(), "it is full");
    let mut received = Vec::new();
    let writable = Event { key: 0, readable: false, writable: true, closed: false };
    let mut tries = 0..100;
    let all_sent = tries.any(|_| {
        let _ = full_peer.read_to_end(&mut received);
        full.io.dispatch(writable, 1);
        matches!(sink(&mut full, &mut b), Poll::Ready(Ok(())))
    });
    assert!(all_sent);
    let _ = full_peer.read_to_end(&mut received);
    assert_eq!(received.split_off(filled), message(LENGTH));
    // One that offers another transport has a way of its own.
    let wanted = [1u32, 0].map(u32::to_le_bytes).concat();
    let random = kauri_base::clock::SeededRandom::new(1);
    first.info.upgrade.prepare("sharedMemory", &wanted, &random).unwrap();
    let mut offering = reply(&mut first, LENGTH);
    assert!(!first.post(&Context::from_waker(Waker::noop()), &mut offering));
    first.recycle(offering);
    // A session that ends meanwhile leaves its reply, which is sent all the same.
    let mut last = reply(&mut first, LENGTH);
    assert!(sink(&mut first, &mut last).is_pending());
    drop((first, last, long, a));
    assert!(local.outbox.end_tick());
    let mut received = Vec::new();
    first_peer.read_to_end(&mut received).unwrap();
    let long = POSTED_BYTES_MAX as i32 + 1;
    assert_eq!(received, [LENGTH, LENGTH, long, LENGTH, LENGTH].map(message).concat());
}

/// Tells the sessions of a worker what epoll reports.
fn dispatch(local: &Local) -> usize {
    let mut events = crate::sys::EventList::new(8);
    local.epoll.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap();
    events.iter().for_each(|event| local.dispatch(event, monotonic_ns()));
    events.iter().count()
}

#[test]
fn a_session_that_departs_leaves_nothing_and_misses_nothing() {
    let Bench { local, session, mut peer } = Bench::new();
    let elsewhere = Local::new(Arc::new(WorkerShared::new(1).unwrap())).unwrap();
    let mut session: Box<dyn Session> = Box::new(session);
    let mut cx = Context::from_waker(Waker::noop());
    for (from, to) in [(&local, &elsewhere), (&elsewhere, &local)] {
        dispatch(from);
        peer.write_all(&message(40)).unwrap();
        assert_eq!(dispatch(from), 1);
        // What nobody has received yet goes along; what comes meanwhile, too.
        let departure = session.depart().expect("nothing is under way");
        peer.write_all(&message(50)[..10]).unwrap();
        assert_eq!(dispatch(from), 0);
        drop(session);
        session = (departure.0)(to).unwrap();
        peer.write_all(&message(50)[10..]).unwrap();
        assert_eq!(dispatch(to), 1);
        for length in [40, 50] {
            let Poll::Ready(Ok(lease)) = session.poll_source(&mut cx) else { panic!("{length}") };
            assert_eq!(session.request(&lease), message(length));
            session.release(lease);
        }
        assert!(session.poll_source(&mut cx).is_pending());
    }
}

#[test]
fn a_session_with_something_under_way_stays() {
    let mut bench = Bench::new();
    bench.local.outbox.open(u64::MAX);
    assert!(bench.source(&message(40)[..20]).is_pending());
    assert!(bench.session.depart().is_none(), "half a message");
    let Poll::Ready(Ok(lease)) = bench.source(&message(40)[20..]) else { panic!("no message") };
    bench.session.release(lease);
    (0..COMPANY_MIN).for_each(|_| bench.local.push(0));
    let mut posted = reply(&mut bench.session, 100);
    assert!(sink(&mut bench.session, &mut posted).is_pending());
    assert!(bench.session.depart().is_none(), "a reply to be sent");
    assert!(bench.local.outbox.end_tick());
    assert!(matches!(sink(&mut bench.session, &mut posted), Poll::Ready(Ok(()))));
    let wanted = [1u32, 0].map(u32::to_le_bytes).concat();
    let random = kauri_base::clock::SeededRandom::new(1);
    bench.session.info.upgrade.prepare("sharedMemory", &wanted, &random).unwrap();
    assert!(bench.session.depart().is_none(), "about to change its transport");
    bench.session.info.upgrade.withdraw();
    bench.session.liveness.note_peer_closed();
    assert!(bench.session.depart().is_none(), "at its end");
}

#[test]
fn a_request_moves_out_when_pooled_buffers_run_short() {
    let mut bench = Bench::new();
    let mut taken = Vec::new();
    while !bench.local.pool.crowded() {
        taken.push(bench.local.pool.take_receive());
    }
    let Poll::Ready(Ok(lease)) = bench.source(&message(500)) else { panic!("no message") };
    assert!(!bench.session.inbox.pooled);
    assert_eq!(bench.session.inbox.bytes.capacity(), 500);
    assert_eq!(bench.session.request(&lease), message(500));
}
