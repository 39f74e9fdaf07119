//! What the service keeps of one connection.

use kauri_bson::DocBuf;
use kauri_transport::ClientState;
use kauri_wire::Compressor;

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
    /// Whether a first handshake was answered.
    pub greeted: bool,
}

impl ClientState for Client {}
