//! Decides which worker serves a session: the worker on whose core the session's packets arrive.
//!
//! The kernel processes a packet on one core, that of the network card's queue or, on one machine, that of the
//! client, and wakes the worker from there. If the worker runs on that core, no data crosses cores. Sessions of one
//! client thread, whose packets arrive together, are served together.
//!
//! New sessions are distributed evenly. Later each session checks from time to time where its packets arrive
//! ([`Whereabouts`]). A session swaps workers with a session that wants the opposite, or moves if the workers'
//! numbers of sessions stay as even as before ([`Exchange`]). So a client with one core does not crowd one worker.
//!
//! A swap takes three steps, each at a check of its own, so that no session moves for one that has become idle. One
//! session offers to move, the other accepts the offer, the first moves, and the other follows.
//!
//! Invariant: [`Board::pending`] has the effect of all moves that are decided but not started.

use crate::contract::{ClientState, Departure, SessionInfo};
use crate::executor::WorkerHandle;
use crate::executor::local::LocalFuture;
use crate::manager::SessionManager;
use crate::state_machine::ServiceStateMachine;
use kauri_base::log::{self, Attr};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests of a session from one look to the next.
const REQUESTS_A_LOOK: u32 = 256;
/// Number of consecutive checks that must find the same worker.
const LOOKS_ALIKE_MIN: u32 = 3;
/// Number of checks after which a session that accepted an offer stops waiting.
const LOOKS_MET_MAX: u32 = 8;

/// From one worker to another.
type Lane = (usize, usize);

/// The state of a session's wish to move.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Wish {
    #[default]
    None,
    /// It has offered to move there.
    Offers { offer: u64, to: usize },
    /// It has accepted the offer of a session there, this many checks ago.
    Meets { offer: u64, to: usize, looks: u32 },
    /// Its move is decided.
    Leaves(usize),
}

struct Offer {
    id: u64,
    met: bool,
}

#[derive(Default)]
struct Board {
    offers: HashMap<Lane, VecDeque<Offer>>,
    /// The offers whose sessions have moved, with the way of those that met them, which are to follow.
    taken: HashMap<u64, Lane>,
    /// The change of each worker's number of sessions by the decided moves.
    pending: HashMap<usize, isize>,
    last_id: u64,
}

/// The exchange of sessions between workers.
#[derive(Default)]
pub(crate) struct Exchange {
    board: Mutex<Board>,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a session of worker `from` that prefers worker `wanted`. Returns the worker to move to, if that is
    /// decided. `sessions` returns a worker's number of sessions.
    fn look(
        &self,
        from: usize,
        wanted: Option<usize>,
        wish: &mut Wish,
        sessions: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let mut board = self.lock();
        if let Some(to) = board.hear(from, wanted, wish) {
            return Some(to);
        }
        let to = wanted.filter(|_| !matches!(wish, Wish::Meets { .. }))?;
        if let Some(offer) = board.meet((to, from)) {
            board.forget(from, wish);
            *wish = Wish::Meets { offer, to, looks: 0 };
        } else if board.to_be(from, sessions(from)) > board.to_be(to, sessions(to)) {
            board.forget(from, wish);
            board.decide((from, to), 1);
            *wish = Wish::Leaves(to);
            return Some(to);
        } else if *wish == Wish::None {
            *wish = Wish::Offers { offer: board.offer((from, to)), to };
        }
        None
    }
}

impl Board {
    /// The progress of a wish since the last check. A finished wish is forgotten.
    fn hear(&mut self, from: usize, wanted: Option<usize>, wish: &mut Wish) -> Option<usize> {
        match *wish {
            Wish::None => return None,
            Wish::Leaves(to) => return Some(to),
            Wish::Offers { offer, to } if self.is_met((from, to), offer) => {
                self.remove((from, to), offer);
                self.taken.insert(offer, (to, from));
                self.decide((from, to), 1);
                self.decide((to, from), 1);
                *wish = Wish::Leaves(to);
                return Some(to);
            }
            Wish::Meets { offer, to, .. } if self.taken.remove(&offer).is_some() => {
                *wish = Wish::Leaves(to);
                return Some(to);
            }
            Wish::Meets { offer, to, looks } if wanted == Some(to) && looks < LOOKS_MET_MAX => {
                *wish = Wish::Meets { offer, to, looks: looks + 1 };
            }
            Wish::Offers { to, .. } if wanted == Some(to) => {}
            Wish::Offers { .. } | Wish::Meets { .. } => self.forget(from, wish),
        }
        None
    }

    /// Gives a wish up. A move that was decided takes place no more.
    fn forget(&mut self, from: usize, wish: &mut Wish) {
        match std::mem::take(wish) {
            Wish::None => {}
            Wish::Offers { offer, to } => self.remove((from, to), offer),
            Wish::Meets { offer, to, .. } => match self.taken.remove(&offer) {
                Some(lane) => self.decide(lane, -1),
                None => self.let_go((to, from), offer),
            },
            Wish::Leaves(to) => self.decide((from, to), -1),
        }
    }

    fn offer(&mut self, lane: Lane) -> u64 {
        self.last_id += 1;
        let offer = Offer { id: self.last_id, met: false };
        self.offers.entry(lane).or_default().push_back(offer);
        self.last_id
    }

    /// Accepts the oldest offer on this lane that no session has accepted.
    fn meet(&mut self, lane: Lane) -> Option<u64> {
        let offer = self.offers.get_mut(&lane)?.iter_mut().find(|offer| !offer.met)?;
        offer.met = true;
        Some(offer.id)
    }

    /// Withdraws the acceptance of an offer. Others come first now: its session may be idle.
    fn let_go(&mut self, lane: Lane, id: u64) {
        let Some(offers) = self.offers.get_mut(&lane) else { return };
        if let Some(at) = offers.iter().position(|offer| offer.id == id) {
            offers.remove(at);
            offers.push_back(Offer { id, met: false });
        }
    }

    fn is_met(&self, lane: Lane, id: u64) -> bool {
        let mut offers = self.offers.get(&lane).into_iter().flatten();
        offers.any(|offer| offer.id == id && offer.met)
    }

    fn remove(&mut self, lane: Lane, id: u64) {
        let Some(offers) = self.offers.get_mut(&lane) else { return };
        offers.retain(|offer| offer.id != id);
        if offers.is_empty() {
            self.offers.remove(&lane);
        }
    }

    /// Records that this many sessions will move that way.
    fn decide(&mut self, (from, to): Lane, count: isize) {
        *self.pending.entry(from).or_default() -= count;
        *self.pending.entry(to).or_default() += count;
    }

    /// A worker's number of sessions after all decided moves, if it has this many now.
    fn to_be(&self, worker: usize, sessions: usize) -> isize {
        sessions as isize + self.pending.get(&worker).copied().unwrap_or_default()
    }
}

/// A session's current and preferred worker.
#[derive(Default)]
pub(crate) struct Whereabouts {
    requests: u32,
    /// The result of the last checks, and their number.
    arrives_at: Option<usize>,
    alike: u32,
    wish: Wish,
}

impl Whereabouts {
    /// Notes a request. Whether it is time for a look.
    #[inline]
    pub fn note_request(&mut self) -> bool {
        self.requests = self.requests.wrapping_add(1);
        self.requests.is_multiple_of(REQUESTS_A_LOOK)
    }

    /// The worker for which the session leaves as soon as it can.
    #[inline]
    pub fn leaves_for(&self) -> Option<usize> {
        if let Wish::Leaves(to) = self.wish { Some(to) } else { None }
    }

    /// Looks; `core` is where the session's packets arrive.
    pub fn look(&mut self, manager: &SessionManager, here: &WorkerHandle, core: Option<usize>) {
        let executor = manager.executor();
        // Where clients and workers meet one by one the kernel brings them together.
        let stays = here.shared.stays.load(Ordering::Relaxed);
        let at = core.filter(|_| stays).and_then(|core| executor.at_home_on(core));
        self.alike = if at == self.arrives_at { self.alike.saturating_add(1) } else { 1 };
        self.arrives_at = at;
        let wanted = at.filter(|at| *at != here.id() && self.alike >= LOOKS_ALIKE_MIN);
        if wanted.is_some() || self.wish != Wish::None {
            let sessions = |worker: usize| {
                let worker = executor.workers().get(worker);
                worker.map_or(0, |worker| worker.shared.sessions.load(Ordering::Relaxed))
            };
            executor.exchange().look(here.id(), wanted, &mut self.wish, sessions);
        }
    }

    /// The session ends here, or moves now.
    pub fn leave(&mut self, manager: &SessionManager, here: &WorkerHandle) {
        if self.wish != Wish::None {
            manager.executor().exchange().lock().forget(here.id(), &mut self.wish);
        }
    }
}

/// A session on its way from one worker to another. If it is dropped there, it has ended.
pub(crate) struct Moving {
    pub manager: Arc<SessionManager>,
    pub info: Arc<SessionInfo>,
    pub client: Option<Box<dyn ClientState>>,
    pub idle_since_ns: u64,
}

impl Moving {
    /// Has it go on there.
    pub fn start(self, departure: Departure, from: &WorkerHandle, to: WorkerHandle) {
        self.info.worker.store(to.id(), Ordering::Relaxed);
        from.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        to.shared.sessions.fetch_add(1, Ordering::Relaxed);
        from.shared.stats.moved.add(1);
        let home = to.clone();
        to.start_with(Box::new(move |local| {
            let mut moving = self;
            match (departure.0)(local) {
                Ok(session) => {
                    let manager = Arc::clone(&moving.manager);
                    let client = moving.client.take()?;
                    let since_ns = moving.idle_since_ns;
                    let machine =
                        ServiceStateMachine::going_on(session, manager, home, client, since_ns);
                    Some(Box::pin(machine.run()) as LocalFuture)
                }
                Err(error) => {
                    let attr = Attr::new().str("error", error.to_string());
                    let message = "Error moving a connection to another worker";
                    let ctx = format!("conn{}", moving.info.id);
                    log::warning("NETWORK", 7_100_027, &ctx, message, attr);
                    None
                }
            }
        }));
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            crate::state_machine::end_client(&self.manager, &self.info, client);
            self.manager.session_ended(&self.info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Handling, Outcome, RequestContext, ServiceEntryPoint};
    use crate::executor::{ExecutorOptions, ServiceExecutor};
    use crate::reply::ReplyBuf;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    struct Ends(AtomicUsize);

    struct Kept;

    impl ClientState for Kept {}

    impl ServiceEntryPoint for Ends {
        fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
            Box::new(Kept)
        }

        fn handle_request<'a>(
            &'a self,
            _cx: RequestContext<'a>,
            _request: &'a [u8],
            _reply: &'a mut ReplyBuf,
        ) -> Handling<'a> {
            Box::pin(async { Outcome::Close })
        }

        fn end_session(&self, _session: &Arc<SessionInfo>, _state: Box<dyn ClientState>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_session_that_is_lost_on_the_way_has_ended() {
        let options = ExecutorOptions { workers: 2, ..Default::default() };
        let executor = ServiceExecutor::start(&options).unwrap();
        let entry = Arc::new(Ends(AtomicUsize::new(0)));
        let manager = SessionManager::new(Arc::clone(&executor), entry.clone(), 10);
        let sessions = || [0, 1].map(|n| executor.workers()[n].stats().sessions);
        for (round, stopped) in [false, true].into_iter().enumerate() {
            if stopped {
                executor.shutdown();
                assert!(executor.least_loaded().is_none(), "nobody is sent there any more");
            }
            let info = SessionInfo {
                id: 1,
                remote: String::new(),
                local: String::new(),
                transport: "tcp",
                worker: AtomicUsize::new(0),
                upgrade: Default::default(),
            };
            let [from, to] = executor.workers() else { panic!("two workers") };
            from.shared.sessions.fetch_add(1, Ordering::SeqCst);
            let moving = Moving {
                manager: Arc::clone(&manager),
                info: Arc::new(info),
                client: Some(Box::new(Kept)),
                idle_since_ns: 0,
            };
            let fails = Departure(Box::new(|_| Err(std::io::ErrorKind::OutOfMemory.into())));
            moving.start(fails, from, to.clone());
            let patience = Instant::now() + Duration::from_secs(30);
            while sessions() != [0, 0] && Instant::now() < patience {
                std::thread::yield_now();
            }
            assert_eq!(sessions(), [0, 0]);
            assert_eq!(entry.0.load(Ordering::SeqCst), round + 1);
        }
    }

    #[derive(Clone, Default)]
    struct Place {
        worker: usize,
        wanted: Option<usize>,
        wish: Wish,
    }

    fn place(worker: usize, wanted: usize) -> Place {
        Place { worker, wanted: Some(wanted), wish: Wish::None }
    }

    fn sessions(places: &[Place], worker: usize) -> usize {
        places.iter().filter(|place| place.worker == worker).count()
    }

    /// A session looks. Whether it is to move.
    fn look(exchange: &Exchange, places: &mut [Place], at: usize) -> bool {
        let Place { worker, wanted, mut wish } = places[at];
        let wanted = wanted.filter(|wanted| *wanted != worker);
        let to = exchange.look(worker, wanted, &mut wish, |worker| sessions(places, worker));
        assert_eq!(to.map(Wish::Leaves), Some(wish).filter(|wish| matches!(wish, Wish::Leaves(_))));
        places[at].wish = wish;
        to.is_some()
    }

    /// A session that is to move does.
    fn depart(exchange: &Exchange, places: &mut [Place], at: usize) {
        let Wish::Leaves(to) = places[at].wish else { return };
        exchange.lock().forget(places[at].worker, &mut places[at].wish);
        places[at].worker = to;
    }

    fn looks_and_departs(exchange: &Exchange, places: &mut [Place], at: usize) -> bool {
        let moves = look(exchange, places, at);
        depart(exchange, places, at);
        moves
    }

    /// How many sessions each worker is to have; and that the board holds what the sessions say, no more.
    fn to_be(exchange: &Exchange, places: &[Place], workers: usize) -> Vec<isize> {
        let board = exchange.lock();
        let count = |is: fn(&Wish) -> bool| places.iter().filter(|place| is(&place.wish)).count();
        let offers = board.offers.values().flatten();
        assert_eq!(offers.clone().count(), count(|wish| matches!(wish, Wish::Offers { .. })));
        let met = offers.filter(|offer| offer.met).count() + board.taken.len();
        assert!(met <= count(|wish| matches!(wish, Wish::Meets { .. })));
        assert!(board.offers.values().all(|offers| !offers.is_empty()));
        (0..workers).map(|worker| board.to_be(worker, sessions(places, worker))).collect()
    }

    #[test]
    fn two_that_want_the_opposite_change_places() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(1, 1), place(0, 0), place(1, 0)];
        assert!(!look(&exchange, &mut places, 0), "it offers");
        assert!(!look(&exchange, &mut places, 3), "it meets the offer");
        assert!(!look(&exchange, &mut places, 3), "and waits");
        assert!(look(&exchange, &mut places, 0));
        // Who cannot leave yet is counted on, and trades with nobody else.
        places[0].wanted = None;
        assert!(look(&exchange, &mut places, 0));
        assert_eq!(to_be(&exchange, &places, 2), [2, 2]);
        depart(&exchange, &mut places, 0);
        assert_eq!(to_be(&exchange, &places, 2), [2, 2]);
        // It follows, even if it would rather not any more.
        places[3].wanted = None;
        assert!(looks_and_departs(&exchange, &mut places, 3));
        assert_eq!(to_be(&exchange, &places, 2), [2, 2]);
        assert_eq!(places.each_ref().map(|place| place.worker), [1, 1, 0, 0]);
    }

    #[test]
    fn nobody_moves_for_one_that_has_nothing_to_do_any_more() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(0, 1), place(1, 0), place(1, 1)];
        // They have offered, and never look again.
        assert!(!look(&exchange, &mut places, 0) && !look(&exchange, &mut places, 1));
        assert!((0..100).all(|_| !look(&exchange, &mut places, 2)));
        // The second does after all: the other has not waited for the first one for ever.
        assert!((0..100).any(|_| {
            look(&exchange, &mut places, 2);
            look(&exchange, &mut places, 1)
        }));
        assert_eq!(to_be(&exchange, &places, 2), [2, 2]);
    }

    #[test]
    fn one_moves_alone_to_where_there_are_fewer() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(0, 1), place(0, 0), place(1, 1), place(1, 1)];
        assert!(look(&exchange, &mut places, 0));
        // Before it has left there are as many as there would be.
        assert!(!look(&exchange, &mut places, 1));
        depart(&exchange, &mut places, 0);
        assert!(!look(&exchange, &mut places, 1));
        assert_eq!(to_be(&exchange, &places, 2), [2, 3]);
    }

    #[test]
    fn a_wish_that_is_over_is_forgotten() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(1, 0)];
        assert!(!look(&exchange, &mut places, 0));
        places[0].wanted = Some(0);
        assert!(!look(&exchange, &mut places, 0));
        assert!(!look(&exchange, &mut places, 1), "nobody to change with: it offers");
        places[0].wanted = Some(1);
        assert!(!look(&exchange, &mut places, 0), "it meets the offer");
        places[1].wanted = Some(1);
        assert!(look(&exchange, &mut places, 1), "which counts");
        // Who was to follow has ended.
        exchange.lock().forget(0, &mut places[0].wish);
        assert_eq!(to_be(&exchange, &places, 2), [2, 0]);
    }

    #[test]
    fn wishes_that_come_and_go_leave_workers_even() {
        const WORKERS: usize = 3;
        const SESSIONS: usize = 13;
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let below = |n: usize| (random.next_u64() % n as u64) as usize;
            let exchange = Exchange::default();
            let mut places: Vec<Place> =
                (0..SESSIONS).map(|n| place(n % WORKERS, n % WORKERS)).collect();
            for _ in 0..600 {
                let at = below(SESSIONS);
                match below(6) {
                    0 => places[at].wanted = Some(below(WORKERS)),
                    1 => depart(&exchange, &mut places, at),
                    _ => {
                        look(&exchange, &mut places, at);
                    }
                }
                let to_be = to_be(&exchange, &places, WORKERS);
                assert!(to_be.iter().all(|n| (4..=5).contains(n)), "seed {seed}: {to_be:?}");
            }
            // When wishes stay as they are, nobody is left who could change places.
            for at in (0..20).flat_map(|_| 0..SESSIONS) {
                looks_and_departs(&exchange, &mut places, at);
            }
            for a in &places {
                let opposite = |b: &Place| {
                    a.wanted == Some(b.worker) && b.wanted == Some(a.worker) && a.worker != b.worker
                };
                assert!(!places.iter().any(opposite), "seed {seed}");
            }
        }
    }
}
