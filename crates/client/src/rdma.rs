//! The RDMA devices of a client process: each device is opened once, at first use. A child process opens its own
//! devices, because its parent's do not work in it.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_transport::outgoing::{Outgoing, OutgoingError};
use kauri_transport::rdma::{Dialer, Dialing};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device, of what name, and the process that has opened it. None is closed before the process ends, in a child
/// least of all.
struct Opened<T> {
    process: u32,
    name: Option<String>,
    device: Arc<T>,
}

/// The one that this process has opened, or a new one.
fn opened<T>(
    all: &mut Vec<Opened<T>>,
    process: u32,
    name: Option<&str>,
    open: impl FnOnce() -> Result<T, String>,
) -> Result<Arc<T>, String> {
    let mut known = all.iter().filter(|one| one.process == process);
    if let Some(one) = known.find(|one| one.name.as_deref() == name) {
        return Ok(Arc::clone(&one.device));
    }
    let device = Arc::new(open()?);
    all.push(Opened { process, name: name.map(str::to_owned), device: Arc::clone(&device) });
    Ok(device)
}

/// The device of that name, or the first that is active.
fn dialer(device: Option<&str>) -> Result<Arc<Dialer>, String> {
    static OPENED: Mutex<Vec<Opened<Dialer>>> = Mutex::new(Vec::new());
    let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened(&mut all, std::process::id(), device, || {
        Dialer::open(device).map_err(|error| error.to_string())
    })
}

/// A number that a server cannot guess.
fn random() -> u64 {
    static RANDOM: OnceLock<SeededRandom> = OnceLock::new();
    RANDOM.get_or_init(SeededRandom::from_entropy).next_u64()
}

/// Makes everything for a connection from this address.
pub fn prepare(device: Option<&str>, address: IpAddr) -> Result<Dialing, String> {
    let prepared = dialer(device)?.prepare(address, random());
    prepared.map_err(|error| error.to_string())
}

/// Makes everything for a session of a worker. Answers the parameters of the request.
pub async fn prepare_on_worker(
    device: Option<&str>,
    session: &Outgoing,
) -> Result<Result<Vec<u8>, String>, OutgoingError> {
    match dialer(device) {
        Ok(dialer) => session.prepare_rdma(dialer, random()).await,
        Err(why) => Ok(Err(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_once_in_each_process() {
        let (mut all, mut count) = (Vec::new(), 0);
        let mut got = Vec::new();
        for (process, name) in
            [(1, None), (1, Some("a")), (1, None), (2, None), (2, None), (1, None)]
        {
            let open = || {
                count += 1;
                Ok(count)
            };
            got.push(*opened(&mut all, process, name, open).unwrap());
        }
        assert_eq!(got, [1, 2, 1, 3, 3, 1]);
        let none = opened(&mut all, 3, None, || Err("no device".to_owned()));
        assert_eq!((none, all.len()), (Err("no device".to_owned()), 3));
    }
}
