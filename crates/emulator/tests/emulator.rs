//! The emulator: which bytes survive a power loss, and which are lost.

use kauri_emulator::{About, Choice, Emulator, EmulatorConfig};
use kauri_medium::faults::Fault;
use kauri_medium::{Directory, Error, IoKind, Medium};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::{Arc, mpsc};
use std::thread;

/// A small generator for choices (xorshift).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn with_sectors(sector_bytes: usize) -> Emulator {
    Emulator::new(EmulatorConfig { sector_bytes, ..EmulatorConfig::default() })
}

/// A durable log of this length, all zeros.
fn durable_log(emulator: &Emulator, len: u64) -> Arc<dyn Medium> {
    let log = emulator.create_log("log", "create").unwrap();
    log.grow(len).unwrap();
    log.drain("grown").unwrap();
    log
}

fn store(log: &Arc<dyn Medium>, offset: u64, bytes: &[u8]) {
    log.store(offset, &[IoSlice::new(bytes)]).unwrap();
}

fn contents(emulator: &Emulator) -> Vec<u8> {
    let log = emulator.open_log("log").unwrap();
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).unwrap();
    bytes
}

/// The possible contents of the log after a power loss now.
fn all_contents(emulator: &Emulator) -> BTreeSet<Vec<u8>> {
    let images = emulator.crash_all_at(emulator.events(), 4096).expect("few enough");
    images.iter().map(contents).collect()
}

#[test]
fn stores_that_were_not_drained_survive_in_any_combination_of_sectors() {
    for (sector, expected) in [(512, 16), (4096, 2), (64, 256)] {
        let emulator = with_sectors(sector);
        let log = durable_log(&emulator, 8192);
        let len = [(64, 512), (512, 2048), (4096, 4096)].into_iter().find(|(s, _)| *s == sector);
        store(&log, 4096, &vec![7; len.unwrap().1]);
        let images = emulator.crash_all_at(emulator.events(), expected).expect("few enough");
        assert_eq!(images.len(), expected, "sectors of {sector}");
        assert!(emulator.crash_all_at(emulator.events(), expected - 1).is_none());
        for image in images {
            for sector in contents(&image).chunks(sector) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "torn within a sector");
            }
        }
    }
}

#[test]
fn a_sector_has_the_state_after_some_number_of_its_stores() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 512);
    store(&log, 0, b"one");
    store(&log, 2, b"two");
    let starts: BTreeSet<Vec<u8>> =
        all_contents(&emulator).into_iter().map(|bytes| bytes[..5].to_vec()).collect();
    let expected = [*b"\0\0\0\0\0", *b"one\0\0", *b"ontwo"].map(|bytes| bytes.to_vec());
    assert_eq!(starts, BTreeSet::from(expected), "never the second without the first");
    log.drain("t").unwrap();
    store(&log, 2, b"X");
    let starts: BTreeSet<Vec<u8>> =
        all_contents(&emulator).into_iter().map(|bytes| bytes[..5].to_vec()).collect();
    assert_eq!(starts, BTreeSet::from([*b"ontwo", *b"onXwo"].map(|bytes| bytes.to_vec())));
}

/// Random stores and drains. Every image is compared with a model that knows no sector histories: snapshots of
/// the whole file after each store.
#[test]
fn drained_bytes_survive_and_no_bytes_are_invented() {
    const LEN: usize = 8192;
    for (seed, sector) in [(1, 512), (2, 512), (3, 4096), (4, 64)] {
        let emulator = with_sectors(sector);
        let log = durable_log(&emulator, LEN as u64);
        let start = emulator.events();
        let mut choices = Choices(seed);
        // Whole contents after events; and the events at which drains ended and had begun.
        let mut snapshots = vec![(start, vec![0; LEN])];
        let mut drains = vec![(start, start)];
        for _ in 0..80 {
            if choices.below(6) == 0 {
                log.drain("t").unwrap();
                drains.push((emulator.events(), emulator.events() - 2));
            } else {
                let len = 1 + choices.below(1500) as usize;
                let offset = choices.below((LEN - len) as u64);
                let bytes: Vec<u8> = (0..len).map(|_| choices.next() as u8).collect();
                store(&log, offset, &bytes);
                snapshots.push((emulator.events(), contents(&emulator)));
            }
        }
        let mut images = 0;
        for image in emulator.crash_images(seed, 1000).filter(|image| image.at >= start) {
            images += 1;
            let durable = drains.iter().rfind(|(ended, _)| *ended <= image.at).unwrap().1;
            let oldest = snapshots.iter().rposition(|(at, _)| *at <= durable).unwrap();
            let possible: Vec<_> =
                snapshots[oldest..].iter().filter(|(at, _)| *at <= image.at).collect();
            for (number, found) in contents(&image.emulator).chunks(sector).enumerate() {
                let range = number * sector..(number + 1) * sector;
                assert!(
                    possible.iter().any(|(_, bytes)| bytes[range.clone()] == *found),
                    "seed {seed}, image {} of event {}, sector {number}",
                    image.seed,
                    image.at
                );
            }
        }
        // Two sectors of 4096 bytes have no more states.
        assert!(images > 150, "{images} images");
    }
}

fn some_workload(emulator: &Emulator) {
    let log = durable_log(emulator, 1 << 16);
    let mut choices = Choices(99);
    for i in 0..60u64 {
        store(&log, choices.below(60_000), &choices.next().to_le_bytes().repeat(64));
        match i % 10 {
            3 => log.drain("t").unwrap(),
            5 => emulator.replace_file("meta", &i.to_le_bytes(), "meta").unwrap(),
            7 => log.grow((1 << 16) + i * 4096).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn images_differ_and_repeat_with_the_seed() {
    let images_of = |seed| -> Vec<(usize, u64, u64)> {
        let emulator = with_sectors(512);
        some_workload(&emulator);
        let images = emulator.crash_images(seed, 2000);
        images.map(|image| (image.at, image.seed, image.emulator.content_hash())).collect()
    };
    let images = images_of(5);
    assert_eq!(images.len(), 2000);
    assert_eq!(images, images_of(5));
    assert_ne!(images, images_of(6));
    let hashes: BTreeSet<u64> = images.iter().map(|(_, _, hash)| *hash).collect();
    assert_eq!(hashes.len(), 2000);
    let emulator = with_sectors(512);
    some_workload(&emulator);
    for (at, seed, hash) in images.iter().step_by(100) {
        assert_eq!(emulator.crash_seeded(*at, *seed).content_hash(), *hash);
    }
}

#[test]
fn all_and_nothing_are_among_the_images() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 1 << 16);
    store(&log, 0, &[1; 60_000]);
    let last = emulator.events();
    let found: Vec<Vec<u8>> = emulator
        .crash_images(1, 400)
        .filter(|image| image.at == last)
        .map(|image| contents(&image.emulator))
        .collect();
    let lost = |bytes: &Vec<u8>| bytes.chunks(512).filter(|sector| sector[0] == 0).count();
    let counts: BTreeSet<usize> = found.iter().map(lost).collect();
    // 128 sectors, of which 10 and a half were never stored to.
    for expected in [128, 127, 11, 10] {
        assert!(counts.contains(&expected), "no image lost {expected} sectors: {counts:?}");
    }
}

#[test]
fn a_length_survives_whole_in_part_or_not_and_new_space_holds_anything() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 4096);
    store(&log, 0, &[3; 4096]);
    log.drain("t").unwrap();
    log.grow(16384).unwrap();
    let found = all_contents(&emulator);
    let lengths: BTreeSet<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([4096, 8192, 16384]));
    let whole: Vec<_> = found.iter().filter(|bytes| bytes.len() == 16384).collect();
    assert!(whole.iter().any(|bytes| bytes[4096..].iter().all(|byte| *byte == 0)), "zeros");
    assert!(whole.iter().any(|bytes| bytes[4096..].iter().all(|byte| *byte == 3)), "old bytes");
    assert_eq!(whole.len(), 3, "and noise");
    assert!(found.iter().all(|bytes| bytes[..4096].iter().all(|byte| *byte == 3)));
    log.drain("t").unwrap();
    let found = all_contents(&emulator);
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|bytes| bytes.len() == 16384 && bytes[16383] == 0));
}

#[test]
fn a_new_log_file_exists_once_its_name_is_synced() {
    let emulator = with_sectors(512);
    let faults = Arc::clone(emulator.faults());
    faults.disable("create/directory");
    emulator.create_log("a", "create").unwrap();
    faults.enable("create/directory");
    let lists = |emulator: &Emulator| -> BTreeSet<Vec<String>> {
        let images = emulator.crash_all_at(emulator.events(), 100).unwrap();
        images.iter().map(|image| image.list().unwrap()).collect()
    };
    assert_eq!(lists(&emulator), BTreeSet::from([vec![], vec!["a".to_owned()]]));
    emulator.create_log("b", "create").unwrap();
    assert_eq!(lists(&emulator), BTreeSet::from([vec!["a".to_owned(), "b".to_owned()]]));
    assert!(matches!(emulator.open_log("c"), Err(Error::NotFound)));
}

/// The contents of "meta" in all states that a crash at any moment of `run` may leave.
fn metas(prepare: impl Fn(&Emulator), run: impl Fn(&Emulator)) -> BTreeSet<Option<Vec<u8>>> {
    let emulator = with_sectors(512);
    emulator.replace_file("meta", &[1; 700], "first").unwrap();
    prepare(&emulator);
    let before = emulator.events();
    run(&emulator);
    (before..=emulator.events())
        .flat_map(|at| emulator.crash_all_at(at, 1000).unwrap())
        .map(|image| image.read_file("meta").unwrap())
        .collect()
}

#[test]
fn a_small_file_is_the_old_or_the_new_one() {
    let replace = |emulator: &Emulator| emulator.replace_file("meta", &[2; 900], "m").unwrap();
    let both = BTreeSet::from([Some(vec![1; 700]), Some(vec![2; 900])]);
    assert_eq!(metas(|_| (), replace), both);
    // Without the sync of the new file's bytes its contents can be anything.
    let torn = metas(|emulator| emulator.faults().disable("m/file"), replace);
    assert!(torn.contains(&Some(Vec::new())) && torn.len() > 4, "{}", torn.len());

    let emulator = with_sectors(512);
    emulator.replace_file("meta", b"old", "m").unwrap();
    emulator.faults().disable("m/directory");
    emulator.replace_file("meta", b"new", "m").unwrap();
    let after = emulator.crash_all_at(emulator.events(), 10).unwrap();
    assert_eq!(after.len(), 2, "without the directory's sync it may be the old one even now");

    let removed = metas(|_| (), |emulator| emulator.remove_file("meta", "m").unwrap());
    assert_eq!(removed, BTreeSet::from([Some(vec![1; 700]), None]));
}

#[test]
fn the_death_of_the_process_loses_nothing_and_makes_nothing_durable() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 4096);
    let _lock = emulator.lock().unwrap();
    assert!(matches!(emulator.lock(), Err(Error::AlreadyLocked { .. })));
    store(&log, 0, b"stored");
    emulator.faults().disable("m/directory");
    emulator.replace_file("meta", b"new", "m").unwrap();
    let image = emulator.process_death_image();
    assert_eq!(contents(&image), contents(&emulator));
    assert_eq!(image.read_file("meta"), Ok(Some(b"new".to_vec())));
    assert!(image.lock().unwrap().was_unclean());
    // The power fails.
    let losses = image.crash_all_at(image.events(), 100).unwrap();
    assert_eq!(losses.len(), 4);
    // The next process drains what it found.
    let log = image.open_log("log").unwrap();
    log.drain("t").unwrap();
    assert_eq!(all_contents(&image), BTreeSet::from([contents(&emulator)]));
}

#[test]
fn the_last_store_of_a_dying_process_may_end_at_a_page() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 16384);
    store(&log, 1000, &[5; 10_000]);
    let events = emulator.events();
    let stored = |bytes: usize| {
        let found = contents(&emulator.process_death_at(events, bytes));
        found.iter().filter(|byte| **byte == 5).count()
    };
    assert_eq!([0, 3095, 3096, 9999, 10_000].map(stored), [0, 0, 3096, 7192, 10_000]);
    assert_eq!(contents(&emulator.process_death_at(events - 1, 0)), vec![0; 16384]);
}

#[test]
fn a_drain_covers_what_was_stored_when_it_began() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 4096);
    store(&log, 0, &[1; 512]);
    let held = emulator.hold_drains();
    let events = emulator.events();
    let (began, beginning) = mpsc::channel();
    let drainer = {
        let (log, emulator) = (Arc::clone(&log), emulator.clone());
        thread::spawn(move || {
            let watcher = thread::spawn(move || {
                while emulator.events() == events {
                    thread::yield_now();
                }
                began.send(()).unwrap();
            });
            log.drain("t").unwrap();
            watcher.join().unwrap();
        })
    };
    beginning.recv().unwrap();
    store(&log, 512, &[2; 512]);
    store(&log, 0, &[3; 512]);
    drop(held);
    drainer.join().unwrap();
    let found = all_contents(&emulator);
    let sectors: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[0], bytes[512])).collect();
    assert_eq!(sectors, BTreeSet::from([(1, 0), (1, 2), (3, 0), (3, 2)]));
}

#[test]
fn a_failed_drain_is_final_and_its_bytes_are_lost_even_after_later_drains() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 4096);
    store(&log, 0, &[1; 512]);
    store(&log, 1024, &[1; 512]);
    emulator.faults().inject(IoKind::Drain, 0, 1, Fault::Eio);
    assert_eq!(log.drain("t"), Err(Error::Io { kind: IoKind::Drain, errno: libc::EIO }));
    assert_eq!(log.drain("t"), Err(Error::DrainFailed));
    // A new process reads the bytes, and its sync succeeds: the kernel considers them clean.
    let image = emulator.process_death_image();
    let log = image.open_log("log").unwrap();
    log.drain("t").unwrap();
    assert_eq!(contents(&image)[0], 1);
    assert_eq!(all_contents(&image).len(), 4);
    // What is stored again is written back again.
    store(&log, 0, &[1; 100]);
    log.drain("t").unwrap();
    let found = all_contents(&image);
    let sectors: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[500], bytes[1024])).collect();
    assert_eq!(sectors, BTreeSet::from([(1, 0), (1, 1)]));
}

#[test]
fn a_drain_alone_is_not_enough_on_media_that_need_persist() {
    let emulator = Emulator::new(EmulatorConfig {
        sector_bytes: 64,
        persist_required: true,
        ..EmulatorConfig::default()
    });
    let log = durable_log(&emulator, 4096);
    store(&log, 0, &[1; 128]);
    log.persist(0, 64, "p").unwrap();
    log.drain("t").unwrap();
    let found = all_contents(&emulator);
    let lines: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[0], bytes[64])).collect();
    assert_eq!(lines, BTreeSet::from([(1, 0), (1, 1)]));
    // Persistence was requested, but not for the later store.
    log.persist(64, 64, "p").unwrap();
    store(&log, 64, &[2; 64]);
    log.drain("t").unwrap();
    let found = all_contents(&emulator);
    let lines: BTreeSet<(u8, u8)> = found.iter().map(|bytes| (bytes[0], bytes[64])).collect();
    assert_eq!(lines, BTreeSet::from([(1, 1), (1, 2)]));
    emulator.faults().disable("p");
    log.persist(64, 64, "p").unwrap();
    log.drain("t").unwrap();
    assert_eq!(all_contents(&emulator).len(), 2);
}

#[test]
fn a_chooser_picks_the_state() {
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, 4096);
    store(&log, 0, &[1; 1024]);
    emulator.mark("two sectors are pending");
    let events = emulator.events();
    let image = emulator.crash_at(events, &mut |choice: &Choice<'_>| match choice.about {
        About::Sector { offset: 512, name: "log", stored_at } => {
            let event = emulator.describe_event(stored_at[0]).unwrap();
            assert_eq!(event, "store 1024 bytes at 0 of file 1");
            usize::MAX
        }
        _ => 0,
    });
    let bytes = contents(&image);
    assert_eq!((bytes[0], bytes[512]), (0, 1));
    let last = emulator.describe_event(events - 1).unwrap();
    assert_eq!(last, "— two sectors are pending");
    assert_eq!(emulator.describe_event(events), None);
}

#[test]
fn space_runs_out_and_addresses_are_checked() {
    let emulator =
        Emulator::new(EmulatorConfig { capacity_bytes: 10_000, ..EmulatorConfig::default() });
    let log = durable_log(&emulator, 4096);
    let other = emulator.create_log("other", "create").unwrap();
    other.grow(5000).unwrap();
    assert_eq!(log.grow(5001), Err(Error::NoSpace));
    assert_eq!(log.grow(u64::MAX), Err(Error::NoSpace));
    assert_eq!(log.len(), 4096);
    log.grow(5000).unwrap();
    assert_eq!(emulator.space(), Some((10_000, 10_000)));
    assert_eq!(log.store(4999, &[IoSlice::new(b"xy")]), Err(Error::OutOfBounds));
    assert_eq!(log.read(u64::MAX, &mut [0]), Err(Error::OutOfBounds));
    assert_eq!(log.persist(5000, 1, "p"), Err(Error::OutOfBounds));
    emulator.replace_file("meta", &[0; 6000], "m").unwrap();
    for name in ["", "..", "a/b", "x.tmp", "mongod.lock"] {
        assert_eq!(emulator.read_file(name), Err(Error::InvalidName));
    }
}

#[test]
fn every_io_can_be_made_to_fail() {
    let emulator = with_sectors(512);
    let faults = Arc::clone(emulator.faults());
    let log = durable_log(&emulator, 4096);
    emulator.replace_file("meta", b"old", "m").unwrap();
    let meta = |bytes| move |emulator: &Emulator| emulator.replace_file("meta", bytes, "m");
    type Io<'a> = (IoKind, Box<dyn Fn() -> Result<(), Error> + 'a>);
    let ios: [Io<'_>; 11] = [
        (IoKind::Read, Box::new(|| log.read(0, &mut [0]))),
        (IoKind::Store, Box::new(|| log.store(0, &[IoSlice::new(b"x")]))),
        (IoKind::Grow, Box::new(|| log.grow(8192))),
        (IoKind::Open, Box::new(|| emulator.open_log("log").map(drop))),
        (IoKind::FileRead, Box::new(|| emulator.list().map(drop))),
        (IoKind::FileWrite, Box::new(|| meta(b"new")(&emulator))),
        (IoKind::FileSync, Box::new(|| meta(b"new")(&emulator))),
        (IoKind::FileRename, Box::new(|| meta(b"new")(&emulator))),
        (IoKind::Lock, Box::new(|| emulator.lock().map(drop))),
        (IoKind::DirectorySync, Box::new(|| meta(b"new")(&emulator))),
        (IoKind::Drain, Box::new(|| log.drain("t"))),
    ];
    assert_eq!(ios.len(), IoKind::ALL.len());
    for (kind, io) in &ios {
        if *kind != IoKind::DirectorySync && *kind != IoKind::Drain {
            assert_eq!(emulator.read_file("meta"), Ok(Some(b"old".to_vec())), "{kind:?}");
        }
        faults.inject(*kind, 0, 1, Fault::Eio);
        assert_eq!(io(), Err(Error::Io { kind: *kind, errno: libc::EIO }));
    }
    assert_eq!(log.len(), 4096);
}

#[test]
fn concurrently_drained_bytes_survive() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 40;
    let emulator = with_sectors(512);
    let log = durable_log(&emulator, THREADS * 4096);
    let start = emulator.events();
    // Each thread increments a number in its own sector, and records each number once drained.
    let workers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (emulator, log) = (emulator.clone(), Arc::clone(&log));
            thread::spawn(move || -> Vec<usize> {
                (1..=ROUNDS)
                    .map(|round| {
                        store(&log, thread * 4096, &round.to_le_bytes());
                        log.drain("t").unwrap();
                        emulator.events()
                    })
                    .collect()
            })
        })
        .collect();
    let drained: Vec<Vec<usize>> = workers.into_iter().map(|w| w.join().unwrap()).collect();
    for image in emulator.crash_images(3, 400) {
        if image.at < start {
            continue;
        }
        let bytes = contents(&image.emulator);
        for (thread, events) in drained.iter().enumerate() {
            let promised = events.iter().filter(|event| **event <= image.at).count() as u64;
            let at = thread * 4096;
            let found = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            assert!(found >= promised && found <= promised + 1, "{found}, promised {promised}");
        }
    }
}

/// If there are too many states for all of them, each sector is lost alone, kept alone, and torn.
#[test]
fn one_by_one_each_sector_is_lost_and_kept_and_torn() {
    let emulator = Emulator::new(EmulatorConfig {
        sector_bytes: 64,
        tear_bytes: 8,
        ..EmulatorConfig::default()
    });
    let log = durable_log(&emulator, 8192);
    for sector in 0..20 {
        store(&log, 64 * sector, &[sector as u8 + 1; 64]);
    }
    assert!(emulator.crash_all_at(emulator.events(), 1 << 12).is_none());
    let images = emulator.crash_one_by_one_at(emulator.events(), 0);
    let found: BTreeSet<Vec<u8>> = images.iter().map(contents).collect();
    assert_eq!(found.len(), images.len(), "two are the same");
    let state = |there: &dyn Fn(usize) -> bool, torn: usize, missing: &dyn Fn(usize) -> bool| {
        let mut bytes = vec![0; 8192];
        for (number, byte) in bytes.iter_mut().take(64 * 20).enumerate() {
            let (sector, word) = (number / 64, number % 64 / 8);
            if there(sector) && !(sector == torn && missing(word)) {
                *byte = sector as u8 + 1;
            }
        }
        bytes
    };
    let none = |_: usize| false;
    for sector in 0..20 {
        assert!(found.contains(&state(&|n| n == sector, 99, &none)), "only {sector}");
        assert!(found.contains(&state(&|n| n != sector, 99, &none)), "all but {sector}");
        assert!(found.contains(&state(&|n| n < sector, 99, &none)), "before {sector}");
        assert!(found.contains(&state(&|n| n >= sector, 99, &none)), "from {sector}");
        for half in [|word| word < 4, |word| word >= 4] {
            assert!(found.contains(&state(&|n| n == sector, sector, &half)), "{sector} torn alone");
            assert!(found.contains(&state(&|_| true, sector, &half)), "{sector} torn");
        }
        let one = |missing: usize| state(&|_| true, sector, &|word| word == missing);
        assert!((0..8).any(|word| found.contains(&one(word))), "a word of {sector}");
    }
    let more = emulator.crash_one_by_one_at(emulator.events(), 50);
    assert!(more.len() > images.len() + 10, "{} and {}", more.len(), images.len());
}
