//! A small log on the emulator: an example of an engine's crash tests. Removing any one drain, sync, ordering
//! point or check makes them fail.

use kauri_base::Access;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::{CacheConfig, Directory, EpochDomain, Medium, SegmentCache};
use std::io::IoSlice;
use std::sync::Arc;

const SEGMENT: usize = 16 << 10;
const RECORD: usize = 700;

/// Numbers, appended one after the other; a number is acknowledged once it is durable. A small file names the
/// open segment. A segment begins with its generation.
struct NumberLog {
    emulator: Emulator,
    log: Arc<dyn Medium>,
    cache: SegmentCache,
}

fn config() -> CacheConfig {
    CacheConfig {
        segment_bytes: SEGMENT,
        block_bytes: 4096,
        segments_max: 4,
        budget_bytes: 3 * 4096,
        io_threads: 0,
        ..CacheConfig::default()
    }
}

fn record(number: u64, generation: u64) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; RECORD];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c_append(generation as u32, &bytes[..RECORD - 4]);
    bytes[RECORD - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl NumberLog {
    fn create(emulator: &Emulator) -> Self {
        let log = emulator.create_log("numbers", "create").unwrap();
        log.grow(2 * SEGMENT as u64).unwrap();
        let domain = EpochDomain::new();
        let cache = SegmentCache::new(Arc::clone(&log), domain, config()).unwrap();
        NumberLog { emulator: emulator.clone(), log, cache }
    }

    /// Appends `count` numbers to a segment in groups of `group`. Returns for each acknowledged group (event,
    /// numbers).
    fn run(&self, segment: u32, generation: u64, count: u64, group: u64) -> Vec<(usize, u64)> {
        let mut acknowledged = Vec::new();
        let mut writer = self.cache.open_segment(segment).unwrap();
        // A recycled segment's header is durable before it is named.
        writer.append(&[&generation.to_le_bytes()]).unwrap();
        writer.store_pending("header.persist").unwrap();
        self.log.drain("header.drain").unwrap();
        let head = [u64::from(segment).to_le_bytes(), generation.to_le_bytes()].concat();
        self.emulator.replace_file("head", &head, "head").unwrap();
        for number in 0..count {
            writer.append(&[&record(number, generation)]).unwrap();
            if (number + 1) % group == 0 {
                writer.store_pending("commit.persist").unwrap();
                self.log.drain("commit.drain").unwrap();
                acknowledged.push((self.emulator.events(), number + 1));
            }
        }
        writer.seal("seal.persist").unwrap();
        acknowledged
    }
}

/// The result of recovery: the generation and the number of consecutive numbers, or `None` without a log. `Err`
/// for an impossible state.
fn recover(emulator: &Emulator) -> Result<Option<(u64, u64)>, String> {
    let faults = emulator.faults();
    let Some(head) = emulator.read_file("head").unwrap() else { return Ok(None) };
    let head: [u8; 16] = head.try_into().map_err(|head| format!("torn head {head:?}"))?;
    let segment = u64::from_le_bytes(head[..8].try_into().unwrap()) as u32;
    let generation = u64::from_le_bytes(head[8..].try_into().unwrap());
    let log = emulator.open_log("numbers").map_err(|error| format!("no log: {error}"))?;
    if log.len() < 2 * SEGMENT as u64 {
        return Err(format!("length {}", log.len()));
    }
    let domain = EpochDomain::new();
    let cache = SegmentCache::new(log, Arc::clone(&domain), config()).unwrap();
    let adopted = cache.adopt_segment(segment, SEGMENT as u32);
    adopted.map_err(|error| format!("segment {segment}: {error}"))?;
    let mut guard = domain.register();
    let mut read = |offset: usize, len: usize| loop {
        guard.enter();
        let ticket = match cache.read(&guard, segment, offset as u32, len).unwrap() {
            Access::Ready(bytes) => {
                let bytes = bytes.to_vec();
                guard.leave();
                return bytes;
            }
            Access::WouldBlock(ticket) => ticket,
        };
        guard.leave();
        ticket.wait().unwrap();
    };
    let header = u64::from_le_bytes(read(0, 8).try_into().unwrap());
    if header != generation {
        return Err(format!("generation {header} in a segment that should have {generation}"));
    }
    let mut numbers = 0;
    while 8 + (numbers as usize + 1) * RECORD <= SEGMENT {
        let bytes = read(8 + numbers as usize * RECORD, RECORD);
        let good = !faults.enabled("record.crc") || bytes == record(numbers, generation);
        if !good || bytes[..8] != numbers.to_le_bytes() {
            break;
        }
        if bytes != record(numbers, generation) {
            return Err(format!("number {numbers} is torn"));
        }
        numbers += 1;
    }
    Ok(Some((generation, numbers)))
}

/// Runs the workload with a site disabled and checks `n` images. Returns the first fault.
fn check(off: Option<&str>, config: EmulatorConfig, n: usize) -> Result<Vec<String>, String> {
    let emulator = Emulator::new(config);
    if let Some(site) = off {
        emulator.faults().disable(site);
    }
    let log = NumberLog::create(&emulator);
    let mut acknowledged = vec![(0, None)];
    for (segment, generation) in [(0, 1), (1, 2)] {
        let acks = log.run(segment, generation, 21, 2);
        acknowledged.extend(acks.into_iter().map(|(at, n)| (at, Some((generation, n)))));
    }
    // The first segment is recycled.
    log.cache.recycle(0, Box::new(|| ())).unwrap();
    log.cache.domain().collect();
    log.cache.domain().collect();
    let acks = log.run(0, 3, 10, 1);
    acknowledged.extend(acks.into_iter().map(|(at, n)| (at, Some((3, n)))));

    let mut sites: Vec<String> =
        emulator.faults().sites_seen().into_iter().map(|(site, _)| site).collect();
    for image in emulator.crash_images(7, n) {
        if let Some(site) = off {
            image.emulator.faults().disable(site);
        }
        let promised = acknowledged.iter().rfind(|(at, _)| *at <= image.at).unwrap().1;
        let found = recover(&image.emulator)?;
        if found < promised {
            return Err(format!("{found:?} instead of {promised:?} at event {}", image.at));
        }
        sites.extend(image.emulator.faults().sites_seen().into_iter().map(|(site, _)| site));
    }
    sites.sort_unstable();
    sites.dedup();
    Ok(sites)
}

#[test]
fn disabling_any_site_fails_a_crash_test() {
    let plain = EmulatorConfig::default();
    let sites = check(None, plain, 2000).expect("with everything in place nothing is lost");
    let expected = [
        "commit.drain",
        "commit.persist",
        "create/directory",
        "head/directory",
        "head/file",
        "header.drain",
        "header.persist",
        "record.crc",
        "seal.persist",
    ];
    assert_eq!(sites, expected);
    for site in sites {
        // On a file the kernel writes back any dirty page; persistence needs no request. The last group of a
        // segment has been stored when the segment is sealed.
        if !site.ends_with(".persist") {
            assert!(check(Some(&site), plain, 2000).is_err(), "{site} is not missed");
        }
    }
}

#[test]
fn disabling_any_persist_site_fails_a_crash_test() {
    for sector_bytes in [64, 4096] {
        let dax =
            EmulatorConfig { sector_bytes, persist_required: true, ..EmulatorConfig::default() };
        check(None, dax, 1000).expect("with everything in place nothing is lost");
        for site in ["commit.persist", "header.persist", "commit.drain", "header.drain"] {
            assert!(check(Some(site), dax, 1000).is_err(), "{site} is not missed");
        }
    }
}

#[test]
fn a_crash_while_recovering_from_a_crash() {
    let emulator = Emulator::new(EmulatorConfig::default());
    let log = NumberLog::create(&emulator);
    log.run(0, 1, 10, 1);
    let mut crashes = 0;
    for first in emulator.crash_images(1, 200) {
        let Some((generation, numbers)) = recover(&first.emulator).unwrap() else { continue };
        // This recovery truncates the data that it rejected.
        let image = &first.emulator;
        let medium = image.open_log("numbers").unwrap();
        let tail = 8 + numbers * RECORD as u64;
        let zeros = vec![0; SEGMENT - tail as usize];
        medium.store(tail, &[IoSlice::new(&zeros)]).unwrap();
        medium.drain("recovery.drain").unwrap();
        for second in image.crash_images(first.seed, 20) {
            crashes += 1;
            let found = recover(&second.emulator).unwrap();
            assert_eq!(found, Some((generation, numbers)), "a second crash changes nothing");
        }
    }
    assert!(crashes > 60, "{crashes}");
}
