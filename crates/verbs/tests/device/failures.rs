//! Every fault ends in a completion or an error, never in a crash.

use crate::rig::{End, Lab, connect, impatient, until};
use kauri_verbs::{
    Access, AsyncEvent, CompletionKind, CompletionQueue, ConnectOptions, Error, Operation,
    QueuePair, QueuePairOptions, ReceiveRequest, RemoteAddress, SendRequest, Source, Status,
};
use std::process::Command;

pub const TESTS: &[crate::Test] = &[
    ("a_wrong_key_fails_and_flushes_later_requests", a_wrong_key_fails_and_flushes_later_requests),
    ("a_wrong_address_fails", a_wrong_address_fails),
    ("a_region_without_the_right_keeps_peers_out", a_region_without_the_right_keeps_peers_out),
    ("a_peer_that_is_gone_is_given_up", a_peer_that_is_gone_is_given_up),
    ("a_peer_without_receives_is_given_up", a_peer_without_receives_is_given_up),
    ("the_error_state_flushes_receives_and_sends", the_error_state_flushes_receives_and_sends),
    ("invalid_requests_are_refused", invalid_requests_are_refused),
    ("a_port_that_goes_down_is_reported", a_port_that_goes_down_is_reported),
];

fn a_wrong_key_fails_and_flushes_later_requests() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let right = two.region.remote();
    let wrong = RemoteAddress { key: right.key ^ 0x5500, ..right };
    let write = |id, to| {
        let from = Source::Region(one.region.slice(0, 1000).unwrap());
        SendRequest::new(id, Operation::Write { from, to })
    };
    let chain = [write(1, right), write(2, wrong), write(3, right).unsignalled(), write(4, right)];
    one.qp.post_send(&chain).unwrap();
    let ends: Vec<_> = (0..4).map(|_| one.wait()).map(|c| (c.id, c.kind, c.status)).collect();
    let kind = CompletionKind::Write;
    assert_eq!(
        ends,
        [
            (1, kind, Status::Success),
            (2, kind, Status::RemoteAccess),
            (3, kind, Status::Flushed),
            (4, kind, Status::Flushed),
        ]
    );
    let error = one.qp.post_send(&[write(5, right)]).unwrap_err();
    assert!(matches!(error.error, Error::Failed), "{error}");
    assert!(matches!(one.qp.post_empty_receives(1, 0).unwrap_err().error, Error::Failed));
    assert_eq!(one.qp.room().0, crate::rig::SENDS_MAX as usize, "nothing is left posted");
    // Other queue pairs are not affected.
    let (three, four) = lab.pair();
    assert_eq!(three.write(1000, four.region.remote()).status, Status::Success);
}

fn a_wrong_address_fails() {
    let lab = Lab::new();
    let len = crate::rig::REGION_BYTES as u64;
    for offset in [u64::MAX, len - 999, len, 1 << 40] {
        let (one, two) = lab.pair();
        let right = two.region.remote();
        let to = RemoteAddress { address: right.address.wrapping_add(offset), ..right };
        assert_eq!(one.write(1000, to).status, Status::RemoteAccess, "at {offset}");
    }
}

fn a_region_without_the_right_keeps_peers_out() {
    let lab = Lab::new();
    for access in [Access::SEND, Access::LOCAL_WRITE, Access::REMOTE_READ, Access::WINDOW] {
        let (one, _two) = lab.pair();
        let region = lab.domain.register(4096, access).unwrap();
        assert_eq!(one.write(8, region.remote()).status, Status::RemoteAccess, "{access:?}");
    }
}

fn a_peer_that_is_gone_is_given_up() {
    let lab = Lab::new();
    let (one, two) = (lab.end(1), lab.end(2));
    connect(&one.qp, &two.qp, &impatient());
    let to = two.region.remote();
    assert_eq!(one.write(8, to).status, Status::Success);
    drop(two.qp);
    assert_eq!(one.write(8, to).status, Status::RetryExceeded);
}

fn a_peer_without_receives_is_given_up() {
    let lab = Lab::new();
    let (one, two) = (lab.end(1), lab.end(2));
    connect(&one.qp, &two.qp, &impatient());
    let to = two.region.remote();
    let from = Source::Nothing;
    let end = one.run(Operation::WriteWithImmediate { from, to, immediate: 1 });
    assert_eq!(end.status, Status::ReceiverNotReady);
}

fn the_error_state_flushes_receives_and_sends() {
    let lab = Lab::new();
    let (one, _two) = lab.pair();
    one.qp.post_empty_receives(3, 8).unwrap();
    let into = Some(one.region.slice(0, 100).unwrap());
    one.qp.post_receive(&[ReceiveRequest { id: 9, into }]).unwrap();
    one.qp.fail().unwrap();
    let ends: Vec<_> = (0..4).map(|_| one.wait()).collect();
    assert!(ends.iter().all(|c| c.status == Status::Flushed && c.immediate.is_none()), "{ends:?}");
    assert_eq!(ends.iter().map(|c| c.id).collect::<Vec<_>>(), [8, 8, 8, 9]);
    assert_eq!(one.qp.room().1, crate::rig::RECEIVES_MAX as usize);
}

/// A queue pair with these options on its own completion queue.
fn made(lab: &Lab, change: impl FnOnce(&mut QueuePairOptions)) -> Result<QueuePair, Error> {
    let cq = CompletionQueue::new(&lab.device, 128, false)?;
    let mut options = lab.options();
    change(&mut options);
    QueuePair::new(&lab.domain, &cq, &options)
}

fn invalid_requests_are_refused() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let to = two.region.remote();
    let refused = |end: &End, operation: Operation<'_>| {
        end.qp.post_send(&[SendRequest::new(1, operation)]).unwrap_err().error
    };

    for (offset, len) in [(0, 131_073), (131_072, 1), (usize::MAX, 2)] {
        assert!(matches!(one.region.slice(offset, len), Err(Error::OutOfRange { .. })));
    }
    assert!(one.region.read(131_070, &mut [0; 3]).is_err());
    let error = refused(&one, Operation::Write { from: Source::Inline(&[0; 513]), to });
    assert!(matches!(error, Error::InlineTooLong { bytes: 513, max: 512 }), "{error}");
    let parts = [one.region.slice(0, 1).unwrap(); 5];
    let error = refused(&one, Operation::Write { from: Source::Gather(&parts), to });
    assert!(matches!(error, Error::Argument(_)), "{error}");
    let stranger =
        lab.device.protection_domain().unwrap().register(8, Access::LOCAL_WRITE).unwrap();
    let error = refused(&one, Operation::Write { from: Source::Region(stranger.all()), to });
    assert!(error.to_string().contains("another protection domain"), "{error}");
    let only_sent = lab.domain.register(8, Access::SEND).unwrap();
    let error = refused(&one, Operation::Read { into: only_sent.all(), from: to });
    assert!(error.to_string().contains("may not write"), "{error}");
    let into = Some(only_sent.all());
    assert!(one.qp.post_receive(&[ReceiveRequest { id: 1, into }]).is_err());
    let window = lab.domain.window().unwrap();
    let (slice, access) = (only_sent.all(), kauri_verbs::WindowAccess::Read);
    let error = refused(&one, Operation::BindWindow { window: &window, slice, access });
    assert!(error.to_string().contains("without the rights"), "{error}");

    let alone = lab.end(3);
    let error = refused(&alone, Operation::Send { from: Source::Nothing });
    assert!(matches!(error, Error::NotConnected), "{error}");
    let error = one.qp.post_empty_receives(65, 0).unwrap_err().error;
    assert!(matches!(error, Error::QueueFull), "{error}");
    assert!(one.qp.connect(&two.qp.endpoint(), &ConnectOptions::default()).is_err(), "again");
    let mut peer = two.qp.endpoint();
    peer.number = 1 << 24;
    assert!(alone.qp.connect(&peer, &ConnectOptions::default()).is_err());

    assert!(lab.domain.register(0, Access::SEND).is_err());
    assert!(CompletionQueue::new(&lab.device, 0, false).is_err());
    assert!(made(&lab, |_| {}).is_ok());
    assert!(made(&lab, |o| o.sends_max = 0).is_err());
    assert!(made(&lab, |o| o.signal_interval = 65).is_err());
    assert!(made(&lab, |o| o.sequence = 1 << 24).is_err());
    assert!(matches!(made(&lab, |o| o.sends_max = 65), Err(Error::CompletionQueueFull)));
    let inline = made(&lab, |o| o.inline_bytes = 4096).unwrap().inline_bytes_max();
    assert!((256..4096).contains(&inline), "{inline} bytes inline, negotiated down");
    // None of the posted requests.
    assert_eq!(one.write(8, to).status, Status::Success);
}

/// Sets the device's network interface up or down.
fn link(state: &str) {
    let interface = std::env::var("KAURI_TEST_RDMA_INTERFACE").unwrap_or_else(|_| "eth0".into());
    let status = Command::new("ip").args(["link", "set", "dev", &interface, state]).status();
    assert!(status.unwrap().success());
}

/// Sets the interface up again, also after a failure, for the next tests.
struct Up;

impl Drop for Up {
    fn drop(&mut self) {
        link("up");
    }
}

fn a_port_that_goes_down_is_reported() {
    let lab = Lab::new();
    let _up = Up;
    while lab.device.async_event().unwrap().is_some() {}
    let next = |wanted: AsyncEvent| {
        until("the event", || lab.device.async_event().unwrap() == Some(wanted));
    };
    let port = lab.gid.port;
    link("down");
    next(AsyncEvent::PortDown { port });
    assert!(!lab.device.port(port).unwrap().active);
    link("up");
    next(AsyncEvent::PortActive { port });
    assert!(lab.device.port(port).unwrap().active);
    while lab.device.async_event().unwrap().is_some() {}
    assert_eq!(lab.device.async_event().unwrap(), None, "and never waits");
}
