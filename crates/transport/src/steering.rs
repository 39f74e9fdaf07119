//! Which worker serves a session: the one on whose core the session's packets arrive.
//!
//! The kernel takes a packet in on one core, that of the network card's queue or, on one machine, that of the
//! client, and wakes the worker from there. If the worker is at home on that core, nothing crosses between
//! cores; and all sessions of a client's thread, whose packets arrive together, are served together.
//!
//! Sessions are dealt out evenly when they come, before anything is known. Later each looks now and then
//! where its packets arrive ([`Whereabouts`]). It changes places with one that wants the opposite, or moves
//! where the workers' numbers of sessions are as even afterwards ([`Exchange`]). So a client that has one core
//! crowds no worker.
//!
//! Invariant: `offers + grants` of a lane is the number of sessions that have an offer there, so each grant
//! is taken by a session that asked for it, at its next look.

use crate::contract::{ClientState, Departure, SessionInfo};
use crate::executor::WorkerHandle;
use crate::executor::local::LocalFuture;
use crate::manager::SessionManager;
use crate::state_machine::ServiceStateMachine;
use kauri_base::log::{self, Attr};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests of a session from one look to the next.
const REQUESTS_A_LOOK: u32 = 256;
/// So many looks in a row have to find the same.
const LOOKS_ALIKE_MIN: u32 = 3;

/// From one worker to another.
type Lane = (usize, usize);

#[derive(Default)]
struct Lanes(HashMap<Lane, Wishes>);

#[derive(Default)]
struct Wishes {
    /// Sessions that would move if another came for them.
    offers: u32,
    /// Sessions for which another came.
    grants: u32,
}

/// Where sessions of different workers change places.
#[derive(Default)]
pub(crate) struct Exchange {
    lanes: Mutex<Lanes>,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a session of worker `from` that would rather be on worker `wanted`: where it moves now, if it
    /// does. `offered` is its offer, if it has one; `sessions` tells how many a worker has.
    fn look(
        &self,
        from: usize,
        wanted: Option<usize>,
        offered: &mut Option<usize>,
        sessions: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let mut lanes = self.lock();
        if let Some(to) = *offered {
            let lane = lanes.0.entry((from, to)).or_default();
            if lane.grants > 0 {
                lane.grants -= 1;
                *offered = None;
                return Some(to);
            }
            if wanted != Some(to) {
                lanes.withdraw(from, offered);
            }
        }
        let to = wanted?;
        let opposite = lanes.0.entry((to, from)).or_default();
        let swaps = opposite.offers > 0;
        if swaps {
            opposite.offers -= 1;
            opposite.grants += 1;
        }
        let evens_out = |lanes: &Lanes| lanes.to_be(from, &sessions) > lanes.to_be(to, &sessions);
        if swaps || evens_out(&lanes) {
            lanes.withdraw(from, offered);
            return Some(to);
        }
        if offered.is_none() {
            lanes.0.entry((from, to)).or_default().offers += 1;
            *offered = Some(to);
        }
        None
    }
}

impl Lanes {
    /// How many sessions a worker has when all have moved that are to.
    fn to_be(&self, worker: usize, sessions: impl Fn(usize) -> usize) -> usize {
        let granted = |is_there: fn(&Lane, usize) -> bool| -> usize {
            let lanes = self.0.iter().filter(|(lane, _)| is_there(lane, worker));
            lanes.map(|(_, wishes)| wishes.grants as usize).sum()
        };
        let coming = granted(|lane, worker| lane.1 == worker);
        (sessions(worker) + coming).saturating_sub(granted(|lane, worker| lane.0 == worker))
    }

    /// Takes an offer back, or what it was granted.
    fn withdraw(&mut self, from: usize, offered: &mut Option<usize>) {
        let Some(to) = offered.take() else { return };
        let lane = self.0.entry((from, to)).or_default();
        match lane.offers {
            0 => lane.grants = lane.grants.saturating_sub(1),
            _ => lane.offers -= 1,
        }
    }
}

/// Where one session is, and would be.
#[derive(Default)]
pub(crate) struct Whereabouts {
    requests: u32,
    /// What the last looks found, and how many of them.
    arrives_at: Option<usize>,
    alike: u32,
    offered: Option<usize>,
    /// It leaves for there as soon as it can.
    pub leaves_for: Option<usize>,
}

impl Whereabouts {
    /// Notes a request. Whether it is time for a look.
    #[inline]
    pub fn note_request(&mut self) -> bool {
        self.requests = self.requests.wrapping_add(1);
        self.requests.is_multiple_of(REQUESTS_A_LOOK)
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
        if wanted.is_some() || self.offered.is_some() {
            let sessions = |worker: usize| {
                let worker = executor.workers().get(worker);
                worker.map_or(0, |worker| worker.shared.sessions.load(Ordering::Relaxed))
            };
            let exchange = executor.exchange();
            self.leaves_for = exchange.look(here.id(), wanted, &mut self.offered, sessions);
        }
    }

    /// The session ends here, or has moved.
    pub fn leave(&mut self, manager: &SessionManager, here: &WorkerHandle) {
        if self.offered.is_some() {
            manager.executor().exchange().lock().withdraw(here.id(), &mut self.offered);
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
        offered: Option<usize>,
    }

    fn sessions(places: &[Place], worker: usize) -> usize {
        places.iter().filter(|place| place.worker == worker).count()
    }

    /// A session looks, and moves if it may. Whether it did.
    fn look(exchange: &Exchange, places: &mut [Place], at: usize) -> bool {
        let Place { worker, wanted, mut offered } = places[at];
        let wanted = wanted.filter(|wanted| *wanted != worker);
        let to = exchange.look(worker, wanted, &mut offered, |worker| sessions(places, worker));
        assert!(to.is_none() || offered.is_none() && to != Some(worker));
        places[at].offered = offered;
        places[at].worker = to.unwrap_or(worker);
        to.is_some()
    }

    /// Offers and grants of all lanes are those of sessions that have an offer.
    fn check(exchange: &Exchange, places: &[Place]) {
        for (lane, wishes) in &exchange.lock().0 {
            let has_offer =
                |place: &&Place| (place.worker, place.offered) == (lane.0, Some(lane.1));
            let offers = places.iter().filter(has_offer).count();
            assert_eq!((wishes.offers + wishes.grants) as usize, offers, "{lane:?}");
        }
    }

    fn place(worker: usize, wanted: usize) -> Place {
        Place { worker, wanted: Some(wanted), offered: None }
    }

    #[test]
    fn two_that_want_the_opposite_change_places() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(1, 1), place(0, 0), place(1, 0)];
        assert!(!look(&exchange, &mut places, 0), "nobody comes for it");
        assert!(look(&exchange, &mut places, 3));
        check(&exchange, &places);
        // Even if it would rather not any more.
        places[0].wanted = None;
        assert!(look(&exchange, &mut places, 0));
        check(&exchange, &places);
        assert_eq!(places.map(|place| place.worker), [1, 1, 0, 0]);
    }

    #[test]
    fn one_moves_alone_to_where_there_are_fewer() {
        let exchange = Exchange::default();
        let mut places = [place(0, 1), place(0, 0), place(1, 1)];
        assert!(look(&exchange, &mut places, 0));
        let mut even = [place(1, 0), place(0, 0)];
        assert!(!look(&exchange, &mut even, 0));
        let mut more_there = [place(1, 0), place(0, 0), place(0, 0)];
        assert!(!look(&Exchange::default(), &mut more_there, 0));
        check(&exchange, &even);
    }

    #[test]
    fn a_wish_that_is_over_is_forgotten() {
        let exchange = Exchange::default();
        let mut even = [place(0, 1), place(1, 1)];
        assert!(!look(&exchange, &mut even, 0));
        even[0].wanted = Some(0);
        assert!(!look(&exchange, &mut even, 0));
        check(&exchange, &even);
        even[1].wanted = Some(0);
        assert!(!look(&exchange, &mut even, 1), "nobody to change with");
    }

    #[test]
    fn wishes_that_come_and_go_leave_workers_even() {
        const WORKERS: u64 = 3;
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let below = |n: u64| random.next_u64() % n;
            let exchange = Exchange::default();
            let mut places: Vec<Place> =
                (0..13).map(|n| place(n % WORKERS as usize, n % WORKERS as usize)).collect();
            for _ in 0..300 {
                let at = below(13) as usize;
                match below(4) {
                    0 => places[at].wanted = Some(below(WORKERS) as usize),
                    _ => {
                        look(&exchange, &mut places, at);
                    }
                }
                check(&exchange, &places);
                let to_be =
                    |worker| exchange.lock().to_be(worker, |worker| sessions(&places, worker));
                let all = [0, 1, 2].map(to_be);
                assert!(all.iter().all(|count| (4..=5).contains(count)), "seed {seed}: {all:?}");
            }
            // When wishes stay as they are, nobody is left who could change places.
            (0..5).for_each(|_| {
                (0..13).for_each(|at| {
                    look(&exchange, &mut places, at);
                })
            });
            for a in &places {
                let opposite = |b: &Place| {
                    a.wanted == Some(b.worker) && b.wanted == Some(a.worker) && a.worker != b.worker
                };
                assert!(!places.iter().any(opposite), "seed {seed}");
            }
        }
    }
}
