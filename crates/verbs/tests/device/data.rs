//! Data transfer from one end to the other, by every operation.

use crate::rig::{Lab, local_address, pattern};
use kauri_verbs::{
    Access, CompletionKind, GidKind, LinkLayer, Operation, ReceiveRequest, RemoteAddress,
    SendRequest, Source, Verbs,
};

pub const TESTS: &[crate::Test] = &[
    ("the_device_and_its_port_are_found", the_device_and_its_port_are_found),
    ("a_write_with_immediate_of_each_size_class", a_write_with_immediate_of_each_size_class),
    ("inline_bytes_may_change_after_the_post", inline_bytes_may_change_after_the_post),
    ("a_read_brings_the_peers_bytes", a_read_brings_the_peers_bytes),
    ("a_send_goes_into_the_receives_buffer", a_send_goes_into_the_receives_buffer),
    ("parts_are_gathered_into_one_write", parts_are_gathered_into_one_write),
    ("a_chain_is_one_post", a_chain_is_one_post),
];

fn the_device_and_its_port_are_found() {
    let verbs = Verbs::load().unwrap();
    let names = verbs.device_names().unwrap();
    let (device, number) = verbs.open_active().unwrap();
    assert!(names.contains(&device.name().to_string()), "{names:?}");
    let port = verbs.open(device.name()).unwrap().port(number).unwrap();
    assert!(port.active && port.mtu >= 1024 && port.message_bytes_max >= 1 << 20, "{port:?}");
    assert_eq!(port.link_layer, LinkLayer::Ethernet);
    let limits = device.limits().unwrap();
    assert!(limits.windows_type_2 && limits.ports == 1, "{limits:?}");
    let gids = device.gids().unwrap();
    let chosen = kauri_verbs::choose_gid(&gids, local_address()).unwrap();
    assert_eq!((chosen.kind, chosen.port), (GidKind::RoceV2, number));
    assert_eq!(chosen.gid.to_string(), format!("::ffff:{}", local_address()));
    assert!(verbs.open("no_such_device").is_err_and(|error| error.is_absence()));
}

fn a_write_with_immediate_of_each_size_class() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    assert_eq!(one.qp.inline_bytes_max(), 512);
    let bytes = pattern(65_536);
    one.region.write(0, &bytes).unwrap();
    for (i, len) in [0, 1, 512, 513, 65_536].into_iter().enumerate() {
        let inline_before = lab.device.counters().send_requests_inline;
        let before = two.bytes(0, 65_537);
        two.qp.post_empty_receives(1, 40 + i as u64).unwrap();
        let to = RemoteAddress { address: two.region.remote().address + 1, ..two.region.remote() };
        let from = Source::Region(one.region.slice(0, len).unwrap());
        let sent =
            one.run(Operation::WriteWithImmediate { from, to, immediate: 0x0102_0300 + i as u32 });
        assert_eq!((sent.kind, sent.id, sent.queue_pair), (CompletionKind::Write, 7, 1));
        let came = two.done();
        assert_eq!((came.kind, came.id), (CompletionKind::ReceiveImmediate, 40 + i as u64));
        assert_eq!((came.bytes, came.immediate), (len as u32, Some(0x0102_0300 + i as u32)));
        assert_eq!(two.bytes(1, len), bytes[..len], "{len} bytes");
        assert_eq!(
            two.bytes(1 + len, 65_536 - len),
            before[1 + len..],
            "nothing beyond {len} bytes"
        );
        let inline = lab.device.counters().send_requests_inline - inline_before;
        assert_eq!(inline, u64::from((1..=512).contains(&len)), "{len} bytes");
    }
}

fn inline_bytes_may_change_after_the_post() {
    let lab = Lab::new();
    let (one, two) = lab.pair();
    let mut bytes = pattern(512);
    let expected = bytes.clone();
    let operation = Operation::Write { from: Source::Inline(&bytes), to: two.region.remote() };
    one.qp.post_send(&[SendRequest::new(1, operation)]).unwrap();
    bytes.fill(0);
    one.done();
    assert_eq!(two.bytes(0, 512), expected);
}

fn a_read_brings_the_peers_bytes() {
    let lab = Lab::new();
    let (one, mut two) = lab.pair();
    for len in [1, 4096, 65_536] {
        let bytes: Vec<u8> = pattern(len).iter().map(|b| b ^ len as u8).collect();
        two.region.write(0, &bytes).unwrap();
        let into = one.region.slice(100, len).unwrap();
        let read = one.run(Operation::Read { into, from: two.region.remote() });
        assert_eq!((read.kind, read.bytes), (CompletionKind::Read, len as u32));
        assert_eq!(one.bytes(100, len), bytes, "{len} bytes");
    }
}

fn a_send_goes_into_the_receives_buffer() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let bytes = pattern(3000);
    one.region.write(0, &bytes).unwrap();
    let into = Some(two.region.slice(500, 3000).unwrap());
    two.qp.post_receive(&[ReceiveRequest { id: 9, into }]).unwrap();
    let from = Source::Region(one.region.slice(0, 3000).unwrap());
    assert_eq!(one.run(Operation::Send { from }).kind, CompletionKind::Send);
    let came = two.done();
    assert_eq!((came.kind, came.id, came.bytes), (CompletionKind::Receive, 9, 3000));
    assert_eq!(came.immediate, None);
    assert_eq!(two.bytes(500, 3000), bytes);
}

fn parts_are_gathered_into_one_write() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    let bytes = pattern(2000);
    one.region.write(0, &bytes).unwrap();
    let mut local = lab.domain.register(100, Access::SEND).unwrap();
    local.bytes_mut().expect("no other user has it").copy_from_slice(&[0xee; 100]);
    let parts = [
        one.region.slice(0, 1000).unwrap(),
        local.all(),
        one.region.slice(0, 0).unwrap(),
        one.region.slice(1000, 1000).unwrap(),
    ];
    let sent = one.run(Operation::Write { from: Source::Gather(&parts), to: two.region.remote() });
    assert_eq!(sent.status, kauri_verbs::Status::Success);
    let expected = [&bytes[..1000], &[0xee; 100], &bytes[1000..]].concat();
    assert_eq!(two.bytes(0, 2100), expected);
}

fn a_chain_is_one_post() {
    let lab = Lab::new();
    let (mut one, two) = lab.pair();
    one.region.write(0, &pattern(8192)).unwrap();
    two.qp.post_empty_receives(1, 0).unwrap();
    let before = lab.device.counters();
    let to =
        |i: u64| RemoteAddress { address: two.region.remote().address + i, ..two.region.remote() };
    let part = |offset| Source::Region(one.region.slice(offset, 4096).unwrap());
    one.qp
        .post_send(&[
            SendRequest::new(1, Operation::Write { from: part(0), to: to(0) }).unsignalled(),
            SendRequest::new(2, Operation::Write { from: part(4096), to: to(4096) }).unsignalled(),
            SendRequest::new(
                3,
                Operation::WriteWithImmediate { from: Source::Nothing, to: to(0), immediate: 5 },
            )
            .fenced(),
        ])
        .unwrap();
    assert_eq!(two.done().immediate, Some(5));
    assert_eq!(two.bytes(0, 8192), pattern(8192), "requests complete in post order");
    assert_eq!(one.done().id, 3);
    let after = lab.device.counters();
    assert_eq!(after.sends_posted - before.sends_posted, 1);
    assert_eq!(after.send_requests - before.send_requests, 3);
    assert_eq!(after.send_requests_signalled - before.send_requests_signalled, 1);
    assert_eq!(after.send_bytes - before.send_bytes, 8192);
}
