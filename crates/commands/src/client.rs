//! The service's state of one connection.

use crate::cursors::ConnectionCursors;
use crate::ops::Seat;
use kauri_bson::{DocBuf, KeyStringBuilder};
use kauri_catalog::KeyScratch;
use kauri_storage::Scope;
use kauri_transport::ClientState;
use kauri_wire::Compressor;
use std::sync::Arc;

/// See the module's head.
#[derive(Default)]
pub struct Client {
    /// The metadata of the handshake, once it came.
    pub metadata: Option<DocBuf>,
    /// `appName` of the metadata.
    pub app_name: String,
    /// Compressors that both sides know, in the client's order.
    pub compressors: Vec<Compressor>,
    /// Whether the client said it speaks `hello`.
    pub hello_ok: bool,
    /// In an exhaust: the request, and the id of the reply that was sent last.
    pub exhaust_reply_id: Option<(i32, i32)>,
    /// The topology's counter that the last `hello` has told.
    pub hello_topology: i64,
    /// The place for its operations.
    pub seat: Arc<Seat>,
    /// The cursors that were opened on it.
    pub cursors: ConnectionCursors,
    /// The scope of operations on the express path.
    pub scope: Option<Scope>,
    /// Scratch memory of the express path.
    pub scratch_name: String,
    /// Scratch memory of the express path.
    pub scratch_key: KeyStringBuilder,
    /// Scratch memory of the express path.
    pub scratch_keys: KeyScratch,
}

impl ClientState for Client {}
