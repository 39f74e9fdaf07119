//! A memory window admits one peer, for as long as it is bound.

use crate::rig::{End, Lab, pattern};
use kauri_verbs::{
    Completion, CompletionKind, Error, MemoryWindow, Operation, RemoteAddress, SendRequest, Status,
    WindowAccess,
};

pub const TESTS: &[crate::Test] = &[
    ("a_window_lets_its_peer_in", a_window_lets_its_peer_in),
    ("a_window_keeps_other_peers_out", a_window_keeps_other_peers_out),
    ("a_window_shows_no_more_than_its_region", a_window_shows_no_more_than_its_region),
    ("a_window_for_writes_allows_no_reads", a_window_for_writes_allows_no_reads),
    ("an_invalidated_window_keeps_everyone_out", an_invalidated_window_keeps_everyone_out),
    ("a_window_can_be_bound_again_with_another_key", a_window_can_be_bound_again_with_another_key),
    ("a_dropped_window_keeps_everyone_out", a_dropped_window_keeps_everyone_out),
    ("a_window_is_bound_once_at_a_time", a_window_is_bound_once_at_a_time),
    ("a_window_ends_with_its_queue_pair", a_window_ends_with_its_queue_pair),
];

/// Binds a window to 4096 bytes at offset 4096 of the end's region, and waits for the binding.
fn bind(end: &End, window: &MemoryWindow, access: WindowAccess) -> RemoteAddress {
    let slice = end.region.slice(4096, 4096).unwrap();
    let bound = end.run(Operation::BindWindow { window, slice, access });
    assert_eq!((bound.kind, bound.status), (CompletionKind::BindWindow, Status::Success));
    assert!(window.is_bound());
    RemoteAddress { address: end.region.remote().address + 4096, key: window.remote_key() }
}

fn invalidate(end: &End, window: &MemoryWindow) {
    let done = end.run(Operation::Invalidate { window });
    assert_eq!((done.kind, done.status), (CompletionKind::Invalidate, Status::Success));
    assert!(!window.is_bound());
}

fn read(end: &End, from: RemoteAddress) -> Completion {
    end.run(Operation::Read { into: end.region.slice(0, 8).unwrap(), from })
}

fn a_window_lets_its_peer_in() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::ReadWrite);
    assert_ne!(to.key, two.region.remote().key);
    one.region.write(0, &pattern(4096)).unwrap();
    assert_eq!(one.write(4096, to).status, Status::Success);
    assert_eq!(two.bytes(4096, 4096), pattern(4096));
    assert_eq!(read(&one, to).status, Status::Success);
    invalidate(&two, &window);
}

fn a_window_keeps_other_peers_out() {
    let lab = Lab::new();
    let (_one, two) = lab.pair();
    // A peer in the same protection domain, on the same device, with the window's exact key.
    let (mut stranger, theirs) = lab.pair();
    stranger.region.write(0, &[0xff; 64]).unwrap();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::ReadWrite);
    assert_eq!(stranger.write(64, to).status, Status::RemoteAccess);
    assert_eq!(two.bytes(4096, 64), [0; 64], "nothing was written");
    drop(theirs);
    let (reader, _theirs) = lab.pair();
    assert_eq!(read(&reader, to).status, Status::RemoteAccess);
}

fn a_window_shows_no_more_than_its_region() {
    // Soft-RoCE checks an access by the region's bounds, not by the window's.
    let lab = Lab::new();
    let len = crate::rig::REGION_BYTES as i64;
    for (offset, bytes) in [(-1, 8), (len - 7, 8), (len, 1), (1, len as usize)] {
        let (one, two) = lab.pair();
        let window = lab.domain.window().unwrap();
        let (slice, access) = (two.region.all(), WindowAccess::ReadWrite);
        let bound = two.run(Operation::BindWindow { window: &window, slice, access });
        assert_eq!(bound.status, Status::Success);
        let address = two.region.remote().address.wrapping_add_signed(offset);
        let to = RemoteAddress { address, key: window.remote_key() };
        assert_eq!(one.write(bytes, to).status, Status::RemoteAccess, "{bytes} bytes at {offset}");
    }
}

fn a_window_for_writes_allows_no_reads() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::Write);
    assert_eq!(one.write(8, to).status, Status::Success);
    assert_eq!(read(&one, to).status, Status::RemoteAccess);
}

fn an_invalidated_window_keeps_everyone_out() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::ReadWrite);
    assert_eq!(one.write(64, to).status, Status::Success);
    invalidate(&two, &window);
    assert_eq!(one.write(64, to).status, Status::RemoteAccess);
}

fn a_window_can_be_bound_again_with_another_key() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let window = lab.domain.window().unwrap();
    let mut keys = Vec::new();
    for _ in 0..300 {
        let to = bind(&two, &window, WindowAccess::Write);
        assert_eq!(one.write(8, to).status, Status::Success);
        invalidate(&two, &window);
        assert_ne!(keys.last(), Some(&to.key));
        keys.push(to.key);
    }
    // Now bound to another queue pair.
    let (three, four) = lab.pair();
    let to = bind(&four, &window, WindowAccess::Write);
    assert_eq!(three.write(8, to).status, Status::Success);
    assert_eq!(one.write(8, to).status, Status::RemoteAccess);
}

fn a_dropped_window_keeps_everyone_out() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::ReadWrite);
    let before = lab.device.counters().windows_deallocated;
    drop(window);
    assert_eq!(lab.device.counters().windows_deallocated, before + 1);
    assert_eq!(one.write(64, to).status, Status::RemoteAccess);
}

fn a_window_is_bound_once_at_a_time() {
    let lab = Lab::new();
    let (_one, two) = lab.pair();
    let (_three, four) = lab.pair();
    let window = lab.domain.window().unwrap();
    let refused = |end: &End, operation: Operation<'_>| {
        let error = end.qp.post_send(&[SendRequest::new(1, operation)]).unwrap_err();
        assert!(matches!(error.error, Error::WindowState), "{error}");
        assert_eq!(error.posted, 0);
    };
    refused(&two, Operation::Invalidate { window: &window });
    bind(&two, &window, WindowAccess::Write);
    let slice = two.region.slice(0, 64).unwrap();
    let again = Operation::BindWindow { window: &window, slice, access: WindowAccess::Read };
    refused(&two, again);
    refused(&four, again);
    refused(&four, Operation::Invalidate { window: &window });
    // A rejected chain leaves the window unchanged: its first request was not posted.
    let twice = [SendRequest::new(1, Operation::Invalidate { window: &window }); 2];
    assert!(two.qp.post_send(&twice).is_err());
    invalidate(&two, &window);
}

fn a_window_ends_with_its_queue_pair() {
    let lab = Lab::new();
    let (_one, two) = lab.pair();
    let (other, peer) = lab.pair();
    let window = lab.domain.window().unwrap();
    let to = bind(&two, &window, WindowAccess::ReadWrite);
    let End { qp, cq: _cq, region } = two;
    let before = lab.device.counters();
    drop(qp);
    let after = lab.device.counters();
    assert_eq!(after.windows_deallocated - before.windows_deallocated, 1);
    assert_eq!(after.leaks, 0, "a bound window would have kept the queue pair");
    assert!(!window.is_bound());
    assert_eq!(other.write(8, to).status, Status::RemoteAccess);
    let error = peer
        .qp
        .post_send(&[SendRequest::new(
            1,
            Operation::BindWindow {
                window: &window,
                slice: region.all(),
                access: WindowAccess::Read,
            },
        )])
        .unwrap_err();
    assert!(matches!(error.error, Error::WindowState), "a window that has ended stays so");
}
