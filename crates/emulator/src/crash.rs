//! The states that may exist after a power loss.
//!
//! Each sector, independently, has its contents after any number of its stores since it was last made durable. If
//! sectors can be torn, any of its fragments may have kept its durable contents. Each name has its meaning after
//! any number of its changes. A file has its durable length, a later length, or one in between. New space that is
//! not durable reads as zeros, noise or old bytes. Drained data is always there.

use super::disk::{Disk, File, Name};
use super::pages::{Pages, hash_bytes, mix};

/// One choice on the way to a state.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Its subject.
    pub about: About<'a>,
    /// Number of answers: 0 is the durable state, the highest the kernel's state, except where [`About`] says
    /// otherwise.
    pub options: usize,
}

/// The subject of a [`Choice`].
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    /// Which of a name's changes are there.
    Name {
        /// The name.
        name: &'a str,
    },
    /// The length of a file. The highest answer is halfway from durable to current, the one before
    /// it the current one.
    Length {
        /// Its name.
        name: &'a str,
    },
    /// The contents of new space: 0 zeros, 1 noise, 2 the file's older bytes.
    NewSpace {
        /// The file's name.
        name: &'a str,
    },
    /// The number of a sector's stores that are there.
    Sector {
        /// The file's name.
        name: &'a str,
        /// Where the sector begins.
        offset: u64,
        /// The numbers of the events that stored to it.
        stored_at: &'a [usize],
    },
    /// The missing fragments of a sector, a bit for each: they have their last durable contents. The answer 0 is
    /// the kernel's state, not the highest.
    Torn {
        /// The file's name.
        name: &'a str,
        /// Where the sector begins.
        offset: u64,
    },
}

/// Maximum number of torn fragments of a sector: later ones are not torn.
const FRAGMENTS_MAX: usize = 8;

/// Answers questions. An answer that is too high counts as the highest.
pub type Chooser<'a> = dyn FnMut(&Choice<'_>) -> usize + 'a;

struct Asking<'a, 'b> {
    chooser: &'a mut Chooser<'b>,
}

impl Asking<'_, '_> {
    fn ask(&mut self, about: About<'_>, options: usize) -> usize {
        (self.chooser)(&Choice { about, options }).min(options - 1)
    }
}

impl Disk {
    /// The state after a power loss that the chooser's answers lead to.
    pub(super) fn after_power_loss(&self, chooser: &mut Chooser<'_>) -> Disk {
        let mut asking = Asking { chooser };
        let mut disk = self.emptied();
        for (text, name) in &self.names {
            let survivor = match name.pending.len() {
                0 => name.durable,
                pending => match asking.ask(About::Name { name: text }, pending + 1) {
                    0 => name.durable,
                    change => name.pending[change - 1],
                },
            };
            let Some(id) = survivor else { continue };
            let Some(file) = self.files.get(&id) else { continue };
            let bytes = file.after_power_loss(text, self, &mut asking);
            disk.files.insert(id, File::durable(bytes));
            disk.names.insert(text.clone(), Name { durable: Some(id), pending: Vec::new() });
        }
        disk
    }

    /// Equal for disks that read the same.
    pub(super) fn hash(&self) -> u64 {
        let mut hash = 0u64;
        for (text, name) in &self.names {
            if let Some(file) = name.current().and_then(|id| self.files.get(&id)) {
                hash = hash.wrapping_add(mix(hash_bytes(text.as_bytes()) ^ file.current.hash()));
            }
        }
        hash
    }
}

impl File {
    fn after_power_loss(&self, name: &str, disk: &Disk, asking: &mut Asking<'_, '_>) -> Pages {
        let sector = disk.sector_bytes as u64;
        let mut bytes = self.durable.clone();
        let durable_len = bytes.len();
        let len = self.surviving_len(name, asking);
        if len > durable_len {
            bytes.set_len(len);
            match asking.ask(About::NewSpace { name }, 3) {
                0 => {}
                1 => bytes.fill_with(durable_len, &noise()),
                _ => bytes.fill_with(durable_len, &self.durable),
            }
        }
        let mut stored_at = Vec::new();
        for (number, versions) in &self.pending {
            let offset = number * sector;
            if offset >= len {
                break;
            }
            stored_at.clear();
            stored_at.extend(versions.iter().map(|version| version.stored_at));
            let about = About::Sector { name, offset, stored_at: &stored_at };
            let stores = asking.ask(about, versions.len() + 1);
            if stores > 0 {
                let state = &versions[stores - 1].bytes;
                put(&mut bytes, (name, offset), state, disk.tear_bytes, asking);
            }
        }
        // What a last sector may have beyond the end.
        bytes.set_len(len);
        bytes
    }

    fn surviving_len(&self, name: &str, asking: &mut Asking<'_, '_>) -> u64 {
        let durable = self.durable.len();
        let Some((current, _)) = self.lengths.last() else { return durable };
        match asking.ask(About::Length { name }, self.lengths.len() + 2) {
            0 => durable,
            answer => match self.lengths.get(answer - 1) {
                Some((len, _)) => *len,
                None => durable + (current - durable) / 2 / 4096 * 4096,
            },
        }
    }
}

/// Writes a state of a sector, whole or without some of its fragments: those keep their contents.
fn put(
    bytes: &mut Pages,
    place: (&str, u64),
    state: &[u8],
    tear: usize,
    asking: &mut Asking<'_, '_>,
) {
    let (name, offset) = place;
    let fragments = state.len().div_ceil(tear).min(FRAGMENTS_MAX);
    let missing = match fragments {
        0 | 1 => 0,
        _ => asking.ask(About::Torn { name, offset }, 1 << fragments),
    };
    for (number, fragment) in state.chunks(tear).enumerate() {
        if missing >> number & 1 == 0 {
            bytes.write(offset + (number * tear) as u64, fragment);
        }
    }
}

fn noise() -> Pages {
    let mut pages = Pages::default();
    let bytes: Vec<u8> = (0..1024u64).flat_map(|word| mix(word).to_le_bytes()).collect();
    pages.set_len(bytes.len() as u64);
    pages.write(0, &bytes);
    pages
}

/// A generator of words from a seed.
pub(super) struct Words(u64);

impl Words {
    pub(super) fn new(seed: u64) -> Self {
        Words(mix(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % (n.max(1) as u64)) as usize
    }
}

/// A way to answer that finds a kind of mistake. Independent coin flips alone hardly ever lose just
/// one thing, or everything but one.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// Only durable data.
    Nothing,
    /// Everything.
    Everything,
    /// Each with this chance in 16.
    Coins(u64),
    /// Everything up to this event: written back in order.
    Before(usize),
    /// Everything changed after this event: written back in reverse order.
    After(usize),
    /// Everything but the n-th thing, of which the durable state is there.
    AllBut(usize),
    /// Nothing but the n-th thing.
    Only(usize),
    /// Sectors below this offset: written back by address.
    Below(u64),
    /// Sectors from this offset.
    From(u64),
}

/// One of the states that are looked at where there are too many to look at all: each thing that may
/// have stayed behind decides alone once.
///
/// With nothing else there, and with everything else there: each sector as each of its stores left it,
/// and missing; each file with each of its lengths, and each content of new space; each name with each
/// of its meanings; each sector torn, its first half missing, its last half, and (with everything else
/// there) one of its fragments, another one for each sector. Besides: everything that was stored before
/// each event, and after it.
#[derive(Clone, Debug)]
pub(super) struct OneByOne {
    base: Plan,
    /// The thing that is not as the base has it, and how it is.
    other: Option<(Thing, usize)>,
    torn: Option<(Thing, usize)>,
}

/// The subject of a choice, independent of earlier choices.
type Thing = (u8, String, u64);

fn thing(about: &About<'_>) -> Thing {
    match about {
        About::Name { name } => (0, (*name).to_owned(), 0),
        About::Length { name } => (1, (*name).to_owned(), 0),
        About::NewSpace { name } => (2, (*name).to_owned(), 0),
        About::Sector { name, offset, .. } => (3, (*name).to_owned(), *offset),
        About::Torn { name, offset } => (4, (*name).to_owned(), *offset),
    }
}

impl OneByOne {
    /// All of them for this disk.
    pub(super) fn all(disk: &Disk) -> Vec<OneByOne> {
        let mut questions = Vec::new();
        let mut stores = std::collections::BTreeSet::new();
        disk.after_power_loss(&mut |choice| {
            questions.push((thing(&choice.about), choice.options));
            if let About::Sector { stored_at, .. } = choice.about {
                stores.extend(stored_at.iter().copied());
            }
            Plan::Everything.answer(choice)
        });
        let state = |base| OneByOne { base, other: None, torn: None };
        let mut states = vec![state(Plan::Nothing), state(Plan::Everything)];
        states.extend(stores.iter().map(|event| state(Plan::Before(*event))));
        states.extend(stores.iter().map(|event| state(Plan::After(*event))));
        for (number, (what, options)) in questions.into_iter().enumerate() {
            for base in [Plan::Nothing, Plan::Everything] {
                if what.0 != 4 {
                    let other = |answer| (what.clone(), answer);
                    let ways = (0..options).map(other);
                    states.extend(ways.map(|other| OneByOne { other: Some(other), ..state(base) }));
                    continue;
                }
                let fragments = options.trailing_zeros() as usize;
                let first_half = (1 << (fragments / 2)) - 1;
                let one = 1 << (number % fragments);
                let missing = [first_half, options - 1 - first_half, one];
                let several = if matches!(base, Plan::Nothing) { 2 } else { 3 };
                let sector = (3, what.1.clone(), what.2);
                for missing in &missing[..several] {
                    states.push(OneByOne {
                        base,
                        other: Some((sector.clone(), usize::MAX)),
                        torn: Some((what.clone(), *missing)),
                    });
                }
            }
        }
        states
    }

    pub(super) fn answer(&mut self, choice: &Choice<'_>) -> usize {
        let what = thing(&choice.about);
        let given =
            |of: &Option<(Thing, usize)>| of.as_ref().filter(|(t, _)| *t == what).map(|t| t.1);
        if matches!(choice.about, About::Torn { .. }) {
            return given(&self.torn).unwrap_or(0);
        }
        given(&self.other).unwrap_or_else(|| self.base.answer(choice))
    }
}

impl Plan {
    /// The answers of plans without randomness.
    fn answer(&self, choice: &Choice<'_>) -> usize {
        let highest = choice.options - 1;
        match (self, choice.about) {
            (Plan::Nothing, _) | (_, About::Torn { .. } | About::NewSpace { .. }) => 0,
            (Plan::Before(event), About::Sector { stored_at, .. }) => {
                stored_at.iter().filter(|at| *at < event).count()
            }
            (Plan::After(event), About::Sector { stored_at, .. }) => match stored_at.last() {
                Some(last) if last >= event => highest,
                _ => 0,
            },
            // Of lengths, the highest answer is the one between.
            (_, About::Length { .. }) => highest - 1,
            _ => highest,
        }
    }
}

/// Which sectors are torn, where they can be.
#[derive(Clone, Copy, Debug)]
enum Tearing {
    None,
    /// Each with this chance in 16.
    Some(u64),
    /// The n-th thing.
    One(usize),
}

/// Answers by a plan that the seed picks.
pub(super) struct Planned {
    plan: Plan,
    torn: Tearing,
    words: Words,
    asked: usize,
}

impl Planned {
    /// For a crash after `at` events of a disk.
    pub(super) fn new(seed: u64, at: usize, disk: &Disk) -> Self {
        let mut words = Words::new(seed);
        let pending = disk.files.values().map(|file| file.pending.len());
        let things = pending.sum::<usize>() + disk.names.len();
        let end = disk.files.values().map(|file| file.current.len()).max().unwrap_or(0);
        // Most of what is pending was stored lately.
        let oldest = disk.files.values().flat_map(|file| file.pending.values().flatten());
        let oldest = oldest.map(|version| version.stored_at).min().unwrap_or(at);
        let event = oldest + words.below(at - oldest + 1);
        let offset = words.next() % (end + 1);
        let torn = match words.below(4) {
            0 => Tearing::Some(1 + words.next() % 8),
            1 => Tearing::One(words.below(things)),
            _ => Tearing::None,
        };
        let plan = match words.below(12) {
            0 => Plan::Nothing,
            1 => Plan::Everything,
            2..=5 => Plan::Coins([1, 4, 8, 12, 15][words.below(5)]),
            6 => Plan::Before(event),
            7 => Plan::After(event),
            8 => Plan::AllBut(words.below(things)),
            9 => Plan::Only(words.below(things)),
            10 => Plan::Below(offset),
            _ => Plan::From(offset),
        };
        Planned { plan, torn, words, asked: 0 }
    }

    /// Which fragments of a sector are missing: few, or all but few, as often as any.
    fn fragments(&mut self, options: usize) -> usize {
        let torn = match self.torn {
            Tearing::None => false,
            Tearing::Some(chance) => self.words.next() % 16 < chance,
            Tearing::One(thing) => thing + 1 == self.asked,
        };
        let one = 1 << self.words.below(options.trailing_zeros() as usize);
        match self.words.below(3) {
            _ if !torn => 0,
            0 => one,
            1 => options - 1 - one,
            _ => 1 + self.words.below(options - 1),
        }
    }

    pub(super) fn answer(&mut self, choice: &Choice<'_>) -> usize {
        if matches!(choice.about, About::Torn { .. }) {
            return self.fragments(choice.options);
        }
        let number = self.asked;
        self.asked += 1;
        let highest = choice.options - 1;
        if matches!(choice.about, About::NewSpace { .. }) {
            return self.words.below(choice.options);
        }
        match (self.plan, choice.about) {
            (Plan::Nothing, _) => 0,
            // Of lengths, the highest answer is the one between.
            (Plan::Everything, About::Length { .. }) => highest - 1,
            (Plan::Everything, _) => highest,
            (Plan::Coins(chance), _) if self.words.next() % 16 < chance => {
                1 + self.words.below(highest)
            }
            (Plan::Coins(_), _) => 0,
            (Plan::Before(event), About::Sector { stored_at, .. }) => {
                stored_at.iter().filter(|at| **at < event).count()
            }
            (Plan::After(event), About::Sector { stored_at, .. }) => match stored_at.last() {
                Some(last) if *last >= event => highest,
                _ => 0,
            },
            (Plan::AllBut(n), about) => match about {
                _ if n == number => 0,
                About::Length { .. } => highest - 1,
                _ => highest,
            },
            (Plan::Only(n), About::Sector { .. }) if n != number => 0,
            (Plan::Below(end), About::Sector { offset, .. }) if offset >= end => 0,
            (Plan::From(start), About::Sector { offset, .. }) if offset < start => 0,
            (_, About::Sector { .. }) => highest,
            (_, About::Length { .. }) => highest - 1,
            _ => self.words.below(choice.options),
        }
    }
}
