//! Completion queues: wakes, reported completions, and protection from overruns.

use crate::rig::{End, Lab, PATIENCE, SENDS_MAX, until, wait};
use kauri_transport::sys::{Epoll, EventList};
use kauri_verbs::{
    Completion, CompletionKind, CompletionQueue, Error, Operation, QueuePair, RemoteAddress,
    SendRequest, Source, Status,
};
use std::os::fd::AsFd;
use std::time::Duration;

pub const TESTS: &[crate::Test] = &[
    ("an_armed_channel_wakes_epoll", an_armed_channel_wakes_epoll),
    ("arming_and_polling_again_loses_no_completion", arming_and_polling_again_loses_no_completion),
    ("one_in_32_signalled_never_overruns_the_send_queue", one_in_32_signalled_never_overruns),
    ("a_full_send_queue_refuses_the_whole_chain", a_full_send_queue_refuses_the_whole_chain),
    ("a_completion_queue_takes_no_more_than_it_has_room_for", a_completion_queue_takes_no_more),
    ("completions_of_a_dropped_queue_pair_are_passed_over", completions_of_a_dropped_queue_pair),
    ("queue_pairs_on_one_queue_are_distinguished", queue_pairs_on_one_queue_are_distinguished),
];

/// Sleeps until the channel is readable, and takes its events.
fn sleep(cq: &CompletionQueue, epoll: &Epoll, timeout: Duration) -> bool {
    let mut events = EventList::new(4);
    epoll.wait(&mut events, Some(timeout)).unwrap();
    let woken = !events.is_empty();
    assert_eq!(cq.take_event().unwrap(), woken);
    woken
}

fn watch(cq: &CompletionQueue) -> Epoll {
    let epoll = Epoll::new().unwrap();
    epoll.add_readable(cq.channel().unwrap().as_fd(), 0).unwrap();
    epoll
}

fn immediate(to: RemoteAddress, immediate: u32) -> SendRequest<'static> {
    let operation = Operation::WriteWithImmediate { from: Source::Nothing, to, immediate };
    SendRequest::new(0, operation).unsignalled()
}

fn an_armed_channel_wakes_epoll() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let epoll = watch(&two.cq);
    let short = Duration::from_millis(20);
    two.qp.post_empty_receives(3, 0).unwrap();
    let send = |i| one.qp.post_send(&[immediate(two.region.remote(), i)]).unwrap();

    send(1);
    two.done();
    assert!(!sleep(&two.cq, &epoll, short), "it was not armed");
    two.cq.arm().unwrap();
    assert!(!sleep(&two.cq, &epoll, short), "nothing has completed since");
    two.cq.arm().unwrap();
    send(2);
    assert!(sleep(&two.cq, &epoll, PATIENCE));
    assert_eq!(two.done().immediate, Some(2));
    send(3);
    two.done();
    assert!(!sleep(&two.cq, &epoll, short), "it wakes once an arming");
    let counters = lab.device.counters();
    assert_eq!((counters.arms, counters.channel_events), (1, 1), "the second arming did nothing");
    // Again, with the event of an earlier arming still unread when it is armed again.
    two.qp.post_empty_receives(2, 0).unwrap();
    two.cq.arm().unwrap();
    send(4);
    two.done();
    two.cq.arm().unwrap();
    send(5);
    assert!(sleep(&two.cq, &epoll, PATIENCE));
    assert_eq!(two.done().immediate, Some(5));
    assert!(!sleep(&two.cq, &epoll, short));
}

/// Messages in flight: few, so that a side often runs out of completions.
const BALLS: u32 = 3;

/// One end of a ping-pong: each incoming message is answered. Returns the number of sleeps.
fn play(end: &End, to: RemoteAddress, begins: bool, messages: u32) -> u64 {
    let epoll = watch(&end.cq);
    let mut out = [Completion::EMPTY; 4];
    let mut sleeps = 0;
    let mut sent = 0;
    let mut send = || {
        if sent < messages {
            end.qp.post_send(&[immediate(to, sent)]).unwrap();
            sent += 1;
        }
    };
    if begins {
        (0..BALLS).for_each(|_| send());
    }
    let mut received = 0;
    while received < messages {
        let mut count = end.cq.poll(&mut out).unwrap();
        if count == 0 {
            end.cq.arm().unwrap();
            count = end.cq.poll(&mut out).unwrap();
        }
        if count == 0 {
            assert!(sleep(&end.cq, &epoll, PATIENCE), "{received} was lost");
            sleeps += 1;
        }
        // An arming without a wait may have produced an event.
        end.cq.take_event().unwrap();
        for completion in out.iter().take(count) {
            assert_eq!(completion.status, Status::Success);
            assert_eq!(completion.immediate, Some(received));
            received += 1;
            end.qp.post_empty_receives(1, 0).unwrap();
            send();
        }
    }
    sleeps
}

fn arming_and_polling_again_loses_no_completion() {
    const MESSAGES: u32 = 5_000;
    let lab = Lab::new();
    let (one, two) = lab.pair();
    for end in [&one, &two] {
        end.qp.post_empty_receives(2 * BALLS, 0).unwrap();
    }
    let (to_one, to_two) = (one.region.remote(), two.region.remote());
    let (mut games, mut sleeps) = (0, 0);
    // How often a side runs out of completions is random: games continue until it has happened often.
    until("sides that sleep", || {
        sleeps += std::thread::scope(|scope| {
            let other = scope.spawn(|| play(&two, to_one, false, MESSAGES));
            play(&one, to_two, true, MESSAGES) + other.join().unwrap()
        });
        games += 1;
        sleeps > 100
    });
    println!("  {} messages, {sleeps} sleeps", 2 * MESSAGES * games);
}

fn one_in_32_signalled_never_overruns() {
    const CHAINS: u64 = 500;
    const CHAIN: u64 = 8;
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let mut out = [Completion::EMPTY; 8];
    let mut fulls = 0;
    for chain in 0..CHAINS {
        one.region.write(0, &chain.to_ne_bytes()).unwrap();
        let from = Source::Inline(&[1; 64]);
        let to = two.region.remote();
        let request = SendRequest::new(0, Operation::Write { from, to }).unsignalled();
        let requests = [request; CHAIN as usize];
        loop {
            match one.qp.post_send(&requests) {
                Ok(()) => break,
                Err(error) => {
                    assert!(matches!(error.error, Error::QueueFull), "{error}");
                    fulls += 1;
                    // No completion was requested, and yet there is room again.
                    until("room", || {
                        assert_eq!(one.cq.poll(&mut out).unwrap(), 0);
                        one.qp.room().0 >= CHAIN as usize
                    });
                }
            }
        }
    }
    let counters = lab.device.counters();
    assert_eq!(counters.send_requests, CHAINS * CHAIN);
    assert_eq!(counters.send_requests_signalled, CHAINS * CHAIN / 32);
    assert!(fulls >= CHAINS * CHAIN / u64::from(SENDS_MAX) - 1, "the queue was full {fulls} times");
    assert_eq!(counters.completion_errors, 0);
}

fn a_full_send_queue_refuses_the_whole_chain() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let request = SendRequest::new(
        3,
        Operation::Write { from: Source::Inline(&[1; 8]), to: two.region.remote() },
    );
    one.qp.post_send(&vec![request; SENDS_MAX as usize - 1]).unwrap();
    let error = one.qp.post_send(&[request; 2]).unwrap_err();
    assert!(matches!(error.error, Error::QueueFull) && error.posted == 0, "{error}");
    one.qp.post_send(&[request]).unwrap();
    for _ in 0..SENDS_MAX {
        assert_eq!(one.done().id, 3);
    }
    assert_eq!(one.cq.poll(&mut [Completion::EMPTY]).unwrap(), 0);
}

fn a_completion_queue_takes_no_more() {
    let lab = Lab::new();
    let cq = CompletionQueue::new(&lab.device, 300, false).unwrap();
    let pair = || QueuePair::new(&lab.domain, &cq, &lab.options());
    let (first, second) = (pair().unwrap(), pair().unwrap());
    assert!(matches!(pair(), Err(Error::CompletionQueueFull)));
    assert_eq!(cq.room(), (300, 256));
    drop(first);
    // Its completions may remain until the queue has been seen empty.
    assert!(matches!(pair(), Err(Error::CompletionQueueFull)));
    assert_eq!(cq.poll(&mut [Completion::EMPTY]).unwrap(), 0);
    drop((pair().unwrap(), second));
    cq.poll(&mut [Completion::EMPTY]).unwrap();
    assert_eq!(cq.room(), (300, 0));
}

fn completions_of_a_dropped_queue_pair() {
    let lab = Lab::new();
    let peer = lab.end(2);
    let cq = CompletionQueue::new(&lab.device, 1000, false).unwrap();
    let make = |key| {
        let options = kauri_verbs::QueuePairOptions { key, ..lab.options() };
        QueuePair::new(&lab.domain, &cq, &options).unwrap()
    };
    let qp = make(1);
    crate::rig::connect(&qp, &peer.qp, &Default::default());
    let (from, to) = (Source::Inline(&[1; 8]), peer.region.remote());
    qp.post_send(&[SendRequest::new(5, Operation::Write { from, to }); 3]).unwrap();
    qp.post_empty_receives(2, 6).unwrap();
    // The completions are in the queue, unread, and the queue pair is dropped.
    let mut out = [Completion::EMPTY];
    until("the first completion", || cq.poll(&mut out).unwrap() == 1);
    drop(qp);
    // Another queue pair, whose requests those completions must not end.
    let next = make(9);
    next.post_empty_receives(2, 7).unwrap();
    assert_eq!(cq.poll(&mut [Completion::EMPTY; 16]).unwrap(), 0);
    assert_eq!(next.room().1, 62);
    next.fail().unwrap();
    let ends = [wait(&cq), wait(&cq)].map(|c| (c.queue_pair, c.id, c.status));
    assert_eq!(ends, [(9, 7, Status::Flushed); 2]);
}

fn queue_pairs_on_one_queue_are_distinguished() {
    let lab = Lab::new();
    let cq = CompletionQueue::new(&lab.device, 2000, false).unwrap();
    let peers: Vec<End> = (0..8).map(|i| lab.end(100 + i)).collect();
    let pairs: Vec<QueuePair> = (0..8)
        .map(|key| {
            let options = kauri_verbs::QueuePairOptions { key, ..lab.options() };
            QueuePair::new(&lab.domain, &cq, &options).unwrap()
        })
        .collect();
    for (pair, peer) in pairs.iter().zip(&peers) {
        crate::rig::connect(pair, &peer.qp, &Default::default());
        pair.post_empty_receives(1, 50 + pair.key()).unwrap();
    }
    for (pair, peer) in pairs.iter().zip(&peers) {
        let nowhere = RemoteAddress { address: 0, key: 0 };
        peer.qp.post_send(&[immediate(nowhere, 200 + pair.key() as u32)]).unwrap();
    }
    let mut keys: Vec<u64> = Vec::new();
    while keys.len() < 8 {
        let came = wait(&cq);
        assert_eq!((came.kind, came.status), (CompletionKind::ReceiveImmediate, Status::Success));
        assert_eq!(came.id, 50 + came.queue_pair);
        assert_eq!(came.immediate, Some(200 + came.queue_pair as u32));
        keys.push(came.queue_pair);
    }
    keys.sort();
    assert_eq!(keys, (0..8).collect::<Vec<_>>());
}
