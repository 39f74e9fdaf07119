//! Recognises other protocols on the database's port: HTTP and TLS.

use kauri_wire::Header;

/// A client of another protocol, by the first bytes that it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stranger {
    /// A browser.
    Http,
    /// A client that begins a TLS handshake.
    Tls,
}

impl Stranger {
    /// The protocol of other clients. As a message length, "GET " would exceed the limit by far. A TLS record may
    /// look like the beginning of a long message; but a request has no responseTo, and a ClientHello has its
    /// version there.
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"GET ") {
            return Some(Stranger::Http);
        }
        let is_client_hello = matches!(bytes, [0x16, 0x03, _, _, _, 0x01, _, _, _, 0x03, _, _, ..]);
        let answers_something =
            Header::parse(bytes).is_none_or(|header| !matches!(header.response_to, 0 | -1));
        (is_client_hello && answers_something).then_some(Stranger::Tls)
    }

    /// MongoDB's log message.
    pub fn error(self) -> &'static str {
        match self {
            Stranger::Http => "Client sent an HTTP request over a native MongoDB connection",
            Stranger::Tls => "SSL handshake received but server is started without SSL support",
        }
    }

    /// MongoDB's reply.
    pub fn response(self) -> &'static str {
        match self {
            Stranger::Http => HTTP_RESPONSE,
            Stranger::Tls => "",
        }
    }
}

const HTTP_RESPONSE: &str = concat!(
    "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\n",
    "It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_length_is_that_of_the_text() {
        let (head, text) = HTTP_RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", text.len())));
    }

    #[test]
    fn strangers_are_told_from_long_messages() {
        assert_eq!(Stranger::recognise(b"GET / HTTP/1.1\r\n"), Some(Stranger::Http));
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x7a\x01\x02\x03\x04\x05";
        assert_eq!(Stranger::recognise(hello), Some(Stranger::Tls));
        assert_eq!(Stranger::recognise(&hello[..11]), None, "not yet");
        let length = i32::from_le_bytes([0x16, 0x03, 0x01, 0x02]);
        let header = Header { length, request_id: 0x0300_0100, response_to: 0, op_code: 2013 };
        assert_eq!(Stranger::recognise(&header.to_bytes()), None);
    }
}
