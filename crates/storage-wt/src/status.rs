//! Figures, and WiredTiger's own messages as log lines.

use crate::core::Core;
use crate::sys::Statistic;
use kauri_base::log::{self, Attr};
use kauri_bson::DocWriter;
use std::sync::Arc;

/// Logs what WiredTiger says; without an error it is for the record.
pub fn log_message(error: i32, message: &str) {
    let attr = Attr::new().num("error", error).str("message", message);
    if error == 0 {
        log::info("WT", 22430, "WTMessage", "WiredTiger message", attr);
    } else {
        log::error("WT", 22435, "WTError", "WiredTiger error", attr);
    }
}

impl Core {
    /// One of WiredTiger's figures; 0 if it can't be had.
    pub fn statistic(self: &Arc<Self>, which: Statistic) -> u64 {
        self.session().and_then(|mut session| session.statistic(which)).unwrap_or(0)
    }

    /// Writes the engine's section of `serverStatus`, with MongoDB's names.
    pub fn write_status(self: &Arc<Self>, out: &mut DocWriter<'_>) {
        let mut put = |section: &str, fields: &[(&str, Statistic)]| {
            let mut section = out.document(section);
            for (name, which) in fields {
                section.put(name, self.statistic(*which) as i64);
            }
        };
        put("block-manager", &[("bytes written", Statistic::BlockBytesWritten)]);
        put(
            "cache",
            &[
                ("bytes currently in the cache", Statistic::CacheBytes),
                ("maximum bytes configured", Statistic::CacheBytesMax),
                ("tracked dirty bytes in the cache", Statistic::CacheBytesDirty),
            ],
        );
        put(
            "log",
            &[
                ("log bytes written", Statistic::LogBytesWritten),
                ("log sync operations", Statistic::LogSyncs),
            ],
        );
        put("transaction", &[("transaction checkpoints", Statistic::Checkpoints)]);
        out.document("snapshots").put("held", self.snapshots.held() as i64);
    }
}
