//! Server data for pipeline stages (`$currentOp`, `$listLocalSessions`, `$collStats`).

use super::coll_stats;
use crate::ops;
use crate::server::Server;
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf, DocWriter, Type, Value};
use kauri_catalog::{Collection, Namespace};
use kauri_query::pipeline::server_info::{CurrentOpOptions, ServerInfo};
use std::sync::Arc;

/// See the module's head.
pub struct ServerFacts(pub Arc<Server>);

/// SHA-256 of the empty string: stands for the user of a session while there are no users.
const NOBODY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Bytes of a command document beyond which `truncateOps` cuts it.
const COMMAND_BYTES_MAX: usize = 1024;

impl ServerInfo for ServerFacts {
    fn host(&self) -> String {
        self.0.start.host.clone()
    }

    fn operations(&self, options: CurrentOpOptions) -> Vec<DocBuf> {
        let server = &self.0;
        let now_ms = server.clock.unix_ms();
        let mut rows = Vec::new();
        let host = &server.start.host;
        server.operations.for_each_connection(|peer, running| match running {
            Some(running) => {
                let row = ops::describe(peer, running, host, now_ms);
                rows.push(if options.truncate_ops { truncated(row.as_doc()) } else { row });
            }
            None if options.idle_connections => {
                rows.push(ops::describe_idle(peer, host, now_ms));
            }
            None => {}
        });
        if options.idle_cursors {
            server.cursors.for_each_idle(|cursor| {
                rows.push(DocBuf::build(|out| {
                    out.put("type", "idleCursor");
                    out.put("host", &server.start.host);
                    out.put("ns", cursor.ns.as_str());
                    if let Some(id) = cursor.lsid {
                        let uuid = Value::Binary { subtype: 4, bytes: id.as_slice().into() };
                        out.document("lsid").put_value("id", &uuid);
                    }
                    let mut inner = out.document("cursor");
                    inner.put("cursorId", cursor.id);
                    inner.put_value("createdDate", &Value::DateTime(cursor.created_ms));
                    inner.put("nDocsReturned", cursor.returned as i64);
                    inner.put("nBatchesReturned", cursor.batches as i64);
                    inner.put("noCursorTimeout", cursor.no_timeout);
                    inner.put("tailable", cursor.tailing != crate::cursors::Tailing::No);
                    inner.put("originatingCommand", &*cursor.command);
                }));
            });
        }
        rows
    }

    fn sessions(&self) -> Vec<DocBuf> {
        let server = &self.0;
        let (now, now_ms) = (server.clock.monotonic(), server.clock.unix_ms());
        let row = |(id, used): (crate::sessions::SessionId, std::time::Duration)| {
            let ago = i64::try_from(now.saturating_sub(used).as_millis()).unwrap_or(i64::MAX);
            DocBuf::build(|out| {
                {
                    let mut key = out.document("_id");
                    let uuid = Value::Binary { subtype: 4, bytes: id.as_slice().into() };
                    key.put_value("id", &uuid);
                    let user = Value::Binary { subtype: 0, bytes: NOBODY.as_slice().into() };
                    key.put_value("uid", &user);
                }
                out.put_value("lastUse", &Value::DateTime(now_ms.saturating_sub(ago)));
            })
        };
        server.sessions.all().into_iter().map(row).collect()
    }

    fn own_count(&self, ns: &Namespace) -> Option<u64> {
        self.0.own_collections().count(ns)
    }

    fn storage_stats(
        &self,
        ns: &Namespace,
        collection: Option<&Collection>,
        scale: i64,
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        let mut written = Ok(());
        let all =
            DocBuf::build(|out| written = coll_stats::write(&self.0, ns, collection, scale, out));
        written?;
        all.as_doc().iter().filter(|e| e.key() != "ns").for_each(|e| out.put_elem(e));
        Ok(())
    }
}

/// The row with a long command truncated, for `truncateOps`.
fn truncated(row: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for elem in row {
            let command = elem.as_doc().filter(|doc| {
                let long = doc.as_bytes().len() > COMMAND_BYTES_MAX;
                elem.key() == "command" && elem.ty() == Type::Document && long
            });
            let Some(command) = command else {
                out.put_elem(elem);
                continue;
            };
            let text = kauri_bson::shell_text(command);
            let mut cut = out.document("command");
            cut.put("$truncated", text.chars().take(COMMAND_BYTES_MAX).collect::<String>());
            if let Some(comment) = command.get("comment") {
                cut.put_elem(comment);
            }
        }
    })
}
