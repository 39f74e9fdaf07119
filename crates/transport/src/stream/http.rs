//! The answer to a browser that was pointed at the database's port.

/// Whether these first bytes are those of an HTTP request. As a message length they would be far
/// beyond the limit, so no message is mistaken for one.
pub(crate) fn is_request(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(b"GET ")
}

/// What MongoDB answers.
pub(crate) const RESPONSE: &str = concat!(
    "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\n",
    "It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_length_is_that_of_the_text() {
        let (head, text) = RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", text.len())));
    }
}
