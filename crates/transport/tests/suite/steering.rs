//! Steering: sessions move to the worker on whose core their packets arrive.

use crate::common::{Client, Echo, PATIENCE, Server, op};
use kauri_transport::ExecutorOptions;
use kauri_transport::sys::{allowed_cores, run_on_cores};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Connections per client thread.
const CONNECTIONS: usize = 8;

/// A server with two workers, each pinned to one of the two returned cores. The calling thread may use no
/// others.
fn server_on_two_cores() -> (Server, [usize; 2]) {
    let cores = allowed_cores().unwrap();
    let &[first, second, ..] = &cores[..] else { panic!("one core has nothing to choose from") };
    run_on_cores(&[first, second]).unwrap();
    let options = ExecutorOptions { workers: 2, own_cores: true, ..Default::default() };
    let echo = Echo::default();
    let seen = Arc::clone(&echo.seen);
    (Server::with_executor(&options, Arc::new(echo), seen, 1000), [first, second])
}

/// The number of sessions of each worker, and of sessions that moved.
fn counts(server: &Server) -> ([u64; 2], u64) {
    let workers = server.manager.stats().workers();
    ([0, 1].map(|worker| workers[worker].sessions), workers.iter().map(|w| w.moved).sum())
}

/// The connections of one client thread, and the number of requests on each.
struct Thread {
    clients: Vec<Client<TcpStream>>,
    asked: u32,
}

impl Thread {
    fn connect(server: &Server) -> Thread {
        let clients = (0..CONNECTIONS).map(|_| server.connect()).collect();
        Thread { clients, asked: 0 }
    }

    /// Sends a request on all connections at once. Returns the workers that answer.
    fn ask(&mut self) -> Vec<usize> {
        self.clients.iter_mut().for_each(|client| client.send(&[op::WHERE]));
        self.asked += 1;
        let answers = self.clients.iter_mut().map(|client| {
            let answer = client.receive();
            let number = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
            assert_eq!(number(4), self.asked, "what the service keeps goes along");
            number(0) as usize
        });
        answers.collect()
    }
}

/// The threads send from their cores until the workers of those cores answer all requests.
fn ask_until_at_home(threads: &mut [Thread; 2], cores: [usize; 2], homes: [usize; 2]) {
    let at_home = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (thread, home) in threads.iter_mut().zip(homes) {
            let at_home = &at_home;
            scope.spawn(move || {
                run_on_cores(&[cores[home]]).unwrap();
                let began = Instant::now();
                let mut is_home = false;
                while at_home.load(Ordering::SeqCst) < homes.len() {
                    let workers = thread.ask();
                    if !is_home && workers.iter().all(|worker| *worker == home) {
                        is_home = true;
                        at_home.fetch_add(1, Ordering::SeqCst);
                    }
                    assert!(began.elapsed() < PATIENCE, "on {home}: {workers:?}");
                }
            });
        }
    });
}

#[test]
fn sessions_move_to_the_workers_of_their_packets() {
    let (server, cores) = server_on_two_cores();
    // Connections are distributed in turn, so that each thread has some on both workers.
    let mut threads = [Thread::connect(&server), Thread::connect(&server)];
    ask_until_at_home(&mut threads, cores, [0, 1]);
    let (sessions, moved) = counts(&server);
    assert_eq!(sessions, [CONNECTIONS as u64; 2]);
    assert!(moved >= CONNECTIONS as u64, "{moved}");
    // The kernel may move the client threads, too.
    ask_until_at_home(&mut threads, cores, [1, 0]);
    assert_eq!(counts(&server).0, [CONNECTIONS as u64; 2]);
    let all = threads.len() * CONNECTIONS;
    assert!(counts(&server).1 - moved >= all as u64);
    drop(threads);
    server.seen.wait_for("end", all);
    assert_eq!(server.seen.started.load(Ordering::SeqCst), all, "they have been the same");
    assert_eq!(server.seen.ended.load(Ordering::SeqCst), all);
}

#[test]
fn a_client_on_one_core_overloads_no_worker() {
    // More rounds than a worker needs to detect several requests at a time, and than sessions need between
    // checks.
    const ROUNDS: usize = 6000;
    let (server, cores) = server_on_two_cores();
    let mut thread = Thread::connect(&server);
    run_on_cores(&cores[..1]).unwrap();
    (0..ROUNDS).for_each(|_| drop(thread.ask()));
    assert_eq!(counts(&server), ([CONNECTIONS as u64 / 2; 2], 0));
    run_on_cores(&cores).unwrap();
}

#[test]
fn a_single_session_does_not_move() {
    // More rounds than sessions need between checks, and than the same result is needed.
    const ROUNDS: usize = 2000;
    let (server, cores) = server_on_two_cores();
    let mut thread = Thread { clients: vec![server.connect()], asked: 0 };
    let worker = thread.ask()[0];
    // Its packets arrive at the other worker's core, where no worker runs.
    run_on_cores(&cores[1 - worker..][..1]).unwrap();
    (0..ROUNDS).for_each(|_| assert_eq!(thread.ask(), [worker]));
    assert_eq!(counts(&server).1, 0);
    run_on_cores(&cores).unwrap();
}
