//! When a link with another member is given up for a new one.

use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_member::peers::{Dial, Dialing, Link, Peer, Sending};
use kauri_storage_log::{Options, PmLog};
use kauri_transport::{ExecutorOptions, ServiceExecutor, WorkerHandle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Only what hangs reaches this.
const HANGING: Duration = Duration::from_secs(60);

/// Tells the number of the link by which a message goes.
struct Numbered {
    number: usize,
    told: Sender<usize>,
}

impl Link for Numbered {
    fn send(&self, _: Vec<u8>) -> Sending<'_> {
        let told = self.told.send(self.number).is_ok();
        Box::pin(std::future::ready(told))
    }

    fn is_over(&self) -> bool {
        false
    }

    /// The first one is of those that may be cut alone.
    fn note_silence(&self) -> bool {
        self.number == 1
    }
}

type SharedPeer = Arc<Mutex<Option<Peer>>>;

struct Dialer {
    peer: SharedPeer,
    links: AtomicUsize,
    told: Mutex<Sender<usize>>,
}

impl Dial for Dialer {
    fn dial(&self, _: &WorkerHandle, _: &str) -> Dialing {
        let number = self.links.fetch_add(1, Ordering::Relaxed) + 1;
        let (peer, told) = (self.peer.clone(), self.told.lock().unwrap().clone());
        Box::pin(async move {
            if number > 1 {
                // While this one is made, still nothing is heard.
                let peer = peer.lock().unwrap();
                let peer = peer.as_ref().unwrap();
                peer.give_link_up();
                peer.note_silence();
            }
            Ok(Box::new(Numbered { number, told }) as Box<dyn Link>)
        })
    }
}

/// Messages to a peer, and the links that they go by.
struct Rig {
    peer: SharedPeer,
    told: Receiver<usize>,
    _executor: Arc<ServiceExecutor>,
}

impl Rig {
    fn new() -> Rig {
        let options = ExecutorOptions { workers: 1, ..ExecutorOptions::default() };
        let executor = ServiceExecutor::start(&options).unwrap();
        let disk = Emulator::new(EmulatorConfig::persistent_memory());
        let options = Options { segment_bytes: 1 << 20, read_threads: 0, ..Options::default() };
        let engine = Arc::new(PmLog::open(Arc::new(disk), options).unwrap());
        let (tell, told) = channel();
        let peer = SharedPeer::default();
        let (links, tell) = (AtomicUsize::new(0), Mutex::new(tell));
        let dial = Arc::new(Dialer { peer: peer.clone(), links, told: tell });
        let worker = &executor.workers()[0];
        *peer.lock().unwrap() = Some(Peer::open(worker, dial, engine, (1, "two:1")));
        Rig { peer, told, _executor: executor }
    }

    fn with_peer(&self, what: impl FnOnce(&Peer)) {
        what(self.peer.lock().unwrap().as_ref().unwrap());
    }

    /// The number of the link that a message goes by.
    fn send(&self) -> usize {
        self.with_peer(|peer| peer.send_bytes(vec![1; 10]));
        self.told.recv_timeout(HANGING).unwrap()
    }
}

#[test]
fn a_new_link_is_not_given_up_for_the_silence_before_it() {
    let rig = Rig::new();
    assert_eq!([rig.send(), rig.send()], [1, 1]);
    rig.with_peer(Peer::give_link_up);
    assert_eq!([rig.send(), rig.send(), rig.send()], [2, 2, 2]);
    rig.with_peer(|peer| assert_eq!(peer.losses(), (1, false)));
}

#[test]
fn only_a_link_that_may_be_cut_alone_ends_in_a_short_silence() {
    let rig = Rig::new();
    assert_eq!(rig.send(), 1);
    rig.with_peer(Peer::note_silence);
    assert_eq!([rig.send(), rig.send()], [2, 2]);
    rig.with_peer(Peer::note_silence);
    assert_eq!(rig.send(), 2);
}
