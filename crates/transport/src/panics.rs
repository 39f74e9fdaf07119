//! Logs a caught panic as one line.

use kauri_base::log::{self, Attr};
use std::any::Any;

/// The text that a panic was raised with.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "(no text)",
    }
}

/// Logs one error line about a panic that ended a task or a session.
pub fn log_panic(ctx: &str, msg: &str, panic: &(dyn Any + Send)) {
    log::error("NETWORK", 7_100_001, ctx, msg, Attr::new().str("error", panic_text(panic)));
}
