//! Runs, crashes, and the required results of recoveries.

use crate::dice::Dice;
use crate::history::{Loss, Timeline};
use crate::model::Model;
use crate::session::Session;
use crate::target::CrashTarget;
use crate::world::{Counts, World};
use kauri_bson::{DocBuf, Value};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::StorageError;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The run before the crashes.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The emulated medium.
    pub medium: EmulatorConfig,
    /// Writers.
    pub sessions: usize,
    /// Their steps in all.
    pub steps: usize,
    /// Percentage of steps for the engine's maintenance.
    pub maintain_percent: u64,
    /// Whether each writer has a thread of its own; the engine's work has one too.
    pub threads: bool,
    /// Whether it ends with a clean shutdown.
    pub close: bool,
    /// About how many bytes of documents there are at most.
    pub document_bytes: u64,
    /// Percentage of chances to create or drop a collection or an index that are taken.
    pub definitions_percent: u64,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            medium: EmulatorConfig::default(),
            sessions: 6,
            steps: 3000,
            maintain_percent: 15,
            threads: false,
            close: false,
            document_bytes: 250 << 10,
            definitions_percent: 100,
        }
    }
}

/// Crash tests of one engine.
pub struct Crashes<'t> {
    target: &'t dyn CrashTarget,
    /// Sites that are switched off on every medium.
    disabled: BTreeSet<String>,
    /// Sites that were met, and how often.
    sites: Mutex<BTreeMap<String, u64>>,
    /// Steps of work on what a crash left, before the next crash.
    further_steps: usize,
    /// Points of a recovery that more ways lead from are not looked at in all states; 0: one state of
    /// one point.
    in_recovery: usize,
    /// Which events to crash again at, and in how many states at each; else at a few by seed.
    again_at: Option<(Wanted, usize)>,
    /// Threads that look at images.
    threads: usize,
    /// Hashes of all images that were looked at.
    images: Mutex<HashSet<u64>>,
}

/// Chooses events by their descriptions ([`Emulator::describe_event`]).
pub type Wanted = fn(&str) -> bool;

/// Counts of checked states.
#[derive(Default, Debug)]
pub struct Report {
    /// Events of the trace.
    pub events: usize,
    /// Units that were committed.
    pub commits: usize,
    /// Different states after a crash.
    pub images: usize,
    /// Crashes of what had been recovered.
    pub second: usize,
    /// Images that lack units that readers had seen.
    pub with_losses: usize,
    /// Images that have units that were not promised.
    pub with_more: usize,
}

/// The recording of a run.
pub struct Recording {
    /// The directory, with its trace.
    pub emulator: Emulator,
    /// The commits and promises.
    pub timeline: Timeline,
    /// Counts of events.
    pub counts: Counts,
    /// The engine's status at the end.
    pub status: DocBuf,
}

impl Report {
    /// Adds the counts of another report.
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.commits += other.commits;
        self.images += other.images;
        self.second += other.second;
        self.with_losses += other.with_losses;
        self.with_more += other.with_more;
    }
}

impl Recording {
    /// A number of the engine's status, by section and name.
    pub fn status_number(&self, section: &str, name: &str) -> i64 {
        let status = self.status.as_doc().value(section);
        match status.as_document().map(|section| section.value(name)) {
            Some(Value::Int64(number)) => number,
            other => panic!("{section}.{name} is {other:?}"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn done(result: Result<(), StorageError>) {
    result.unwrap_or_else(|error| panic!("the medium has no faults, but: {error}"));
}

impl<'t> Crashes<'t> {
    /// For this engine.
    pub fn new(target: &'t dyn CrashTarget) -> Self {
        Crashes {
            target,
            disabled: BTreeSet::new(),
            sites: Mutex::default(),
            further_steps: 40,
            in_recovery: 0,
            again_at: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            images: Mutex::default(),
        }
    }

    /// Leaves it to the caller to use several threads.
    pub fn on_one_thread(mut self) -> Self {
        self.threads = 1;
        self
    }

    /// Crashes again in the recovery only, not in work that follows it: and there at every point, with
    /// its states as [`Crashes::every_power_loss`] has them. 0: at one, with one state.
    pub fn in_recovery_only(mut self, most: usize) -> Self {
        self.further_steps = 0;
        self.in_recovery = most;
        self
    }

    /// Crashes again behind each of these events, in recovery and in work that follows it, in up to `each`
    /// states.
    pub fn again_at(mut self, wanted: Wanted, each: usize) -> Self {
        self.again_at = Some((wanted, each));
        self
    }

    /// Number of different media checked so far, first crashes only.
    pub fn images(&self) -> usize {
        lock(&self.images).len()
    }

    /// With a site switched off.
    pub fn without(mut self, site: &str) -> Self {
        self.disabled.insert(site.to_owned());
        self
    }

    /// The sites that were met so far.
    pub fn sites_seen(&self) -> BTreeMap<String, u64> {
        lock(&self.sites).clone()
    }

    /// Adds the media of others to [`Crashes::images`].
    pub fn count_images_of(&self, others: &Crashes<'_>) {
        lock(&self.images).extend(lock(&others.images).iter());
    }

    /// Disables the disabled sites.
    pub fn equip(&self, emulator: &Emulator) {
        self.disabled.iter().for_each(|site| emulator.faults().disable(site));
    }

    /// Notes the sites that were met on a medium.
    pub fn note_sites(&self, emulator: &Emulator) {
        let mut sites = lock(&self.sites);
        for (site, count) in emulator.faults().sites_seen() {
            // What tests do themselves is not the engine's.
            if site.starts_with("test") {
                continue;
            }
            *sites.entry(site).or_default() += count;
        }
    }

    /// Works on a new directory.
    pub fn record(&self, seed: u64, run: &Run) -> Recording {
        let emulator = Emulator::new(run.medium);
        self.equip(&emulator);
        let mut world = self.open(&emulator, |_| Model::default());
        world.document_bytes_max = run.document_bytes;
        world.definitions_percent = run.definitions_percent;
        done(world.prepare());
        work(&world, &Dice::new(seed), run);
        println!("{:?}, {} events", world.counts, emulator.events());
        self.note_sites(&emulator);
        let status = DocBuf::build(|out| world.engine.write_status(out));
        let (timeline, counts) = if run.close { world.end() } else { world.end_checked() };
        Recording { emulator, timeline, counts, status }
    }

    fn open(&self, emulator: &Emulator, base: impl FnOnce(&Model) -> Model) -> World {
        World::open(self.target, emulator, base)
            .unwrap_or_else(|error| panic!("opening failed: {error:?}"))
    }

    /// Opens the state after a crash. It must be one of these states; returns the last one that it can be.
    pub fn recover(
        &self,
        image: &Emulator,
        timeline: &Timeline,
        states: RangeInclusive<usize>,
    ) -> (World, usize) {
        self.equip(image);
        let mut state = 0;
        let world = self.open(image, |found| {
            let known = timeline.find(found, states.clone());
            let first;
            (first, state) =
                known.unwrap_or_else(|| panic!("{}", explain(found, timeline, &states)));
            timeline.contents(first)
        });
        world.check();
        (world, state)
    }

    /// Checks `images` different states after power losses during a recording.
    pub fn power_losses(&self, recording: &Recording, seed: u64, images: usize) -> Report {
        let source = Mutex::new(recording.emulator.crash_images(seed, images));
        let next = || {
            let image = lock(&source).next()?;
            Some(Image { at: image.at, seed: image.seed, emulator: image.emulator })
        };
        self.look_at(recording, Loss::Power, &next)
    }

    /// Looks at every state that power losses may leave, at each point of a recording where at most
    /// `most` ways lead to them; for short ones. Where there are more, each thing that may be there or
    /// not decides alone once, as [`Emulator::crash_one_by_one_at`] has it; answers also how many points
    /// these are.
    pub fn every_power_loss(&self, recording: &Recording, most: usize) -> (Report, usize) {
        self.every_power_loss_from(recording, 0, most)
    }

    /// As [`Crashes::every_power_loss`], at points from this number of events.
    pub fn every_power_loss_from(
        &self,
        recording: &Recording,
        from: usize,
        most: usize,
    ) -> (Report, usize) {
        let mut images = Vec::new();
        let mut seen = BTreeSet::new();
        let mut sampled = 0;
        let emulator = &recording.emulator;
        // Of points with the same state the latest counts: it has to keep the most promises.
        for at in (from..=emulator.events()).rev() {
            let (all, whole) = states_at(emulator, at, most);
            sampled += usize::from(!whole);
            let new = all.into_iter().filter(|image| seen.insert(image.content_hash()));
            images.extend(new.zip(0..).map(|(emulator, seed)| Image { at, seed, emulator }));
        }
        let images = Mutex::new(images);
        (self.look_at(recording, Loss::Power, &|| lock(&images).pop()), sampled)
    }

    /// Checks up to `images` different states after the death of the process.
    pub fn process_deaths(&self, recording: &Recording, seed: u64, images: usize) -> Report {
        let dice = Dice::new(seed);
        let seen = Mutex::new(BTreeSet::new());
        let tries = AtomicUsize::new(images * 4);
        let next = || {
            let mut seen = lock(&seen);
            while seen.len() < images && tries.fetch_sub(1, Ordering::Relaxed) > 1 {
                let at = dice.below(recording.emulator.events() as u64 + 1) as usize;
                let bytes = dice.below(20_000) as usize;
                let emulator = recording.emulator.process_death_at(at, bytes);
                if seen.insert(emulator.content_hash()) {
                    return Some(Image { at, seed: bytes as u64, emulator });
                }
            }
            None
        };
        self.look_at(recording, Loss::Process, &next)
    }

    /// Checks up to `each` states after a crash behind each of these events.
    pub fn crashes_at(
        &self,
        recording: &Recording,
        loss: Loss,
        wanted: Wanted,
        each: usize,
    ) -> Report {
        let emulator = &recording.emulator;
        let mut images = Vec::new();
        let dice = Dice::new(each as u64);
        for at in behind(emulator, 0, wanted) {
            let mut seen = BTreeSet::new();
            for nth in 0..each {
                let seed = dice.bits();
                let image = match loss {
                    Loss::Power => emulator.crash_seeded(at, seed),
                    Loss::Process if nth == 0 => emulator.process_death_at(at, usize::MAX),
                    Loss::Process => emulator.process_death_at(at, seed as usize % 256),
                };
                if seen.insert(image.content_hash()) {
                    images.push(Image { at, seed, emulator: image });
                }
            }
        }
        let images = Mutex::new(images);
        self.look_at(recording, loss, &|| lock(&images).pop())
    }

    fn look_at(
        &self,
        recording: &Recording,
        loss: Loss,
        next: &(dyn Fn() -> Option<Image> + Sync),
    ) -> Report {
        let report = Mutex::new(Report {
            events: recording.emulator.events(),
            commits: recording.timeline.end(),
            ..Report::default()
        });
        let threads = self.threads;
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let look = || {
                while !failed.load(Ordering::Acquire) {
                    let Some(image) = next() else { return };
                    let look = || self.look(&recording.timeline, &image, loss, &report);
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(look)) {
                        failed.store(true, Ordering::Release);
                        let Image { at, seed, .. } = image;
                        eprintln!("{loss:?} loss after {at} events, image {seed}");
                        resume_unwind(panic);
                    }
                }
            };
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(look)).collect();
            let mine = catch_unwind(AssertUnwindSafe(look));
            let theirs = others.into_iter().map(|thread| thread.join());
            // The first panic goes on, with its own text.
            for result in std::iter::once(mine).chain(theirs) {
                result.unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, timeline: &Timeline, image: &Image, loss: Loss, report: &Mutex<Report>) {
        let states = timeline.promised(image.at, loss)..=timeline.begun(image.at);
        let found = image.emulator.events();
        lock(&self.images).insert(image.emulator.content_hash());
        let (world, state) = self.recover(&image.emulator, timeline, states.clone());
        let opened = image.emulator.events();
        let dice = Dice::new(image.seed ^ image.at as u64);
        if self.further_steps > 0 {
            match world.prepare() {
                // Then there are only reads to be done.
                Err(StorageError::OutOfDiskSpace) => {}
                result => {
                    done(result);
                    work(&world, &dice, &Run { steps: self.further_steps, ..Run::default() });
                }
            }
        }
        // Reading it all once more takes long: one in four tells as much.
        let (later, _) = if dice.percent(25) { world.end_checked() } else { world.end() };
        let recovery = found..=opened;
        let again = |at: usize, second: &Emulator, seed: u64| {
            let (timeline, states) = if at < opened && loss == Loss::Process {
                // What the process had not made durable may go as long as the recovery has not.
                (timeline, timeline.promised(image.at, Loss::Power)..=state)
            } else {
                (&later, later.promised(at, Loss::Power)..=later.begun(at))
            };
            let again = || drop(self.recover(second, timeline, states));
            if let Err(panic) = catch_unwind(AssertUnwindSafe(again)) {
                let what = image.emulator.describe_event(at).unwrap_or_default();
                eprintln!(
                    "second crash after {at} events ({recovery:?} are the recovery's, next: {what}), \
                     image {seed}"
                );
                resume_unwind(panic);
            }
        };
        let second = self.again(&image.emulator, recovery.clone(), &dice, &again);
        self.note_sites(&image.emulator);
        let mut report = lock(report);
        report.images += 1;
        report.second += second;
        report.with_losses += usize::from(state < *states.end());
        report.with_more += usize::from(state > *states.start());
    }

    /// Crashes again what was recovered, in its recovery and later. Answers how often.
    fn again(
        &self,
        image: &Emulator,
        recovery: RangeInclusive<usize>,
        dice: &Dice,
        look: &dyn Fn(usize, &Emulator, u64),
    ) -> usize {
        let (found, opened) = (*recovery.start(), *recovery.end());
        if self.in_recovery > 0 {
            let mut seen = BTreeSet::new();
            for at in recovery.rev() {
                let (all, _) = states_at(image, at, self.in_recovery);
                for (second, seed) in all.into_iter().zip(0..) {
                    if seen.insert(second.content_hash()) {
                        look(at, &second, seed);
                    }
                }
            }
            return seen.len();
        }
        if let Some((wanted, each)) = self.again_at {
            let mut seen = BTreeSet::new();
            for at in behind(image, found, wanted) {
                for seed in (0..each).map(|_| dice.bits()) {
                    let second = image.crash_seeded(at, seed);
                    if seen.insert(second.content_hash()) {
                        look(at, &second, seed);
                    }
                }
            }
            return seen.len();
        }
        let mut ends = vec![opened];
        if self.further_steps > 0 {
            ends.push(image.events());
        }
        // Once in the recovery, and once anywhere.
        for end in &ends {
            let at = found + dice.below((end - found) as u64 + 1) as usize;
            let seed = dice.bits();
            look(at, &image.crash_seeded(at, seed), seed);
        }
        ends.len()
    }
}

/// All states after a power loss at this point if at most so many ways lead to them, else those that
/// [`Emulator::crash_one_by_one_at`] tells, and a quarter of so many by seed; and whether these are all.
fn states_at(emulator: &Emulator, at: usize, most: usize) -> (Vec<Emulator>, bool) {
    match emulator.crash_all_at(at, most) {
        Some(all) => (all, true),
        None => (emulator.crash_one_by_one_at(at, most / 4), false),
    }
}

/// How many events there are up to each of those that are wanted, from one of them.
fn behind(emulator: &Emulator, from: usize, wanted: Wanted) -> Vec<usize> {
    let is_wanted = |at: &usize| emulator.describe_event(*at).is_some_and(|event| wanted(&event));
    (from..emulator.events()).filter(is_wanted).map(|at| at + 1).collect()
}

struct Image {
    at: usize,
    seed: u64,
    emulator: Emulator,
}

/// Works, by one thread in turns or by a thread for each, and checks the outcome.
fn work(world: &World, dice: &Dice, run: &Run) {
    let mut sessions: Vec<_> = (0..run.sessions).map(|_| Session::new(dice.fork())).collect();
    if run.threads {
        work_in_threads(world, dice, run, &mut sessions);
    } else {
        for _ in 0..run.steps {
            if dice.percent(run.maintain_percent) {
                done(world.maintain(dice.bits()));
            } else {
                let turn = dice.below(run.sessions as u64) as usize;
                done(sessions[turn].step(world));
            }
        }
    }
    sessions.iter_mut().for_each(|session| done(session.finish(world)));
    world.check();
    if run.close {
        done(world.close());
    }
}

fn work_in_threads(world: &World, dice: &Dice, run: &Run, sessions: &mut [Session]) {
    /// Ends the engine's work, also when a writer fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let stop = AtomicBool::new(false);
    let steps = run.steps / run.sessions.max(1);
    let maintenance = dice.fork();
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let maintain = || {
            while !stop.load(Ordering::Acquire) {
                done(world.maintain(maintenance.bits()));
                std::thread::yield_now();
            }
        };
        scope.spawn(maintain);
        let writers: Vec<_> = sessions
            .iter_mut()
            .map(|session| scope.spawn(move || (0..steps).for_each(|_| done(session.step(world)))))
            .collect();
        for writer in writers {
            writer.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// Why contents are none of the states that they should be.
fn explain(found: &Model, timeline: &Timeline, states: &RangeInclusive<usize>) -> String {
    let (promised, begun) = (*states.start(), *states.end());
    if let Some((_, state)) = timeline.find(found, 0..=timeline.end()) {
        return format!(
            "the state after {state} commits, but {promised} were promised and {begun} had begun"
        );
    }
    let nearest = (promised..=begun.min(promised + 200))
        .map(|state| (timeline.contents(state).differences(found), state))
        .min_by_key(|(text, _)| {
            text.split(' ').next().and_then(|count| count.parse::<usize>().ok())
        });
    let (differences, state) = nearest.unwrap_or_default();
    format!(
        "the state after no number of commits from {promised} to {begun}; nearest {state}, from \
         which to what was found: {differences}"
    )
}
