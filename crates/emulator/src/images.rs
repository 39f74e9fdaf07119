//! Crash images: emulators that start in the state after a crash.

use super::crash::{Choice, Chooser, OneByOne, Planned, Words};
use super::disk::Disk;
use super::trace::{Event, FileId, Thread};
use super::{Emulator, EmulatorConfig};
use std::collections::{BTreeMap, BTreeSet};

/// A state after a power loss.
pub struct CrashImage {
    /// Number of events of the trace at the crash.
    pub at: usize,
    /// Picks the same image again: [`Emulator::crash_seeded`].
    pub seed: u64,
    /// The directory as it is found.
    pub emulator: Emulator,
}

/// Images in order of their crash point, no two the same; see [`Emulator::crash_images`].
pub struct CrashImages {
    replay: Replay,
    next_file: FileId,
    /// Where to crash, and the seeds of the choices: ascending.
    points: std::vec::IntoIter<(usize, u64)>,
}

/// Set in the numbers of threads of a process that has died.
const DEAD: Thread = 1 << 31;

/// Number of rounds of points, each with as many points as images are still needed, at least an eighth of all.
const ROUNDS_MAX: usize = 32;

/// A trace that is gone through from its beginning.
struct Replay {
    config: EmulatorConfig,
    base: Disk,
    trace: Vec<Event>,
    /// The disk after `applied` events.
    disk: Disk,
    applied: usize,
}

impl Replay {
    /// The disk after `at` events; fast if `at` never decreases.
    fn disk_at(&mut self, at: usize) -> &Disk {
        if at < self.applied {
            self.disk = self.base.clone();
            self.applied = 0;
        }
        for (number, event) in self.trace.iter().enumerate().take(at).skip(self.applied) {
            self.disk.apply(number, event);
        }
        self.applied = at.min(self.trace.len());
        &self.disk
    }

    fn image(&mut self, at: usize, seed: u64) -> Disk {
        let disk = self.disk_at(at);
        let mut planned = Planned::new(seed, at, disk);
        disk.after_power_loss(&mut |choice| planned.answer(choice))
    }

    /// `n` points with different images. Of points with the same image the latest counts: it must keep the most
    /// promises.
    fn find_points(&mut self, seed: u64, n: usize) -> Vec<(usize, u64)> {
        let mut words = Words::new(seed);
        let mut found: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let missing = n.saturating_sub(found.len());
            if missing == 0 {
                break;
            }
            let events = self.trace.len();
            let mut points: Vec<_> =
                (0..missing.max(n / 8)).map(|_| (words.below(events + 1), words.next())).collect();
            points.sort_unstable();
            for point in points {
                let hash = self.image(point.0, point.1).hash();
                if found.len() < n || found.contains_key(&hash) {
                    let latest = found.entry(hash).or_insert(point);
                    *latest = (*latest).max(point);
                }
            }
        }
        let mut points: Vec<_> = found.into_values().collect();
        points.sort_unstable();
        points
    }
}

impl Iterator for CrashImages {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        let (at, seed) = self.points.next()?;
        let disk = self.replay.image(at, seed);
        let emulator = Emulator::with_disk(self.replay.config, disk, self.next_file);
        Some(CrashImage { at, seed, emulator })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.points.size_hint()
    }
}

impl Emulator {
    /// Up to `n` different states in which power losses during the recorded trace may have left the directory, by
    /// seed. Fewer if there are not that many, or they are hard to find.
    pub fn crash_images(&self, seed: u64, n: usize) -> CrashImages {
        let state = self.state();
        let next_file = state.next_file;
        let mut replay = Replay {
            config: self.world.config,
            base: state.base().clone(),
            trace: state.trace.clone(),
            disk: state.base().clone(),
            applied: 0,
        };
        drop(state);
        let points = replay.find_points(seed, n).into_iter();
        CrashImages { replay, next_file, points }
    }

    /// The state after a power loss when `events` events had happened, by the chooser's answers.
    pub fn crash_at(&self, events: usize, chooser: &mut Chooser<'_>) -> Emulator {
        self.image_of(self.disk_at(events).after_power_loss(chooser))
    }

    /// The state of [`CrashImage::at`] and [`CrashImage::seed`].
    pub fn crash_seeded(&self, events: usize, seed: u64) -> Emulator {
        let disk = self.disk_at(events);
        let mut planned = Planned::new(seed, events.min(self.events()), &disk);
        self.image_of(disk.after_power_loss(&mut |choice| planned.answer(choice)))
    }

    /// All states after a power loss when `events` events had happened, or None if more than `max`
    /// ways lead to them. No two are the same.
    pub fn crash_all_at(&self, events: usize, max: usize) -> Option<Vec<Emulator>> {
        let disk = self.disk_at(events);
        let mut images = Vec::new();
        let mut seen = BTreeSet::new();
        // The answers so far and how many there are to each question, counted up like an odometer.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for _ in 0..max {
            let mut asked = 0;
            let found = disk.after_power_loss(&mut |choice: &Choice<'_>| {
                if asked == path.len() {
                    path.push((0, choice.options));
                }
                asked += 1;
                path[asked - 1].0
            });
            path.truncate(asked);
            if seen.insert(found.hash()) {
                images.push(self.image_of(found));
            }
            while path.last().is_some_and(|(answer, options)| answer + 1 == *options) {
                path.pop();
            }
            match path.last_mut() {
                Some((answer, _)) => *answer += 1,
                None => return Some(images),
            }
        }
        None
    }

    /// States after a power loss when `events` events had happened, for when there are too many ways to
    /// take all of them: see [`OneByOne`]; and `random` more by seed. No two are the same.
    pub fn crash_one_by_one_at(&self, events: usize, random: usize) -> Vec<Emulator> {
        let disk = self.disk_at(events);
        let at = events.min(self.events());
        let mut images = Vec::new();
        let mut seen = BTreeSet::new();
        let mut add = |found: Disk| {
            if seen.insert(found.hash()) {
                images.push(self.image_of(found));
            }
        };
        for mut state in OneByOne::all(&disk) {
            add(disk.after_power_loss(&mut |choice| state.answer(choice)));
        }
        for seed in 0..random as u64 {
            let mut planned = Planned::new(seed, at, &disk);
            add(disk.after_power_loss(&mut |choice| planned.answer(choice)));
        }
        images
    }

    /// The directory after the death of the process: all stored data is there, and undurable data is still not
    /// durable.
    pub fn process_death_image(&self) -> Emulator {
        self.process_death_at(self.events(), usize::MAX)
    }

    /// As [`Emulator::process_death_image`] when `events` events had happened. If the last of them is
    /// a store, only about its first `bytes` are there: the kernel ends a write of a dying process
    /// at a page, and a process that stores to memory itself ends at a word. What threads of the dead
    /// process had stored to memory and not fenced no later fence makes durable.
    pub fn process_death_at(&self, events: usize, bytes: usize) -> Emulator {
        let mut state = self.state();
        let events = events.min(state.trace.len());
        let mut trace = state.trace[..events].to_vec();
        let mut last_is_whole = true;
        let step = if self.world.config.mapped { 8 } else { 4096 };
        if let Some(Event::Store { offset, bytes: stored, .. }) = trace.last_mut() {
            let step_end = (*offset as usize).saturating_add(bytes) / step * step;
            let kept = step_end.saturating_sub(*offset as usize);
            if bytes < stored.len() {
                *stored = stored[..kept.min(stored.len())].into();
                last_is_whole = false;
            }
        }
        for event in &mut trace {
            if let Event::Persist { by, .. } | Event::Fence { by, .. } = event {
                *by |= DEAD;
            }
        }
        let mut disk = state.disk_at(events - usize::from(!last_is_whole));
        disk.rename_threads(&|by| by | DEAD);
        if let (false, Some(event)) = (last_is_whole, trace.last()) {
            disk.apply(events - 1, event);
        }
        let base = state.base().clone();
        Emulator::with_trace(self.world.config, base, trace, disk, state.next_file)
    }

    fn disk_at(&self, events: usize) -> Disk {
        self.state().disk_at(events)
    }

    fn image_of(&self, disk: Disk) -> Emulator {
        Emulator::with_disk(self.world.config, disk, self.state().next_file)
    }
}
