//! Two ends in one process; requests that a server accepts or refuses.

use super::*;
use std::os::fd::AsFd;
use std::time::Duration;

const PROBE: [u8; 8] = *b"12345678";

fn pair(ring_bytes: u32) -> (SharedEnd, SharedEnd) {
    let offer = Offer::make(&request(ring_bytes), PROBE).unwrap();
    let descriptors = offer.descriptors.iter().map(|fd| fd.try_clone().unwrap()).collect();
    let (client, probe) = accept(&offer.answer, descriptors).unwrap();
    assert_eq!(probe, PROBE);
    (RingEnd::new(offer.shape, offer.fabric), client)
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

/// Waits until something has come.
fn sleep(end: &mut SharedEnd) {
    let fabric = end.fabric();
    if fabric.fall_asleep() {
        let bell = fabric.bell();
        let timeout = Some(Duration::from_secs(20));
        let (one, other) = sys::wait_readable(bell.as_fd(), bell.as_fd(), timeout).unwrap();
        assert!(one || other, "nobody woke it");
        bell.reset();
        fabric.wake_up();
    }
}

/// Sends the stream's first `total` bytes in pieces, while it receives as many from the other, and
/// sleeps whenever it can do neither.
fn talk(mut end: SharedEnd, total: usize, piece: usize) {
    let (mut sent, mut received) = (0, 0);
    let mut buffer = Vec::with_capacity(40_000);
    while sent < total || received < total {
        end.look().unwrap();
        buffer.clear();
        let got = end.receive(&mut buffer);
        for (at, got) in (received..).zip(&buffer) {
            assert_eq!(*got, byte(at), "at {at}");
        }
        received += got;
        // In turns, so that both sides sleep often.
        let wanted = piece.min(total - sent);
        let bytes: Vec<u8> = (sent..sent + wanted).map(byte).collect();
        let may = sent <= received + 100_000;
        let put = if may { end.send(&bytes[..wanted / 3], &bytes[wanted / 3..]) } else { 0 };
        sent += put;
        if got == 0 && put == 0 && (sent < total || received < total) {
            sleep(&mut end);
        }
    }
}

#[test]
fn two_threads_talk_and_sleep_and_lose_nothing() {
    for (ring_bytes, total, piece) in [(0, 6_000_000, 30_000), (64 << 10, 3_000_000, 777)] {
        let (server, client) = pair(ring_bytes);
        std::thread::scope(|scope| {
            scope.spawn(move || talk(server, total, piece));
            scope.spawn(move || talk(client, total, piece));
        });
    }
}

#[test]
fn an_end_that_rests_loses_nothing() {
    let (mut server, mut client) = pair(64 << 10);
    let mut buffer = Vec::with_capacity(16_000);
    for round in 0..20 {
        // Both directions have bytes on the way while the end rests.
        let bytes: Vec<u8> = (round..round + 10_000).map(byte).collect();
        assert_eq!(server.send(&bytes, &[]), bytes.len());
        assert_eq!(client.send(&bytes, &[]), bytes.len());
        client.fabric().rest();
        for end in [&mut client, &mut server] {
            buffer.clear();
            while buffer.len() < bytes.len() {
                assert!(end.look().unwrap().readable);
                end.receive(&mut buffer);
            }
            assert_eq!(buffer, bytes, "round {round}");
            end.look().unwrap();
        }
    }
}

#[test]
fn one_byte_back_and_forth_wakes_the_other_each_time() {
    let (mut server, mut client) = pair(0);
    const ROUNDS: usize = 20_000;
    let echo = |end: &mut SharedEnd, begins: bool| {
        let mut buffer = Vec::with_capacity(16);
        for round in 0..ROUNDS {
            if begins || round > 0 {
                assert_eq!(end.send(&[round as u8], &[]), 1);
            }
            while !end.look().unwrap().readable {
                sleep(end);
            }
            buffer.clear();
            assert_eq!(end.receive(&mut buffer), 1);
        }
        if !begins {
            end.send(&[0], &[]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&mut server, false));
        scope.spawn(|| echo(&mut client, true));
    });
}

#[test]
fn bytes_are_copied_whole_from_and_to_any_place() {
    let (memory, _) = SharedMemory::create(8192).unwrap();
    let bytes: Vec<u8> = (0..100).map(byte).collect();
    for offset in 0..20 {
        for length in 0..60 {
            memory.write(100, &[0; 200]);
            memory.write(100 + offset, &bytes[..length]);
            let mut all = vec![9];
            memory.read(100, 200, &mut all);
            assert!(all[1..=offset].iter().all(|byte| *byte == 0));
            assert_eq!(all[1 + offset..][..length], bytes[..length]);
            assert!(all[1 + offset + length..].iter().all(|byte| *byte == 0));
            let mut part = vec![9];
            memory.read(100 + offset, length, &mut part);
            assert_eq!(part[1..], bytes[..length]);
        }
    }
    let mut end = Vec::new();
    memory.read(8190, 2, &mut end);
    assert_eq!(end, [0, 0]);
    for (offset, length) in [(8190, 3), (8193, 0), (usize::MAX, 1)] {
        let read = std::panic::AssertUnwindSafe(|| memory.read(offset, length, &mut Vec::new()));
        assert!(std::panic::catch_unwind(read).is_err(), "{offset} {length}");
    }
}

#[test]
fn what_a_server_is_asked_is_checked() {
    let of = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    for (what, parameters, sound) in [
        ("as the server likes", of(&[1, 0]), true),
        ("the largest", of(&[1, 1 << 20]), true),
        ("larger", of(&[1, 2 << 20]), false),
        ("smaller", of(&[1, 4096]), false),
        ("no power of two", of(&[1, 100_000]), false),
        ("another version", of(&[2, 0]), false),
        ("too short", of(&[1]), false),
        ("too long", of(&[1, 0, 0]), false),
        ("nothing", of(&[]), false),
    ] {
        let made = Offer::make(&parameters, PROBE);
        assert_eq!(made.is_ok(), sound, "{what}");
        assert!(sound || matches!(made, Err(Refusal::Parameters(_))), "{what}");
    }
}

#[test]
fn what_a_client_is_answered_is_checked() {
    let offer = Offer::make(&request(0), PROBE).unwrap();
    let descriptors =
        || -> Vec<OwnedFd> { offer.descriptors.iter().map(|fd| fd.try_clone().unwrap()).collect() };
    assert!(accept(&offer.answer, descriptors()).is_ok());
    assert!(accept(&offer.answer, Vec::new()).is_err(), "no descriptors");
    assert!(accept(&offer.answer[..19], descriptors()).is_err(), "too short");
    for (at, byte) in [(0, 2), (5, 1), (6, 8), (8, 65)] {
        let mut answer = offer.answer.clone();
        answer[at] = byte;
        assert!(accept(&answer, descriptors()).is_err(), "byte {at}");
    }
    // Memory that its maker could shrink.
    let mut unsealed = descriptors();
    let layout = Layout { shape: Shape::new(RING_BYTES, FRAMES).unwrap() };
    unsealed[0] = tempfile(layout.length());
    assert!(accept(&offer.answer, unsealed).is_err());
}

fn tempfile(length: usize) -> OwnedFd {
    let path = std::env::temp_dir().join(format!("kauri-unsealed-{}", std::process::id()));
    let file = std::fs::File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(length as u64).unwrap();
    file.into()
}

#[test]
fn descriptors_go_beside_the_first_byte() {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let offer = Offer::make(&request(0), PROBE).unwrap();
    let beside: Vec<_> = offer.descriptors.iter().map(AsFd::as_fd).collect();
    let sent = sys::send_with_descriptors(a.as_fd(), b"hello", &beside).unwrap();
    assert_eq!(sent, 5);
    let (mut bytes, mut got) = (Vec::with_capacity(3), Vec::new());
    assert_eq!(sys::receive_with_descriptors(b.as_fd(), &mut bytes, &mut got).unwrap(), 3);
    assert_eq!((bytes.as_slice(), got.len()), (&b"hel"[..], 3));
    bytes.reserve(10);
    assert_eq!(sys::receive_with_descriptors(b.as_fd(), &mut bytes, &mut got).unwrap(), 2);
    assert_eq!((bytes.as_slice(), got.len()), (&b"hello"[..], 3));
    assert!(accept(&offer.answer, got).is_ok());
    assert_eq!(sys::peer_user(b.as_fd()).unwrap(), sys::own_user());
    assert!(sys::send_with_descriptors(a.as_fd(), b"", &[]).is_err());
}

#[test]
fn memory_is_given_back_when_both_have_gone() {
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("kauri-session")).count()
    };
    // Others run beside this one: their mappings come and go too.
    let many: Vec<_> = (0..200).map(|_| pair(64 << 10)).collect();
    assert!(mappings() >= 400);
    drop(many);
    assert!(mappings() < 200);
}

#[test]
fn ringing_never_waits_whatever_the_client_does_with_its_end() {
    let (bell, theirs) = bell::Bell::of_client().unwrap();
    let theirs = std::os::unix::net::UnixStream::from(theirs);
    theirs.set_nonblocking(false).unwrap();
    // Nobody reads: more than a socket holds.
    (0..1_000_000).for_each(|_| bell.ring());
    let hears = bell::Bell::Socket(theirs.into());
    let readable =
        || sys::wait_readable(hears.as_fd(), hears.as_fd(), Some(Duration::ZERO)).unwrap().0;
    assert!(readable());
    hears.reset();
    assert!(!readable());
    bell.ring();
    assert!(readable());
    drop(hears);
    bell.ring();
}
