//! A session's change from its byte stream to shared memory, as far as the command that asks for it
//! goes: whether it may, and the offer until the session takes it.
//!
//! The command prepares an offer and answers with its parameters; the session sends the descriptors
//! beside that answer and sees to the rest (`stream::crossing`).
//!
//! Must not know: BSON, and what the session does with the offer.

use crate::shared_memory::{Offer, Refusal};
use kauri_base::{Error, ErrorCode, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The one transport that there is to change over to.
pub const SHARED_MEMORY: &str = "sharedMemory";

/// What has come of upgrades in this process.
#[derive(Default, Debug)]
pub struct UpgradeStats {
    /// Offers made.
    pub offered: AtomicU64,
    /// Sessions that have changed over.
    pub switched: AtomicU64,
    /// Offers that clients did not take up, and switches that they did not learn of.
    pub withdrawn: AtomicU64,
    /// Requests that got no offer.
    pub refused: AtomicU64,
    /// Sessions with a ring now.
    pub sessions: AtomicU64,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    Stream,
    Prepared(Box<Offer>),
    /// The session has it.
    Taken,
}

/// See the module's head. One for each session.
#[derive(Debug, Default)]
pub struct UpgradePoint {
    /// Why shared memory is not for this session, if it isn't.
    refusal: Option<&'static str>,
    progress: Mutex<Progress>,
    is_prepared: AtomicBool,
    stats: Arc<UpgradeStats>,
}

impl UpgradePoint {
    pub(crate) fn new(refusal: Option<&'static str>, stats: Arc<UpgradeStats>) -> Self {
        UpgradePoint { refusal, stats, ..UpgradePoint::default() }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the command: makes an offer. Answers its parameters, which have to be sent in the reply that
    /// comes next. Nobody else may know `probe`.
    pub fn prepare(&self, transport: &str, parameters: &[u8], probe: u64) -> Result<Vec<u8>> {
        let made = self.make(transport, parameters, probe);
        let count = if made.is_ok() { &self.stats.offered } else { &self.stats.refused };
        count.fetch_add(1, Ordering::Relaxed);
        made
    }

    fn make(&self, transport: &str, parameters: &[u8], probe: u64) -> Result<Vec<u8>> {
        let illegal = |why: String| Err(Error::new(ErrorCode::IllegalOperation, why));
        if transport != SHARED_MEMORY {
            let why = format!("unknown transport '{transport}': there is '{SHARED_MEMORY}'");
            return Err(Error::new(ErrorCode::BadValue, why));
        }
        if let Some(why) = self.refusal {
            return illegal(why.to_owned());
        }
        let mut progress = self.progress();
        if !matches!(*progress, Progress::Stream) {
            return illegal("the session has been offered shared memory already".to_owned());
        }
        let offer =
            Offer::make(parameters, probe.to_le_bytes()).map_err(|refusal| match refusal {
                Refusal::Parameters(why) => Error::new(ErrorCode::BadValue, why),
                Refusal::System(error) => Error::new(
                    ErrorCode::ExceededMemoryLimit,
                    format!("no shared memory for the session: {error}"),
                ),
            })?;
        let answer = offer.answer.clone();
        *progress = Progress::Prepared(Box::new(offer));
        self.is_prepared.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// For the session: the offer whose parameters the next reply carries.
    pub(crate) fn take(&self) -> Option<Box<Offer>> {
        if !self.is_prepared.load(Ordering::Relaxed) {
            return None;
        }
        self.is_prepared.store(false, Ordering::Relaxed);
        let mut progress = self.progress();
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Prepared(offer) => Some(offer),
            other => {
                *progress = other;
                None
            }
        }
    }

    /// For the session: the client goes on with the stream.
    pub(crate) fn withdraw(&self) {
        *self.progress() = Progress::Stream;
        self.stats.withdrawn.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> &Arc<UpgradeStats> {
        &self.stats
    }
}
