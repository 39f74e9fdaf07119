//! Search, split and replace in strings that are not UTF-8, byte by byte as in MongoDB.
//!
//! Each byte becomes the character of its number (Latin-1), so that text search finds bytes in linear time. Results
//! are converted back to bytes.

/// Each byte as a character.
pub(crate) fn widen(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The bytes of a widened text.
pub(crate) fn narrow(text: &str) -> Vec<u8> {
    // Characters of a widened text are below 256.
    text.chars().map(|c| c as u8).collect()
}

/// Position of the first occurrence.
pub(crate) fn find(text: &[u8], token: &[u8]) -> Option<usize> {
    let text = widen(text);
    let at = text.find(&widen(token))?;
    text.get(..at).map(|before| before.chars().count())
}

/// Whether a byte is in the middle of a character.
pub(crate) fn continues(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80)
}

/// Characters: bytes that begin one.
pub(crate) fn count(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

/// Bytes of the character that begins here, by its first byte. `None` where none begins.
pub(crate) fn char_bytes(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)?.leading_ones() {
        0 => Some(1),
        ones @ 2..=4 => Some(ones as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_widening_and_are_found() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(narrow(&widen(&all)), all);
        assert_eq!(find(&all, b"\xC3\xC4"), Some(0xC3));
        assert_eq!(find(b"\xFFab\xFF", b"b\xFF"), Some(2));
        assert_eq!(find(b"\xC3\xA9", b"\xE9"), None);
        assert_eq!(find(b"\xFF", b""), Some(0));
    }

    #[test]
    fn characters_are_counted_by_their_first_bytes() {
        assert_eq!(count("aé€😀".as_bytes()), 4);
        assert_eq!(count(b"\x80\xFFa"), 2);
        assert_eq!(char_bytes("€".as_bytes(), 0), Some(3));
        assert_eq!(char_bytes("€".as_bytes(), 1), None);
        assert_eq!((char_bytes(b"\xFF", 0), char_bytes(b"", 0)), (None, None));
    }
}
