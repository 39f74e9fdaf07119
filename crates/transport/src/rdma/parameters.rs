//! The bytes of the handshake: the parameters that each side sends about its end.

use super::SHAPE;
use crate::ring::{PROBE_BYTES, Shape};
use kauri_verbs::{Endpoint, Gid, RemoteAddress};

/// The version of parameters and protocol.
const VERSION: u32 = 1;
const WORDS: usize = 8;
const LENGTH: usize = WORDS * 4 + 8 + 16;
/// Queue pair and packet sequence numbers are below this.
const NUMBERS: u32 = 1 << 24;

/// The parameters of one end, for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Its rings.
    pub shape: Shape,
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// The ring that it receives from.
    pub ring: RemoteAddress,
}

impl Parameters {
    /// As they are sent.
    pub fn encode(&self) -> Vec<u8> {
        let Parameters { shape, endpoint, ring } = self;
        let words = [
            VERSION,
            shape.bytes(),
            shape.frames(),
            endpoint.number,
            endpoint.sequence,
            endpoint.mtu,
            u32::from(endpoint.lid),
            ring.key,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&ring.address.to_le_bytes());
        bytes.extend_from_slice(&endpoint.gid.0);
        bytes
    }

    /// The peer's parameters, if valid, and the bytes after them.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), &'static str> {
        let short = "RDMA parameters of a wrong length";
        let (own, rest) = bytes.split_at_checked(LENGTH).ok_or(short)?;
        let (head, gid) = own.split_at_checked(LENGTH - 16).ok_or(short)?;
        let (head, address) = head.split_at_checked(WORDS * 4).ok_or(short)?;
        let mut words = [0; WORDS];
        for (to, from) in words.iter_mut().zip(head.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*from);
        }
        let [version, ring_bytes, frames, number, sequence, mtu, lid, key] = words;
        if version != VERSION {
            return Err("RDMA parameters of another version");
        }
        let shape = Shape::new(ring_bytes, frames).filter(|asked| *asked == SHAPE);
        let shape = shape.ok_or("RDMA rings of another size than 64 KB and 64 frames")?;
        if number >= NUMBERS || sequence >= NUMBERS {
            return Err("an invalid queue pair");
        }
        if !mtu.is_power_of_two() || !(256..=4096).contains(&mtu) {
            return Err("an invalid MTU");
        }
        let lid = u16::try_from(lid).map_err(|_| "an invalid LID")?;
        let gid = Gid(gid.try_into().map_err(|_| short)?);
        let address = u64::from_le_bytes(address.try_into().map_err(|_| short)?);
        if address.checked_add(u64::from(ring_bytes)).is_none() {
            return Err("an invalid address");
        }
        let endpoint = Endpoint { number, sequence, gid, lid, mtu };
        Ok((Parameters { shape, endpoint, ring: RemoteAddress { address, key } }, rest))
    }

    /// The client's, which nothing follows.
    pub fn decode_request(bytes: &[u8]) -> Result<Self, &'static str> {
        match Self::decode(bytes)? {
            (parameters, []) => Ok(parameters),
            _ => Err("RDMA parameters of a wrong length"),
        }
    }

    /// The server's answer.
    pub fn decode_answer(bytes: &[u8]) -> Result<Answer, &'static str> {
        let (parameters, rest) = Self::decode(bytes)?;
        let wrong = "RDMA parameters of a wrong length";
        let (probe, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let takes_zones = u32::from_le_bytes(rest.try_into().map_err(|_| wrong)?) != 0;
        Ok(Answer { parameters, probe: *probe, takes_zones })
    }
}

/// A server's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its end.
    pub parameters: Parameters,
    /// The contents of probes.
    pub probe: [u8; PROBE_BYTES as usize],
    /// Whether it has memory for large messages, so that zones may be offered.
    pub takes_zones: bool,
}

impl Answer {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.parameters.encode();
        bytes.extend_from_slice(&self.probe);
        bytes.extend_from_slice(&u32::from(self.takes_zones).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters {
            shape: SHAPE,
            endpoint: Endpoint {
                number: 0x0a_0b0c,
                sequence: 0xff_ffff,
                gid: Gid::of_address("10.0.2.15".parse().unwrap()),
                lid: 7,
                mtu: 1024,
            },
            ring: RemoteAddress { address: 0x7f00_1234_5000, key: 0xdead_beef },
        }
    }

    #[test]
    fn what_is_sent_is_what_the_design_says_and_is_understood() {
        let bytes = parameters().encode();
        let words = [1u32, 65_536, 64, 0x0a_0b0c, 0xff_ffff, 1024, 7, 0xdead_beef];
        let mut expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        expected.extend_from_slice(&0x7f00_1234_5000u64.to_le_bytes());
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 2, 15]);
        assert_eq!(bytes, expected);
        assert_eq!(Parameters::decode_request(&bytes), Ok(parameters()));
        for takes_zones in [false, true] {
            let answer =
                [bytes.as_slice(), b"12345678", &[u8::from(takes_zones), 0, 0, 0]].concat();
            let told = Answer { parameters: parameters(), probe: *b"12345678", takes_zones };
            assert_eq!((told.encode(), Parameters::decode_answer(&answer)), (answer, Ok(told)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = parameters().encode();
        for (at, word) in [(0, 2u32), (4, 131_072), (4, 0), (8, 128), (12, 1 << 24), (16, 1 << 24)]
            .into_iter()
            .chain([(20, 0), (20, 128), (20, 8192), (20, 1000), (24, 1 << 16)])
        {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&word.to_le_bytes());
            assert!(Parameters::decode_request(&bad).is_err(), "{word} at {at}");
        }
        let mut bad = good.clone();
        bad[32..40].copy_from_slice(&(u64::MAX - 65_535).to_le_bytes());
        assert_eq!(Parameters::decode_request(&bad), Err("an invalid address"));
        for length in 0..good.len() + 16 {
            let mut bytes = good.clone();
            bytes.resize(length, 0);
            assert_eq!(Parameters::decode_request(&bytes).is_ok(), length == good.len());
            assert_eq!(Parameters::decode_answer(&bytes).is_ok(), length == good.len() + 12);
        }
    }
}
