//! The servers of a replica set, one of which is followed: sessions go to it, and move when another one is.
//!
//! # What a driver sees
//!
//! A set of one member, which is the proxy's address: `setName` and the election's id are the primary's, `hosts`,
//! `primary` and `me` the proxy's (`hello`). Drivers repeat writes only before a set or a router, so a standalone
//! server's form would switch that off. A router's form (`msg: isdbgrid`), which pooling proxies for MongoDB often
//! take, is refused by drivers whose connection string has `replicaSet`; it also hides elections, and has drivers pin
//! transactions as before shards. A set of one works with and without `replicaSet`, and the election's id lets a
//! driver refuse a primary of the past as it would without the proxy.
//!
//! A driver must not see the followed server become a secondary: its set would have no primary until its next look.
//! So a reply to `hello` that says so is not passed on: the same question goes to the next primary, and where a stream
//! of replies has begun the connection ends. Errors of commands are the driver's: it repeats what may be repeated.
//!
//! # Invariants
//!
//! - One task asks the servers, as long as none is followed, and watches the one that is.
//! - Nothing here blocks: a driver's task waits for a server to be followed, for `serverSelectionTimeoutMS` at most.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_base::log::{self, Attr};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_client::outgoing::{Opened, lost};
use kauri_client::set::{Description, SetOptions, Topology, choose, fitting, retry};
use kauri_client::uri::{Host, Uri};
use kauri_client::{ClientError, Wanted};
use kauri_transport::outgoing::{Outgoing, OutgoingOptions};
use kauri_transport::{WorkerHandle, monotonic_ns};
use kauri_wire::{Message, MsgWriter};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Maximum time for a server's hello while others may fit.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two rounds of questions while no server fits.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the followed server may keep the watch waiting while nothing changes.
const AWAIT: Duration = Duration::from_secs(10);
/// Between two questions to a server that answers at once.
const EACH: Duration = Duration::from_secs(1);
/// Wakers that are kept; with more all are woken.
const WAITING_MAX: usize = 10_000;
/// Largest reply that is searched for an error. Errors are small.
const ERROR_BYTES_MAX: usize = 16 << 10;

struct State {
    topology: Topology,
    followed: Option<Host>,
    /// Drivers' tasks that wait for a server to be followed, and the watch.
    waiting: Vec<Waker>,
}

impl State {
    fn wait(&mut self, waker: &Waker) {
        // Tasks that have ended are in it, too. Those that have not register again.
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.drain(..).for_each(Waker::wake);
        }
        // The same task usually comes again at once.
        if !self.waiting.last().is_some_and(|known| known.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}

/// See the module's head.
pub struct Members {
    /// For questions: over TCP, since they are few.
    uri: Uri,
    options: SetOptions,
    random: SeededRandom,
    state: Mutex<State>,
}

/// A round of questions: what is left of it, and its asker.
#[derive(Default)]
struct Round {
    left: usize,
    asker: Option<Waker>,
}

impl Members {
    /// Of a connection string that means a set.
    pub fn new(uri: &Uri) -> Option<Arc<Members>> {
        let options = uri.set.clone()?;
        let topology = Topology::new(uri, &options);
        Some(Arc::new(Members {
            uri: Uri { shared_memory: Wanted::Off, rdma: Wanted::Off, ..uri.clone() },
            options,
            random: SeededRandom::from_entropy(),
            state: Mutex::new(State { topology, followed: None, waiting: Vec::new() }),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this server is followed.
    pub fn follows(&self, host: Option<&Host>) -> bool {
        host.is_some() && self.state().followed.as_ref() == host
    }

    /// The followed server, as soon as there is one.
    pub async fn followed(&self, worker: &WorkerHandle) -> Result<Host, ClientError> {
        let mut over = worker.sleep(self.options.selection_timeout);
        poll_fn(|cx| {
            let mut state = self.state();
            if let Some(host) = &state.followed {
                return Poll::Ready(Ok(host.clone()));
            }
            if Pin::new(&mut over).poll(cx).is_ready() {
                let (preference, account) = (&self.options.preference, state.topology.account());
                let why = format!("no server of the set fits {preference}: {account}");
                return Poll::Ready(Err(ClientError::Selection(why)));
            }
            state.wait(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// A server has answered so to a hello. Whether it is the followed one.
    pub fn note_hello(&self, host: &Host, reply: Doc<'_>) -> bool {
        self.change(|topology| {
            let known = topology.servers().find(|(known, _)| *known == host);
            let round_trip = known.map_or(Duration::ZERO, |(_, server)| server.round_trip);
            topology.note(host, Description::of(reply, round_trip, now()));
        });
        self.follows(Some(host))
    }

    /// A session with a server has failed.
    pub fn note_failure(&self, host: &Host, error: &ClientError) {
        self.change(|topology| topology.note_failure(host, error.to_string()));
    }

    /// A server has answered so to a command other than hello.
    pub fn note_reply(&self, host: &Host, message: &[u8]) {
        if message.len() > ERROR_BYTES_MAX {
            return;
        }
        let change = |body: &[u8]| {
            let body = Doc::from_bytes(body).ok()?;
            Some((retry::state_change(body)?, retry::version(body)))
        };
        let found = match Message::parse(message) {
            Ok((_, Message::Msg(msg))) => change(msg.body),
            Ok((_, Message::Compressed(compressed))) => {
                let mut plain = Vec::new();
                let is_plain = compressed.decompress(&mut plain).is_ok();
                match Message::parse(&plain) {
                    Ok((_, Message::Msg(msg))) if is_plain => change(msg.body),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some((why, version)) = found {
            self.change(|topology| topology.note_state_change(host, version, &why));
        }
    }

    /// Changes what is known. A server that fits no longer is not followed any more.
    fn change(&self, change: impl FnOnce(&mut Topology)) {
        let mut state = self.state();
        change(&mut state.topology);
        let Some(host) = state.followed.clone() else { return };
        let fit = fitting(&state.topology, &self.options, Duration::MAX);
        if !fit.contains(&host) {
            state.followed = None;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Finds a server to follow and watches it, again and again, as long as the proxy runs.
    pub async fn follow(members: Weak<Members>, worker: WorkerHandle) {
        let mut known: Option<Host> = None;
        loop {
            let Some(members) = members.upgrade() else { return };
            let (host, watched) = match members.seek(&worker).await {
                Some(found) => found,
                None => {
                    if known.take().is_some() {
                        let account = members.state().topology.account();
                        let attr = Attr::new().str("servers", account);
                        let message = "No server of the set can be followed; drivers wait";
                        log::warning("NETWORK", 6_300_111, "proxy", message, attr);
                    }
                    drop(members);
                    worker.sleep(PAUSE).await;
                    continue;
                }
            };
            if known.as_ref() != Some(&host) {
                let attr = Attr::new().str("host", host.to_string());
                let message = "New sessions go to this server of the set";
                log::info("NETWORK", 6_300_112, "proxy", message, attr);
                known = Some(host.clone());
            }
            // Each round ends after a while, so that the proxy can end.
            let members = Arc::downgrade(&members);
            Members::watch(&members, &host, &watched, &worker).await;
        }
    }

    /// Asks all servers at once. Answers the one that is followed from now on, and a session with it.
    async fn seek(self: &Arc<Self>, worker: &WorkerHandle) -> Option<(Host, Opened)> {
        let unasked = |asked: &[Host]| -> Vec<Host> {
            let state = self.state();
            let known = state.topology.servers().map(|(host, _)| host);
            known.filter(|host| !asked.contains(host)).cloned().collect()
        };
        let hosts = unasked(&[]);
        let mut opened = self.ask(hosts.clone(), worker).await;
        // Servers that these have named are asked, too, before one is followed.
        opened.append(&mut self.ask(unasked(&hosts), worker).await);
        let mut state = self.state();
        let fit = fitting(&state.topology, &self.options, self.options.local_threshold);
        let host = choose(&fit, self.random.next_u64())?.clone();
        let session = opened.remove(&host)?;
        state.followed = Some(host.clone());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        Some((host, session))
    }

    async fn ask(
        self: &Arc<Self>,
        hosts: Vec<Host>,
        worker: &WorkerHandle,
    ) -> BTreeMap<Host, Opened> {
        let round = Arc::new(Mutex::new(Round { left: hosts.len(), asker: None }));
        let opened = Arc::new(Mutex::new(BTreeMap::new()));
        for host in hosts {
            let (members, home) = (Arc::clone(self), worker.clone());
            let (round, opened) = (Arc::clone(&round), Arc::clone(&opened));
            worker.spawn(async move {
                if let Some(session) = members.greet(&host, &home).await {
                    lock(&opened).insert(host, session);
                }
                let mut round = lock(&round);
                round.left -= 1;
                if round.left == 0
                    && let Some(asker) = round.asker.take()
                {
                    asker.wake();
                }
            });
        }
        poll_fn(|cx| {
            let mut round = lock(&round);
            if round.left == 0 {
                return Poll::Ready(());
            }
            round.asker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        std::mem::take(&mut *lock(&opened))
    }

    /// The known servers but this one.
    fn others(&self, host: &Host) -> Vec<Host> {
        let state = self.state();
        let known = state.topology.servers().map(|(known, _)| known);
        known.filter(|known| *known != host).cloned().collect()
    }

    /// A session with this server, which has answered a hello.
    async fn greet(&self, host: &Host, worker: &WorkerHandle) -> Option<Opened> {
        let uri = self.uri.to(host.clone());
        let limit = Some(uri.connect_timeout).filter(|limit| !limit.is_zero());
        let connect_timeout = limit.map_or(HELLO_TIMEOUT, |limit| limit.min(HELLO_TIMEOUT));
        let uri = Uri { connect_timeout, ..uri };
        let began_ns = monotonic_ns();
        match kauri_client::outgoing::open(worker, &uri, OutgoingOptions::default()).await {
            Ok(opened) => {
                let round_trip = Duration::from_nanos(monotonic_ns().saturating_sub(began_ns));
                let description = Description::of(opened.greeting.as_doc(), round_trip, now());
                self.change(|topology| topology.note(host, description));
                Some(opened)
            }
            Err(error) => {
                self.note_failure(host, &error);
                None
            }
        }
    }

    /// Asks the followed server again and again, until it is not followed any more.
    async fn watch(members: &Weak<Members>, host: &Host, opened: &Opened, worker: &WorkerHandle) {
        let mut last = opened.greeting.clone();
        let mut looked = now();
        loop {
            let told = {
                let mut asked = pin!(ask_again(&opened.session, &last, worker));
                // What a driver's session tells comes first.
                poll_fn(|cx| {
                    let Some(members) = members.upgrade() else { return Poll::Ready(None) };
                    {
                        let mut state = members.state();
                        if state.followed.as_ref() != Some(host) {
                            return Poll::Ready(None);
                        }
                        state.wait(cx.waker());
                    }
                    asked.as_mut().poll(cx).map(Some)
                })
                .await
            };
            let (Some(told), Some(members)) = (told, members.upgrade()) else { return };
            match told {
                Ok(reply) => {
                    if !members.note_hello(host, reply.as_doc()) {
                        return;
                    }
                    last = reply;
                    // How far a secondary is behind is known from all servers together.
                    let SetOptions { preference, heartbeat, .. } = &members.options;
                    if preference.max_staleness.is_some() && now() >= looked + *heartbeat {
                        looked = now();
                        let others = members.others(host);
                        drop(members.ask(others, worker).await);
                        if !members.follows(Some(host)) {
                            return;
                        }
                    }
                }
                Err(error) => return members.note_failure(host, &error),
            }
        }
    }
}

/// By a clock that never goes back.
fn now() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next reply to hello, when something has changed or a while is over.
async fn ask_again(
    session: &Outgoing,
    last: &DocBuf,
    worker: &WorkerHandle,
) -> Result<DocBuf, ClientError> {
    let version = last.as_doc().get("topologyVersion").and_then(|version| version.as_doc());
    let hello = match version {
        Some(version) => doc! {
            "hello" => 1,
            "topologyVersion" => Value::from(version.to_buf()),
            "maxAwaitTimeMS" => AWAIT.as_millis() as i64,
            "$db" => "admin",
        },
        None => {
            worker.sleep(EACH).await;
            doc! { "hello" => 1, "$db" => "admin" }
        }
    };
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 0, 0, 0);
    message.extend_from_slice(hello.as_bytes());
    writer.finish(&mut message)?;
    let limit = AWAIT + HELLO_TIMEOUT;
    let end_ns = monotonic_ns().saturating_add(limit.as_nanos() as u64);
    let reply = session.request(message, Some(end_ns)).await.map_err(lost)?;
    match Message::parse(&reply)?.1 {
        Message::Msg(msg) => Ok(Doc::from_bytes(msg.body)?.to_buf()),
        _ => Err(ClientError::Protocol("a reply to hello that is no OP_MSG".to_owned())),
    }
}
