//! The one way to other members: sessions with their servers, over shared memory or RDMA where both have it.
//!
//! Where RDMA alone is cut, packets are lost without a sign for longer than the set waits for its primary. So a link
//! over RDMA ends as soon as nothing is heard of the member, and the next one is over TCP. After a while RDMA is tried
//! again.

use crate::options::Options;
use kauri_client::outgoing::Opened;
use kauri_client::{Transport, Uri, Wanted};
use kauri_commands::server::Greeting;
use kauri_member::peers::{Dial, Dialing, Link, Sending, send_by};
use kauri_transport::outgoing::{Outgoing, OutgoingOptions};
use kauri_transport::{WorkerHandle, monotonic_ns};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// How long connecting with another member may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The same over RDMA after that has failed: no longer than the set can wait.
const TRIAL_TIMEOUT: Duration = Duration::from_millis(400);
/// How long a link stays without RDMA that failed.
const WITHOUT_RDMA_NS: u64 = 60_000_000_000;
/// Bytes of messages to a member that wait to be sent.
const UNSENT_BYTES_MAX: usize = 16 << 20;

/// The members that RDMA was used with, and when it has failed since.
#[derive(Default)]
struct Known(BTreeMap<String, Option<u64>>);

/// Whether a link is to use RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Usual,
    /// It has failed.
    Trial,
    /// It has failed just now; until this time.
    Without(u64),
}

impl Known {
    fn attempt(&self, host: &str, now_ns: u64) -> Attempt {
        match self.0.get(host).copied().flatten().map(|failed_ns| failed_ns + WITHOUT_RDMA_NS) {
            None => Attempt::Usual,
            Some(end_ns) if now_ns < end_ns => Attempt::Without(end_ns),
            Some(_) => Attempt::Trial,
        }
    }

    fn note_failure(&mut self, host: &str, now_ns: u64) {
        self.0.insert(host.to_owned(), Some(now_ns));
    }

    /// Notes what an attempt came to. Answers when the next link is to be tried.
    fn note(&mut self, host: &str, attempt: Attempt, is_rdma: bool, now_ns: u64) -> u64 {
        match attempt {
            _ if is_rdma => {
                self.0.insert(host.to_owned(), None);
                u64::MAX
            }
            Attempt::Without(end_ns) => end_ns,
            // Perhaps one of the two has no device.
            Attempt::Usual if !self.0.contains_key(host) => u64::MAX,
            Attempt::Usual | Attempt::Trial => {
                self.note_failure(host, now_ns);
                now_ns + WITHOUT_RDMA_NS
            }
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's head.
pub struct MemberDialer {
    shared_memory: Wanted,
    rdma: Wanted,
    rdma_device: Option<String>,
    known: Arc<Mutex<Known>>,
}

impl MemberDialer {
    /// With the transports that the server's own clients may use.
    pub fn new(options: &Options) -> MemberDialer {
        let wanted = |setting| match options.text(setting, "on").as_str() {
            "off" => Wanted::Off,
            _ => Wanted::Auto,
        };
        MemberDialer {
            shared_memory: wanted("net.sharedMemory"),
            rdma: wanted("net.rdma.mode"),
            rdma_device: options.given("net.rdma.device").map(str::to_owned),
            known: Arc::default(),
        }
    }

    fn uri(&self, host: &str) -> Result<Uri, String> {
        let uri = format!("mongodb://{host}/").parse::<Uri>().map_err(|error| error.to_string())?;
        Ok(Uri {
            connect_timeout: CONNECT_TIMEOUT,
            app_name: Some("kauri member".to_owned()),
            shared_memory: self.shared_memory,
            rdma: self.rdma,
            rdma_device: self.rdma_device.clone(),
            ..uri
        })
    }
}

impl Dial for MemberDialer {
    fn dial(&self, worker: &WorkerHandle, host: &str) -> Dialing {
        let (worker, host, uri) = (worker.clone(), host.to_owned(), self.uri(host));
        let known = self.known.clone();
        Box::pin(async move {
            let uri = uri?;
            let attempt = lock(&known).attempt(&host, monotonic_ns());
            let opened = match attempt {
                Attempt::Usual => open(&worker, &uri).await?,
                Attempt::Without(_) => open(&worker, &Uri { rdma: Wanted::Off, ..uri }).await?,
                Attempt::Trial => match within(&worker, TRIAL_TIMEOUT, open(&worker, &uri)).await {
                    Some(opened) => opened?,
                    None => open(&worker, &Uri { rdma: Wanted::Off, ..uri }).await?,
                },
            };
            let is_rdma = opened.session.transport() == Some(Transport::Rdma.name());
            let retry_ns = lock(&known).note(&host, attempt, is_rdma, monotonic_ns());
            let session = opened.session;
            Ok(Box::new(MemberLink { session, host, is_rdma, retry_ns, known }) as Box<dyn Link>)
        })
    }
}

/// Says `hello` to a server, over a session of its own.
pub fn greet(worker: &WorkerHandle, host: &str) -> Greeting {
    let (worker, uri) = (worker.clone(), format!("mongodb://{host}/").parse::<Uri>());
    Box::pin(async move {
        let uri = Uri {
            connect_timeout: CONNECT_TIMEOUT,
            shared_memory: Wanted::Off,
            rdma: Wanted::Off,
            ..uri.map_err(|error| error.to_string())?
        };
        open(&worker, &uri).await.map(|opened| opened.greeting)
    })
}

async fn open(worker: &WorkerHandle, uri: &Uri) -> Result<Opened, String> {
    let options =
        OutgoingOptions { unsent_bytes_max: UNSENT_BYTES_MAX, ..OutgoingOptions::default() };
    let opened = kauri_client::outgoing::open(worker, uri, options).await;
    opened.map_err(|error| error.to_string())
}

/// What the future answers, if that takes no longer.
async fn within<T>(
    worker: &WorkerHandle,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut limit) = (pin!(future), worker.sleep(limit));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Pin::new(&mut limit).poll(cx).map(|()| None),
    })
    .await
}

/// A session with a member's server, to which messages are commands without replies.
struct MemberLink {
    session: Outgoing,
    host: String,
    is_rdma: bool,
    /// When RDMA is tried again.
    retry_ns: u64,
    known: Arc<Mutex<Known>>,
}

impl Link for MemberLink {
    fn send(&self, bytes: Vec<u8>) -> Sending<'_> {
        Box::pin(async move { send_by(&self.session, &bytes).await })
    }

    fn is_over(&self) -> bool {
        self.session.ended().is_some() || monotonic_ns() >= self.retry_ns
    }

    fn note_silence(&self) -> bool {
        if self.is_rdma {
            lock(&self.known).note_failure(&self.host, monotonic_ns());
        }
        self.is_rdma
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::parse;

    #[test]
    fn members_use_the_transports_of_the_servers_clients() {
        let uri = |args: &[&str]| MemberDialer::new(&parse(args).unwrap()).uri("h:5").unwrap();
        let usual = uri(&[]);
        assert_eq!((usual.shared_memory, usual.rdma), (Wanted::Auto, Wanted::Auto));
        assert_eq!((usual.host.to_string().as_str(), &usual.rdma_device), ("h:5", &None));
        let off = uri(&["--rdma", "off", "--sharedMemory", "off"]);
        assert_eq!((off.shared_memory, off.rdma), (Wanted::Off, Wanted::Off));
        let device = uri(&["--rdma", "require", "--rdmaDevice", "mlx5_1"]);
        assert_eq!(device.rdma, Wanted::Auto, "TCP does if the other has no RDMA");
        assert_eq!(device.rdma_device.as_deref(), Some("mlx5_1"));
    }

    #[test]
    fn rdma_that_failed_is_tried_again_after_a_while() {
        let mut known = Known::default();
        let host = "a:1";
        assert_eq!(known.attempt(host, 5), Attempt::Usual);
        assert_eq!(known.note(host, Attempt::Usual, false, 5), u64::MAX, "it has no device");
        assert_eq!(known.attempt(host, 5), Attempt::Usual);
        assert_eq!(known.note(host, Attempt::Usual, true, 5), u64::MAX);
        known.note_failure(host, 6);
        let end_ns = 6 + WITHOUT_RDMA_NS;
        let without = known.attempt(host, 7);
        assert_eq!(without, Attempt::Without(end_ns));
        assert_eq!(known.note(host, without, false, 7), end_ns);
        assert_eq!(known.attempt(host, end_ns), Attempt::Trial);
        assert_eq!(known.note(host, Attempt::Trial, false, end_ns), end_ns + WITHOUT_RDMA_NS);
        assert_eq!(known.attempt(host, end_ns + 1), Attempt::Without(end_ns + WITHOUT_RDMA_NS));
        assert_eq!(known.note(host, Attempt::Trial, true, 2 * end_ns), u64::MAX);
        assert_eq!(known.attempt(host, 2 * end_ns), Attempt::Usual);
        // It fails with a sign: the next attempt comes to nothing.
        assert_eq!(known.note(host, Attempt::Usual, false, 1), 1 + WITHOUT_RDMA_NS);
        assert_eq!(known.attempt("b:1", 6), Attempt::Usual);
    }
}
