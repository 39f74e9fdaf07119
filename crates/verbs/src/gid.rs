//! GIDs: the addresses of ports, and the choice of a session's GID.
//!
//! A RoCE port has a GID for each IP address of its network device and each protocol version. Both ends of a
//! connection must use the GID of the address by which they reach each other. Otherwise packets leave by another
//! interface or with another header.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The address of a port: 128 bits in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of a RoCE port with that address: an IPv4 address is mapped into IPv6.
    pub fn of_address(address: IpAddr) -> Gid {
        Gid(match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        })
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

/// The packet format of a GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet frames of their own type, which no router forwards.
    RoceV1,
    /// UDP to port 4791.
    RoceV2,
}

/// One entry of a device's GID tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The port that it belongs to.
    pub port: u8,
    /// Its index in that port's table.
    pub index: u8,
    /// Its packet format.
    pub kind: GidKind,
    /// The address.
    pub gid: Gid,
}

/// The entry of `table` to reach others by from the local address `local`: the GID that is this
/// address, RoCE v2 before v1. An InfiniBand port's GIDs are no IP addresses, so there the table's
/// first entry serves, if no RoCE entry matches.
pub fn choose_gid(table: &[GidEntry], local: IpAddr) -> Option<GidEntry> {
    let wanted = Gid::of_address(local);
    let by_kind = |kind| table.iter().find(|e| e.kind == kind && e.gid == wanted);
    by_kind(GidKind::RoceV2)
        .or_else(|| by_kind(GidKind::RoceV1))
        .or_else(|| table.iter().find(|e| e.kind == GidKind::InfiniBand && e.gid != Gid::default()))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PORT INDEX KIND ADDRESS`, one entry a line.
    const TABLE: &str = "
        1 0 v1 fe80::5054:ff:fe12:3456
        1 1 v2 fe80::5054:ff:fe12:3456
        1 2 v1 ::ffff:10.0.2.15
        1 3 v2 ::ffff:10.0.2.15
        1 4 v1 2001:db8::7
        2 0 v2 ::ffff:10.0.3.15
    ";
    const FABRIC: &str = "
        1 0 ib fe80::11
        1 1 ib fe80::12
    ";

    fn parse(text: &str) -> Vec<GidEntry> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let kind = match words[2] {
                    "ib" => GidKind::InfiniBand,
                    "v1" => GidKind::RoceV1,
                    _ => GidKind::RoceV2,
                };
                let gid = Gid(words[3].parse::<Ipv6Addr>().unwrap().octets());
                GidEntry {
                    port: words[0].parse().unwrap(),
                    index: words[1].parse().unwrap(),
                    kind,
                    gid,
                }
            })
            .collect()
    }

    #[test]
    fn the_gid_is_the_local_address_by_roce_v2_if_possible() {
        for (table, address, expected) in [
            (TABLE, "10.0.2.15", Some((1, 3))),
            (TABLE, "10.0.3.15", Some((2, 0))),
            (TABLE, "fe80::5054:ff:fe12:3456", Some((1, 1))),
            (TABLE, "2001:db8::7", Some((1, 4))),
            (TABLE, "::ffff:10.0.2.15", Some((1, 3))),
            (TABLE, "10.0.2.16", None),
            (TABLE, "127.0.0.1", None),
            (FABRIC, "10.0.2.15", Some((1, 0))),
            ("", "10.0.2.15", None),
        ] {
            let chosen = choose_gid(&parse(table), address.parse().unwrap());
            assert_eq!(chosen.map(|e| (e.port, e.index)), expected, "{address} in {table}");
        }
    }

    #[test]
    fn a_gid_is_shown_as_an_address() {
        assert_eq!(Gid::of_address("10.0.2.15".parse().unwrap()).to_string(), "::ffff:10.0.2.15");
    }
}
