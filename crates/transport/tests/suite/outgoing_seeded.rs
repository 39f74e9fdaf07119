//! Outgoing sessions in a simulated world: two processes in one thread, of which the server dies and restarts.
//! A seed determines the order of all events.

use crate::common::{Echo, op, op_with_number, request};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, virtual_time};
use kauri_transport::fake::{FakeConnect, FakeTransport};
use kauri_transport::outgoing::{BackOff, OutgoingError, OutgoingOptions, Prepare, Reconnecting};
use kauri_transport::{SeededWorkers, SessionManager, TransportLayer, WorkerHandle, monotonic_ns};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TASKS: usize = 4;
const ROUNDS: u32 = 25;
const MILLI_NS: u64 = 1_000_000;

/// The server's address while it is alive.
type Place = Arc<Mutex<Option<FakeTransport>>>;

fn start_server(place: &Place) -> SeededWorkers {
    let workers = SeededWorkers::new(1).unwrap();
    let service = Arc::new(Echo::default());
    let manager = SessionManager::new(Arc::clone(workers.executor()), service, 100);
    let mut transport = FakeTransport::default();
    transport.setup().unwrap();
    transport.start(&manager).unwrap();
    *place.lock().unwrap() = Some(transport);
    workers
}

/// Greets sessions with an echo request.
fn greeted() -> Prepare {
    Arc::new(|outgoing| {
        Box::pin(async move {
            let deadline_ns = monotonic_ns() + 500 * MILLI_NS;
            outgoing.request(request(b"e hello"), Some(deadline_ns)).await.map(|_| ())
        })
    })
}

const BACK_OFF: BackOff =
    BackOff { first: Duration::from_millis(10), max: Duration::from_millis(160) };

fn reconnecting(
    worker: &WorkerHandle,
    place: &Place,
    attempts: &Arc<AtomicUsize>,
    seed: u64,
) -> Arc<Reconnecting> {
    let (place, attempts) = (Arc::clone(place), Arc::clone(attempts));
    let connect = Arc::new(FakeConnect::new(move || {
        attempts.fetch_add(1, Ordering::Relaxed);
        place.lock().unwrap().as_ref()?.connect()
    }));
    let random = Arc::new(SeededRandom::new(seed));
    let options = OutgoingOptions::default();
    Reconnecting::new(worker, connect, options, BACK_OFF, greeted(), random)
}

type Notes = Arc<Mutex<Vec<String>>>;

fn name(error: &OutgoingError) -> &'static str {
    match error {
        OutgoingError::Unreachable(_) => "unreachable",
        OutgoingError::NotSent(_) => "not sent",
        OutgoingError::Lost(_) => "lost",
        OutgoingError::TimedOut { sent: true } => "timed out",
        OutgoingError::TimedOut { sent: false } => "timed out before",
        OutgoingError::Invalid(_) | OutgoingError::Refused(_) => "impossible",
    }
}

async fn asks(home: WorkerHandle, server: Arc<Reconnecting>, task: usize, notes: Notes) {
    let note = |what: String| {
        notes.lock().unwrap().push(format!("{} {task} {what}", monotonic_ns()));
    };
    for round in 0..ROUNDS {
        // One request of the first task exceeds its deadline and delays the others.
        let asked = match round % 6 {
            0 if task == 0 && round == 12 => op_with_number(op::SLEEP, 80),
            0 => op_with_number(op::SLEEP, round / 4),
            _ => op_with_number(op::ECHO, round * 100 + task as u32),
        };
        let deadline_ns = monotonic_ns() + 50 * MILLI_NS;
        match server.request(request(&asked), deadline_ns).await {
            Ok(reply) => {
                assert_eq!(reply[16..], asked);
                note(format!("{round} answered"));
            }
            Err(error) => {
                assert!(monotonic_ns() <= deadline_ns + 40 * MILLI_NS);
                note(format!("{round} {}", name(&error)));
            }
        }
        home.sleep(Duration::from_millis(5)).await;
    }
    // The server finally stays alive, so it is reached.
    loop {
        let deadline_ns = monotonic_ns() + 1000 * MILLI_NS;
        match server.request(request(b"e last"), deadline_ns).await {
            Ok(_) => break,
            Err(error) => note(format!("last {}", name(&error))),
        }
        home.sleep(Duration::from_millis(5)).await;
    }
    note("ends".to_owned());
}

fn run(seed: u64) -> Vec<String> {
    virtual_time::begin(seed);
    let random = SeededRandom::new(seed);
    let mut draw = |below: usize| (random.next_u64() >> 33) as usize % below;
    let place = Place::default();
    let mut server = Some(start_server(&place));
    let client = SeededWorkers::new(2).unwrap();
    let notes = Notes::default();
    let homes = client.executor().workers();
    let upstream = reconnecting(&homes[0], &place, &Arc::default(), seed);
    for task in 0..TASKS {
        // Some tasks use the session from another worker than its own.
        let home = homes[task % 2].clone();
        let asks = asks(home.clone(), Arc::clone(&upstream), task, Arc::clone(&notes));
        home.spawn(asks);
    }
    let (mut dead_until_ns, mut lives) = (0, 3);
    let ends = |notes: &Notes| notes.lock().unwrap().iter().filter(|n| n.ends_with("ends")).count();
    for _ in 0..1_000_000 {
        if ends(&notes) == TASKS {
            break;
        }
        if let Some(workers) = server.take_if(|_| lives > 0 && draw(400) == 0) {
            place.lock().unwrap().take().unwrap().shutdown();
            workers.die();
            lives -= 1;
            dead_until_ns = monotonic_ns() + draw(80) as u64 * MILLI_NS;
            notes.lock().unwrap().push(format!("{} dies", monotonic_ns()));
        }
        if server.is_none() && virtual_time::peek_ns() >= dead_until_ns {
            server = Some(start_server(&place));
            notes.lock().unwrap().push(format!("{} starts", monotonic_ns()));
        }
        let nodes: Vec<&SeededWorkers> =
            [Some(&client), server.as_ref()].into_iter().flatten().collect();
        let ready: Vec<_> =
            nodes.iter().flat_map(|node| node.ready().map(move |worker| (*node, worker))).collect();
        if ready.is_empty() {
            let next = nodes.iter().map(|node| node.next_deadline_ns()).min().unwrap();
            let next = if server.is_none() { next.min(dead_until_ns) } else { next };
            assert!(next < u64::MAX, "everybody waits for ever");
            virtual_time::advance_to(next);
            continue;
        }
        let (node, worker) = ready[draw(ready.len())];
        node.turn(worker, &mut draw);
    }
    assert_eq!(ends(&notes), TASKS, "a request has no end");
    drop(upstream);
    client.die();
    if let Some(server) = server {
        server.die();
    }
    virtual_time::end();
    Arc::try_unwrap(notes).unwrap().into_inner().unwrap()
}

#[test]
fn every_request_ends_as_the_seed_determines() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let notes = run(seed);
        if seed < 10 {
            assert_eq!(notes, run(seed), "seed {seed}");
        }
        seen.extend(notes.iter().map(|note| note.rsplit(' ').next().unwrap().to_owned()));
        let answered = notes.iter().filter(|note| note.ends_with("answered")).count();
        assert!(answered >= 5, "seed {seed}: {answered} answers");
    }
    for kind in ["answered", "unreachable", "lost", "out", "dies", "starts"] {
        assert!(seen.contains(kind), "no {kind} in {seen:?}");
    }
}

#[test]
fn attempts_back_off_while_requests_fail_at_once() {
    virtual_time::begin(1);
    let began_ns = monotonic_ns();
    let (place, attempts) = (Place::default(), Arc::new(AtomicUsize::new(0)));
    let client = SeededWorkers::new(1).unwrap();
    let worker = client.executor().workers()[0].clone();
    let server = reconnecting(&worker, &place, &attempts, 1);
    let notes = Arc::new(Mutex::new(Vec::new()));
    let (home, noted) = (worker.clone(), Arc::clone(&notes));
    worker.spawn(async move {
        for _ in 0..1000 {
            let began_ns = monotonic_ns();
            let error =
                server.request(request(b"e"), began_ns + 1000 * MILLI_NS).await.unwrap_err();
            assert_eq!(name(&error), "unreachable");
            noted.lock().unwrap().push(monotonic_ns() - began_ns);
            home.sleep(Duration::from_millis(1)).await;
        }
    });
    while notes.lock().unwrap().len() < 1000 {
        match client.ready().next() {
            Some(worker) => drop(client.turn(worker, &mut |_| 0)),
            None => virtual_time::advance_to(client.next_deadline_ns()),
        }
    }
    let took_ms = (monotonic_ns() - began_ns) / MILLI_NS;
    client.die();
    virtual_time::end();
    // 10, 20, 40, 80 ms, then 160 ms each, all shortened by up to a half.
    let attempts = attempts.load(Ordering::Relaxed) as u64;
    assert!(attempts > 4 && attempts <= 5 + took_ms / 80, "{attempts} in {took_ms} ms");
    assert!(attempts >= took_ms / 170, "{attempts} in {took_ms} ms");
    // A read of the clock takes up to 6 ms here.
    assert!(notes.lock().unwrap().iter().all(|took_ns| *took_ns < 40 * MILLI_NS));
}
