//! An RDMA client that performs each protocol step separately, valid or not.

use crate::rig::{self, Server, address};
use kauri_bson::{DocBuf, Value, doc};
use kauri_transport::rdma::{DialedEnd, Dialer, Dialing};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A longer wait is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn dialer() -> &'static Dialer {
    static DIALER: OnceLock<Dialer> = OnceLock::new();
    DIALER.get_or_init(|| Dialer::open(None).unwrap())
}

pub fn ping() -> Vec<u8> {
    rig::message(&doc! { "ping" => 1 })
}

/// A client that does each step by itself.
pub struct Raw {
    pub socket: TcpStream,
}

impl Raw {
    pub fn connect(server: &Server) -> Raw {
        let socket = TcpStream::connect((address(), server.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { socket }
    }

    pub fn dial(&self) -> Dialing {
        dialer().prepare(self.socket.local_addr().unwrap().ip(), 7).unwrap()
    }

    /// The server's reply to a request with these parameters.
    pub fn ask(&mut self, parameters: &[u8]) -> DocBuf {
        let parameters = Value::Binary { subtype: 0, bytes: parameters.into() };
        self.socket
            .write_all(&rig::message(
                &doc! { "kauriUpgrade" => 1, "transport" => "rdma", "parameters" => parameters },
            ))
            .unwrap();
        self.reply().unwrap()
    }

    pub fn reply(&mut self) -> Option<DocBuf> {
        let mut header = [0; 4];
        self.socket.read_exact(&mut header).ok()?;
        let mut message = header.to_vec();
        message.resize(u32::from_le_bytes(header) as usize, 0);
        self.socket.read_exact(&mut message[4..]).ok()?;
        let (_, kauri_wire::Message::Msg(parts)) = kauri_wire::Message::parse(&message).unwrap()
        else {
            panic!("no OP_MSG")
        };
        Some(kauri_bson::Doc::from_bytes(parts.body).unwrap().to_buf())
    }

    /// The server's reply to the parameters as `lie` has modified them.
    pub fn answer(&mut self, dialing: &Dialing, lie: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut parameters = dialing.request();
        lie(&mut parameters);
        let reply = self.ask(&parameters);
        match reply.as_doc().value("parameters") {
            Value::Binary { bytes, .. } => bytes.into_owned(),
            _ => panic!("{reply:?}"),
        }
    }

    pub fn offer(&mut self) -> (DialedEnd, [u8; 8]) {
        let dialing = self.dial();
        let answer = self.answer(&dialing, |_| {});
        dialing.accept(&answer).unwrap()
    }

    pub fn switch(&mut self) -> DialedEnd {
        let (mut end, probe) = self.offer();
        end.probe(probe);
        until("the server's probe", || end.look().unwrap().probe.is_some());
        end
    }

    /// Whether the session continues on its stream.
    pub fn goes_on(&mut self) -> bool {
        self.socket.write_all(&ping()).is_ok() && self.reply().is_some()
    }

    /// Whether the session has ended; the socket must not block.
    pub fn has_ended(&self) -> bool {
        let read = (&self.socket).read(&mut [0; 1]);
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Waits for the session's end.
    pub fn ended(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::yield_now();
    }
}

pub fn ask_ping(end: &mut DialedEnd) {
    assert_eq!(end.send(&ping(), &[]), ping().len());
    until("a reply", || end.look().unwrap().readable);
    let mut reply = Vec::with_capacity(4096);
    end.receive(&mut reply);
    assert!(reply.len() > 30);
}
