//! A client's RDMA devices: each is opened once in a process, when it is first asked for.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_transport::rdma::{Dialer, Dialing};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Opened = Mutex<Vec<(Option<String>, Arc<Dialer>)>>;

/// The device of that name, or the first that is active.
fn dialer(device: Option<&str>) -> Result<Arc<Dialer>, String> {
    static OPENED: OnceLock<Opened> = OnceLock::new();
    let opened = OPENED.get_or_init(Mutex::default);
    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, dialer)) = opened.iter().find(|(name, _)| name.as_deref() == device) {
        return Ok(Arc::clone(dialer));
    }
    let dialer = Arc::new(Dialer::open(device).map_err(|error| error.to_string())?);
    opened.push((device.map(str::to_owned), Arc::clone(&dialer)));
    Ok(dialer)
}

/// Makes everything for a connection from this address.
pub fn prepare(device: Option<&str>, address: IpAddr) -> Result<Dialing, String> {
    static RANDOM: OnceLock<SeededRandom> = OnceLock::new();
    let random = RANDOM.get_or_init(SeededRandom::from_entropy).next_u64();
    let prepared = dialer(device)?.prepare(address, random);
    prepared.map_err(|error| error.to_string())
}
