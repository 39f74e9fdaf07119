//! A connection with one request at a time. Requests are written into reused memory, and replies are read in the
//! receive buffer.
//!
//! This module must not know the requests' meaning.

use super::failed;
use kauri_base::{Error, Result};
use kauri_bson::{Doc, DocWriter};
use kauri_client::{ClientError, Connection, Uri};

/// Where records and files are.
pub const DATABASE: &str = "ycsb";

/// See the module's head.
pub struct Link {
    connection: Connection,
    id: i32,
    message: Vec<u8>,
}

impl Link {
    /// Connects.
    pub fn open(uri: &Uri) -> Result<Link> {
        let connection = kauri_client::connect(uri).map_err(lost)?;
        Ok(Link { connection, id: 0, message: Vec::new() })
    }

    /// What it goes through.
    pub fn transport(&self) -> &'static str {
        self.connection.transport().name()
    }

    /// Sends the command that `fill` writes, and answers its reply.
    pub fn ask(&mut self, fill: impl FnOnce(&mut DocWriter<'_>)) -> Result<Doc<'_>> {
        let Link { connection, id, message } = self;
        *id = id.wrapping_add(1);
        message.clear();
        connection.write_command(message, *id, DATABASE, fill).map_err(lost)?;
        connection.send_message(message).map_err(lost)?;
        let (answers, reply) = connection.receive_borrowed().map_err(lost)?;
        match answers == *id {
            true => Ok(reply),
            false => Err(failed("the server", format!("answered request {answers}, not {id}"))),
        }
    }
}

fn lost(why: ClientError) -> Error {
    failed("the connection", why)
}

/// Whether a command has done what it was to do, all of it; if not, why.
pub fn succeeded(reply: Doc<'_>) -> std::result::Result<(), String> {
    match reply.value("ok").truthy() && reply.get("writeErrors").is_none() {
        true => Ok(()),
        false => Err(brief(reply)),
    }
}

/// A reply, in few words.
pub fn brief(reply: Doc<'_>) -> String {
    let text = format!("{reply:?}");
    text.chars().take(300).collect()
}
