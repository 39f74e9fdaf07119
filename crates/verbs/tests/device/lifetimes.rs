//! No object is freed while the device may use it, and all objects are freed in the end.

use crate::rig::{Lab, connect, pattern, wait};
use kauri_verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Error, Operation, QueuePair,
    QueuePairOptions, ReceiveRequest, SendRequest, Source, Status, Verbs, WindowAccess,
};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const TESTS: &[crate::Test] = &[
    ("a_region_outlives_its_handle_while_it_is_received_into", a_region_outlives_its_handle),
    ("a_region_goes_with_the_queue_pair_that_holds_it", a_region_goes_with_the_queue_pair),
    ("a_region_outlives_its_handle_while_a_window_is_bound", a_region_outlives_for_a_window),
    ("bytes_are_lent_only_while_nothing_refers_to_them", bytes_are_lent_only_while_free),
    ("parts_of_a_region_are_lent_independently", parts_of_a_region_are_lent_independently),
    ("objects_may_be_dropped_in_any_order", objects_may_be_dropped_in_any_order),
    ("many_connections_leave_nothing_behind", many_connections_leave_nothing_behind),
    ("too_little_lockable_memory_is_reported", too_little_lockable_memory),
];

fn a_region_outlives_its_handle() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let before = lab.device.counters();
    let region = lab.domain.register(8192, Access::LOCAL_WRITE).unwrap();
    let pinned = || lab.device.counters().pinned_bytes - before.pinned_bytes;
    assert_eq!(pinned(), 8192);
    two.qp.post_receive(&[ReceiveRequest { id: 4, into: Some(region.all()) }]).unwrap();
    drop(region);
    assert_eq!(pinned(), 8192, "the device may still write to it");
    one.region.write(0, &pattern(8000)).unwrap();
    let from = Source::Region(one.region.slice(0, 8000).unwrap());
    assert_eq!(one.run(Operation::Send { from }).status, Status::Success);
    assert_eq!(two.done().bytes, 8000);
    assert_eq!(pinned(), 0);
}

fn a_region_goes_with_the_queue_pair() {
    let lab = Lab::new();
    let (one, two) = (lab.end(1), lab.end(2));
    // Waits for a receive for ever.
    connect(&one.qp, &two.qp, &ConnectOptions { receiver_retries: 7, ..Default::default() });
    let before = lab.device.counters();
    let region = lab.domain.register(4096, Access::LOCAL_WRITE).unwrap();
    let request = SendRequest::new(1, Operation::Send { from: Source::Region(region.all()) });
    one.qp.post_send(&[request.unsignalled()]).unwrap();
    one.qp.post_receive(&[ReceiveRequest { id: 1, into: Some(region.all()) }]).unwrap();
    drop(region);
    assert_eq!(lab.device.counters().pinned_bytes - before.pinned_bytes, 4096);
    drop(one.qp);
    assert_eq!(lab.device.counters().pinned_bytes, before.pinned_bytes);
}

fn a_region_outlives_for_a_window() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let before = lab.device.counters();
    let region = lab.domain.register(4096, Access::WINDOW | Access::LOCAL_WRITE).unwrap();
    let window = lab.domain.window().unwrap();
    let (slice, access) = (region.all(), WindowAccess::ReadWrite);
    two.run(Operation::BindWindow { window: &window, slice, access });
    let to = kauri_verbs::RemoteAddress { key: window.remote_key(), ..region.remote() };
    drop(region);
    one.region.write(0, &pattern(4096)).unwrap();
    assert_eq!(one.write(4096, to).status, Status::Success);
    let read = Operation::Read { into: one.region.slice(8192, 4096).unwrap(), from: to };
    assert_eq!(one.run(read).status, Status::Success);
    assert_eq!(one.bytes(8192, 4096), pattern(4096));
    let pinned = || lab.device.counters().pinned_bytes - before.pinned_bytes;
    assert_eq!(pinned(), 4096);
    // The completion of a later request implies the invalidation, too.
    two.qp
        .post_send(&[
            SendRequest::new(1, Operation::Invalidate { window: &window }).unsignalled(),
            SendRequest::new(
                2,
                Operation::Write { from: Source::Nothing, to: one.region.remote() },
            ),
        ])
        .unwrap();
    assert_eq!(two.done().id, 2);
    assert_eq!(pinned(), 0);
}

fn bytes_are_lent_only_while_free() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let mut region = lab.domain.register(5000, Access::LOCAL_WRITE).unwrap();
    let bytes = region.bytes_mut().unwrap();
    assert_eq!(bytes, [0; 5000]);
    bytes.copy_from_slice(&pattern(5000));
    let request = Operation::Write { from: Source::Region(region.all()), to: two.region.remote() };
    one.qp.post_send(&[SendRequest::new(1, request)]).unwrap();
    assert!(region.bytes_mut().is_none(), "the device may still read them");
    one.done();
    assert_eq!(two.bytes(0, 5000), pattern(5000));
    assert!(region.bytes_mut().is_some());
    for access in [Access::REMOTE_READ, Access::REMOTE_WRITE] {
        let mut open = lab.domain.register(4096, access).unwrap();
        assert!(open.bytes_mut().is_none(), "peers may use them at any time");
    }
}

fn parts_of_a_region_are_lent_independently() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let before = lab.device.counters().pinned_bytes;
    let region = lab.domain.register(8192, Access::LOCAL_WRITE).unwrap();
    let (mut low, high) = region.split_at(3000).ok().unwrap();
    assert_eq!((low.len(), high.len()), (3000, 5192));
    assert_eq!(high.remote().address, low.remote().address + 3000);
    assert!(low.slice(2999, 2).is_err());
    two.qp.post_receive(&[ReceiveRequest { id: 1, into: Some(high.all()) }]).unwrap();
    low.bytes_mut().expect("only the other part is in use").fill(7);
    let high = high.split_at(1).expect_err("it is in use");
    let from = Source::Inline(&[9; 100]);
    one.run(Operation::Send { from });
    two.done();
    let (mut first, mut rest) = high.split_at(100).ok().unwrap();
    assert_eq!(first.bytes_mut().unwrap(), [9; 100]);
    assert!(rest.bytes_mut().unwrap().iter().all(|b| *b == 0));
    assert!(low.bytes_mut().unwrap().iter().all(|b| *b == 7));
    drop((low, first));
    assert_eq!(lab.device.counters().pinned_bytes - before, 8192, "it goes as a whole");
    drop(rest);
    assert_eq!(lab.device.counters().pinned_bytes, before);
}

fn objects_may_be_dropped_in_any_order() {
    let before = (kernel_objects(), descriptors());
    for order in 0..24 {
        let lab = Lab::new();
        let device = lab.device.clone();
        let (one, two) = lab.pair();
        let window = lab.domain.window().unwrap();
        let (slice, access) = (one.region.all(), WindowAccess::Read);
        one.run(Operation::BindWindow { window: &window, slice, access });
        one.qp.post_receive(&[ReceiveRequest { id: 1, into: Some(one.region.all()) }]).unwrap();
        drop((lab, two));
        let mut objects: [Option<Box<dyn std::any::Any>>; 4] = [
            Some(Box::new(one.region)),
            Some(Box::new(one.qp)),
            Some(Box::new(window)),
            Some(Box::new(one.cq)),
        ];
        let mut left = vec![0, 1, 2, 3];
        let mut rest = order;
        while let n @ 1.. = left.len() {
            drop(objects[left.remove(rest % n)].take());
            rest /= n;
        }
        let counters = device.counters();
        assert_eq!((counters.pinned_bytes, counters.leaks), (0, 0), "order {order}");
        assert_eq!(counters.registrations, counters.deregistrations);
        assert_eq!(counters.windows_allocated, counters.windows_deallocated);
        assert_eq!(counters.queue_pairs_created, counters.queue_pairs_destroyed);
    }
    assert_eq!((kernel_objects(), descriptors()), before);
}

/// The kernel's count of each kind of object.
fn kernel_objects() -> String {
    let output = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn many_connections_leave_nothing_behind() {
    // 13 ms each in the emulated machine.
    let connects: u64 =
        std::env::var("KAURI_TEST_RDMA_CONNECTS").map_or(500, |text| text.parse().unwrap());
    let lab = Lab::new();
    let cq = CompletionQueue::new(&lab.device, 256, true).unwrap();
    let one_connection = || {
        let make = |key| {
            let options = QueuePairOptions { key, ..lab.options() };
            QueuePair::new(&lab.domain, &cq, &options).unwrap()
        };
        let (one, two) = (make(1), make(2));
        connect(&one, &two, &ConnectOptions::default());
        let ring = lab.domain.register(65_536, Access::WINDOW | Access::LOCAL_WRITE).unwrap();
        let window = lab.domain.window().unwrap();
        two.post_empty_receives(8, 0).unwrap();
        let (slice, access) = (ring.all(), WindowAccess::Write);
        let bind = Operation::BindWindow { window: &window, slice, access };
        two.post_send(&[SendRequest::new(1, bind)]).unwrap();
        assert_eq!(wait(&cq).status, Status::Success);
        let to = kauri_verbs::RemoteAddress { key: window.remote_key(), ..ring.remote() };
        let hello =
            Operation::WriteWithImmediate { from: Source::Inline(b"hello"), to, immediate: 5 };
        one.post_send(&[SendRequest::new(2, hello).unsignalled()]).unwrap();
        assert_eq!(wait(&cq).immediate, Some(5));
        // The remaining receives stay unused, the send's completion unread.
        drop((one, ring, two, window));
        while cq.poll(&mut [Completion::EMPTY; 16]).unwrap() > 0 {}
    };
    one_connection();
    let before = (lab.device.counters().pinned_bytes, descriptors(), mappings());
    let objects = kernel_objects();
    for _ in 0..connects {
        one_connection();
    }
    let after = (lab.device.counters().pinned_bytes, descriptors(), mappings());
    assert_eq!((after.0, after.1), (before.0, before.1));
    assert_eq!(kernel_objects(), objects);
    assert!(after.2 <= before.2 + 8, "{} mappings, before {}", after.2, before.2);
    let counters = lab.device.counters();
    assert_eq!(counters.queue_pairs_destroyed, 2 * (connects + 1));
    assert_eq!(counters.leaks, 0);
    println!("  {connects} connections");
}

/// The argument that makes this program register more memory than it may, and print the error.
pub const MEMLOCK_CHILD: &str = "memlock-child";

pub fn memlock_child() {
    let (device, _) = Verbs::load().unwrap().open_active().unwrap();
    let domain = device.protection_domain().unwrap();
    let small = domain.register(4096, Access::LOCAL_WRITE);
    println!("small: {}", small.is_ok());
    match domain.register(1 << 20, Access::LOCAL_WRITE) {
        Err(error @ Error::LockedMemory { .. }) => println!("large: {error}"),
        other => println!("large: {:?}", other.err()),
    }
    println!("pinned: {}", device.counters().pinned_bytes);
}

fn too_little_lockable_memory() {
    // Root may pin without limit, so the child has no privileges.
    let output = Command::new("prlimit")
        .arg("--memlock=65536:65536")
        .arg(std::env::current_exe().unwrap())
        .arg(MEMLOCK_CHILD)
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "small: true\nlarge: cannot pin 1048576 bytes: the limit of locked memory \
                    (RLIMIT_MEMLOCK, ulimit -l) is 65536 bytes\npinned: 4096\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
