//! Bytes as text: base64 in both alphabets, hexadecimal, UUIDs.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64, padded in the standard alphabet, not padded in the one for URLs.
pub(crate) fn base64(bytes: &[u8], url: bool) -> String {
    let alphabet = if url { URL } else { STANDARD };
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let part = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = part(0) << 16 | part(1) << 8 | part(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                out.push(char::from(alphabet[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else if !url {
                out.push('=');
            }
        }
    }
    out
}

/// The bytes of a base64 text: padding is required in the standard alphabet, optional in the other.
pub(crate) fn from_base64(text: &str, url: bool) -> Option<Vec<u8>> {
    let alphabet = if url { URL } else { STANDARD };
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let padded = (digits.len() + padding).is_multiple_of(4) && padding <= 2;
    let complete = padded || (url && padding == 0);
    if !complete || digits.len() % 4 == 1 {
        return None;
    }
    let mut values = [u8::MAX; 256];
    for (value, digit) in (0u8..).zip(alphabet) {
        if let Some(slot) = values.get_mut(usize::from(*digit)) {
            *slot = value;
        }
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for digit in chunk {
            let value = values.get(usize::from(*digit)).copied().filter(|value| *value < 64)?;
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - chunk.len());
        let [_, a, b, c] = bits.to_be_bytes();
        out.extend([a, b, c].into_iter().take(chunk.len() - 1));
    }
    Some(out)
}

/// Two digits a byte, in capitals.
pub(crate) fn hex_upper(bytes: &[u8]) -> String {
    hex(bytes, b"0123456789ABCDEF")
}

/// Two digits a byte, in small letters.
pub(crate) fn hex_lower(bytes: &[u8]) -> String {
    hex(bytes, b"0123456789abcdef")
}

fn hex(bytes: &[u8], digits: &[u8; 16]) -> String {
    let digit = |value: u8| char::from(digits.get(usize::from(value)).copied().unwrap_or_default());
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// `01020304-0506-0708-090a-0b0c0d0e0f10`
pub(crate) fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.len() != 16 {
        return None;
    }
    let digits = hex_lower(bytes);
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let parts: Option<Vec<&str>> = parts.iter().map(|(from, to)| digits.get(*from..*to)).collect();
    Some(parts?.join("-"))
}

/// The bytes of a UUID.
pub(crate) fn from_uuid(text: &str) -> Option<Vec<u8>> {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths = [8, 4, 4, 4, 12];
    if parts.len() != 5 || parts.iter().zip(lengths).any(|(part, length)| part.len() != length) {
        return None;
    }
    from_hex(&parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let cases: [(&[u8], &str, &str); 6] = [
            (b"", "", ""),
            (b"f", "Zg==", "Zg"),
            (b"fo", "Zm8=", "Zm8"),
            (b"foo", "Zm9v", "Zm9v"),
            (b">>>>", "Pj4+Pg==", "Pj4-Pg"),
            (b"\xff\xfe", "//4=", "__4"),
        ];
        for (bytes, standard, url) in cases {
            assert_eq!(base64(bytes, false), standard);
            assert_eq!(base64(bytes, true), url);
            assert_eq!(from_base64(standard, false).as_deref(), Some(bytes));
            assert_eq!(from_base64(url, true).as_deref(), Some(bytes));
            assert_eq!(from_hex(&hex_upper(bytes)).as_deref(), Some(bytes));
        }
        for text in ["Zg", "Zg=", "Z", "Z===", "Zm9v=", "Pj4-Pg==", "Zm 8="] {
            assert_eq!(from_base64(text, false), None, "{text}");
        }
        assert_eq!(from_base64("Pj4+Pg", true), None);
        assert_eq!(from_base64("Zm8=", true).as_deref(), Some(b"fo".as_slice()));
        let id: Vec<u8> = (1..=16).collect();
        assert_eq!(uuid(&id).as_deref(), Some("01020304-0506-0708-090a-0b0c0d0e0f10"));
        assert_eq!(from_uuid("01020304-0506-0708-090a-0b0c0d0e0f10"), Some(id));
        for text in ["", "01020304-0506-0708-090a-0b0c0d0e0f1", "0102030405060708090a0b0c0d0e0f10"]
        {
            assert_eq!(from_uuid(text), None, "{text}");
        }
        assert_eq!(from_hex("abc"), None);
        assert_eq!(from_hex("gg"), None);
        assert_eq!(from_hex("é"), None);
    }
}
