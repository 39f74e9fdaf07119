//! A copy of the log that is made while writes and cleaning go on opens with the state at its beginning.

use crate::common::{Fixture, bounded, clean, kilobyte, open, status};
use crate::followers::copies::written;
use crate::followers::{Member, at};
use kauri_base::RandomSource;
use kauri_base::RecordId;
use kauri_base::clock::SeededRandom;
use kauri_conformance::table::{doc, number};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::{LogCopy, StorageEngine, StorageError};
use kauri_storage_log::{install_copy, verify};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};

fn configs() -> [EmulatorConfig; 3] {
    let staging = EmulatorConfig { staging: true, ..EmulatorConfig::default() };
    [EmulatorConfig::default(), EmulatorConfig::persistent_memory(), staging]
}

/// Writes the copy to a directory of its own, in pieces; calls `between` before each.
pub fn write(copy: &dyn LogCopy, config: EmulatorConfig, mut between: impl FnMut()) -> Emulator {
    let directory = Emulator::new(config);
    write_to(&directory, "", copy, &mut between);
    directory
}

fn write_to(directory: &Emulator, prefix: &str, copy: &dyn LogCopy, between: &mut dyn FnMut()) {
    let (name, bytes) = copy.log_file();
    for (name, bytes) in copy.files() {
        directory.replace_file(&format!("{prefix}{name}"), bytes, "test").expect("writing");
    }
    let file = directory.create_log(&format!("{prefix}{name}"), "test").expect("the log");
    file.grow(bytes).expect("growing");
    for part in copy.parts() {
        let mut offset = part.offset;
        while offset < part.offset + part.bytes {
            between();
            let len = (part.offset + part.bytes - offset).min(20_000);
            let mut piece = vec![0; len as usize];
            copy.read(offset, &mut piece).expect("reading");
            file.store(offset, &[IoSlice::new(&piece)]).expect("storing");
            offset += len;
        }
    }
    file.persist(0, bytes, "test").expect("persisting");
    file.drain("test").expect("draining");
}

#[test]
fn a_copy_takes_the_place_of_an_engine_whenever_the_power_is_lost() {
    configs().into_iter().for_each(|config| drop(install(config, None)));
}

/// The sites that an installation comes by; without the safeguards of one of them.
pub fn sites(without: Option<&str>) -> BTreeMap<String, u64> {
    let seen = install(EmulatorConfig::default(), without).faults().sites_seen();
    seen.into_iter().filter(|(site, _)| site.starts_with("install.")).collect()
}

fn install(config: EmulatorConfig, without: Option<&str>) -> Emulator {
    let source = Fixture::on(Emulator::new(config), bounded(40));
    for u in 0..20 {
        source.table.insert(&doc(0, u, &kilobyte(u as u64)));
    }
    let copy = source.engine.copy_log().expect("a copy");
    let own = Fixture::on(Emulator::new(config), bounded(40));
    own.table.insert(&doc(7, 7, "is replaced"));
    own.engine.sync().expect("sync");
    let Fixture { emulator: directory, engine, table, .. } = own;
    drop((engine, table));
    write_to(&directory, "sync.", &*copy, &mut || {});
    let begun = directory.events();
    without.into_iter().for_each(|site| directory.faults().disable(site));
    install_copy(&directory, "sync.").expect("installing");
    let end = directory.events();
    let check = |image: Emulator| {
        let left = image.list().expect("names");
        assert!(left.iter().all(|name| !name.starts_with("sync.")), "{left:?}");
        let opened = Fixture::on_existing(image, bounded(40));
        assert_eq!(opened.contents(), source.contents());
        opened.table.check();
    };
    // Once it has returned nothing of it is undone.
    (0..20).for_each(|seed| check(directory.crash_seeded(end, seed)));
    for at in begun..=end {
        let image = directory.crash_seeded(at, at as u64);
        install_copy(&image, "sync.").expect("once more");
        check(image);
    }
    directory
}

#[test]
fn a_copy_opens_with_the_state_at_its_beginning() {
    for (seed, config) in (0..).zip(configs()) {
        let mut fixture = Fixture::on(Emulator::new(config), bounded(120));
        let random = SeededRandom::new(seed);
        let below = |n: u64| random.next_u64() % n;
        let ids: Vec<RecordId> =
            (0..100).map(|u| fixture.table.insert(&doc(0, u, &kilobyte(u as u64)))).collect();
        let change = |fixture: &Fixture, k: i64| {
            let u = below(100);
            let text = kilobyte(u).repeat(1 + below(3) as usize);
            fixture.table.update(ids[u as usize], &doc(k, u as i64, &text));
        };
        let work = |fixture: &Fixture| {
            (0..30).for_each(|_| change(fixture, 1));
            match below(3) {
                0 => fixture.engine.sync().expect("sync"),
                1 => fixture.engine.flush_round().expect("a round"),
                _ => fixture.engine.flush(),
            }
            fixture.engine.clean_once().expect("cleaning");
        };
        for round in 0..3 {
            (0..12).for_each(|_| work(&fixture));
            let copy = fixture.engine.copy_log().expect("a copy");
            let expected = fixture.contents();
            assert_eq!(copy.seq().0 as i64, status(&fixture.engine, "log.lastCommit"));
            let directory = write(&*copy, config, || work(&fixture));
            let emptied = status(&fixture.engine, "segmentsEmptying");
            assert!(emptied > 0, "nothing was cleaned meanwhile");
            drop(copy);
            let image = directory.process_death_image();
            let copied = Fixture::on_existing(image, bounded(120));
            assert_eq!(copied.contents(), expected, "round {round}");
            copied.table.check();
            copied.table.insert(&doc(5, 1000, "more"));
            copied.engine.sync().expect("sync");
            drop(copied);
            let report = verify(&directory, &mut |_, _| {}).expect("the check");
            assert!(report.damage.is_empty(), "{:?}", report.damage);
            fixture.engine.sync().expect("sync");
            clean(&fixture.engine);
            assert!(status(&fixture.engine, "segmentsEmptying") < emptied);
            fixture = fixture.reopen();
        }
    }
}

#[test]
fn a_copy_of_a_member_follows() {
    for config in configs() {
        let mut leader = written(21, 30);
        let index = leader.history.last().index;
        leader.member.log().commit_frames(index - 3);
        leader.member.log().purge_frames(index - 10).expect("purge");
        let copy = leader.member.engine.copy_log().expect("a copy");
        let directory = write(&*copy, config, || {
            leader.write();
        });
        leader.close_frame();
        leader.member.log().follow();
        let held = leader.member.log().truncate_frames(index);
        assert_eq!(held, Err(StorageError::FilesHeld));
        let member = Member::open(&directory);
        assert_eq!(member.log().frames().last.index, index);
        assert_eq!(member.log().applied().index, index - 3);
        member.check(&leader.history.state(index - 3), "opened");
        member.catch_up(&leader.history, "the copy");
        assert_eq!(member.log().frames().purged, at(1, index - 10));
    }
}

#[test]
fn a_copy_waits_for_nobody_and_others_may_be_made() {
    let fixture = Fixture::new(bounded(40));
    fixture.table.insert(&doc(0, 1, "first"));
    let first = fixture.engine.copy_log().expect("a copy");
    fixture.table.insert(&doc(0, 2, "second"));
    let second = fixture.engine.copy_log().expect("a copy");
    assert_eq!(first.seq().0 + 1, second.seq().0);
    let config = EmulatorConfig::default();
    let copies = [first, second].map(|copy| write(&*copy, config, || {}));
    let counts = copies.map(|copy| {
        let engine = open(&copy, bounded(40));
        engine.record_store(fixture.table.id).expect("the store").stats().expect("stats").records
    });
    assert_eq!(counts, [1, 2]);
}

#[test]
fn copies_among_threads_have_all_commits_up_to_one() {
    for config in configs() {
        let fixture = Fixture::on(Emulator::new(config), bounded(200));
        let stop = AtomicBool::new(false);
        let ids = [0i64, 1].map(|thread| {
            let insert =
                |n: i64| fixture.table.insert(&doc(0, thread << 10 | n, &kilobyte(n as u64)));
            (0..20).map(insert).collect::<Vec<_>>()
        });
        let write_some = &|thread: i64| {
            let table = &fixture.table;
            let ids = &ids[thread as usize];
            let mut commits = Vec::new();
            for k in 1i64.. {
                let n = k % 20;
                let new = doc(k, thread << 10 | n, &kilobyte(n as u64));
                commits.push((table.update(ids[n as usize], &new), ids[n as usize], k));
                fixture.engine.flush();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            commits
        };
        let (copies, commits) = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2).map(|thread| scope.spawn(move || write_some(thread))).collect();
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    fixture.engine.flush_round().expect("a round");
                    fixture.engine.clean_once().expect("cleaning");
                }
            });
            let copies: Vec<_> = (0..4)
                .map(|_| {
                    let last = status(&fixture.engine, "log.lastCommit");
                    while status(&fixture.engine, "log.lastCommit") < last + 100 {
                        std::thread::yield_now();
                    }
                    let copy = fixture.engine.copy_log().expect("a copy");
                    (copy.seq(), write(&*copy, config, std::thread::yield_now))
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            let commits = threads.into_iter().flat_map(|thread| thread.join().expect("a thread"));
            (copies, commits.collect::<Vec<_>>())
        });
        for (seq, directory) in copies {
            let copied = Fixture::on_existing(directory, bounded(200));
            assert_eq!(status(&copied.engine, "log.lastCommit") as u64, seq.0);
            copied.table.check();
            let records = copied.table.records();
            for (id, record) in &records {
                let of = commits.iter().filter(|(at, of, _)| of == id && *at <= seq);
                let k = of.map(|(_, _, k)| *k).max().unwrap_or(0);
                assert_eq!(number(&record.doc, "k"), k, "{id} of commit {seq:?}");
            }
            assert_eq!(records.len(), 40);
        }
    }
}
