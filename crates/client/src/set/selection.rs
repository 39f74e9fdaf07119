//! The servers that fit a read preference, and the choice among them.

use super::description::Role;
use super::topology::{Kind, Topology};
use crate::options::ReadMode;
use crate::uri::Host;
use std::time::Duration;

/// The servers that fit, in the order of their hosts: of those that the mode allows all that answer at most
/// `threshold` later than the fastest.
pub fn fitting(topology: &Topology, mode: ReadMode, threshold: Duration) -> Vec<Host> {
    let of = |role: Role| near(topology, |known| known == role, threshold);
    match topology.kind() {
        Kind::Unknown => return Vec::new(),
        // One server is the whole: it is asked, and refuses what it must.
        Kind::Single => return near(topology, |role| role != Role::Unknown, threshold),
        Kind::Sharded => return of(Role::Router),
        Kind::NoPrimary | Kind::WithPrimary => {}
    }
    let or = |first: Role, other: Role| {
        let fit = of(first);
        if fit.is_empty() { of(other) } else { fit }
    };
    match mode {
        ReadMode::Primary => of(Role::Primary),
        ReadMode::PrimaryPreferred => or(Role::Primary, Role::Secondary),
        ReadMode::Secondary => of(Role::Secondary),
        ReadMode::SecondaryPreferred => or(Role::Secondary, Role::Primary),
        ReadMode::Nearest => {
            near(topology, |role| matches!(role, Role::Primary | Role::Secondary), threshold)
        }
    }
}

fn near(topology: &Topology, fits: impl Fn(Role) -> bool, threshold: Duration) -> Vec<Host> {
    let fit: Vec<_> = topology.servers().filter(|(_, server)| fits(server.role)).collect();
    let Some(fastest) = fit.iter().map(|(_, server)| server.round_trip).min() else {
        return Vec::new();
    };
    let end = fastest.saturating_add(threshold);
    let near = fit.into_iter().filter(|(_, server)| server.round_trip <= end);
    near.map(|(host, _)| host.clone()).collect()
}

/// One of the servers that fit, by a random number.
pub fn choose(fit: &[Host], random: u64) -> Option<&Host> {
    let count = u64::try_from(fit.len()).ok().filter(|count| *count > 0)?;
    fit.get(usize::try_from(random % count).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::topology::tests::{described, host, set};
    use super::*;

    fn names(fit: &[Host]) -> String {
        fit.iter().map(|host| host.to_string().replace(":1", "")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_mode_selects_by_role_and_nearness() {
        use ReadMode::*;
        // A role and a round trip in ms for each of a, b, c; what fits in each mode, within 15 ms.
        let modes = [Primary, PrimaryPreferred, Secondary, SecondaryPreferred, Nearest];
        let (p, s, o, u) = (Role::Primary, Role::Secondary, Role::Other, Role::Unknown);
        for (roles, fit) in [
            ([(p, 5), (s, 5), (s, 5)], ["a", "a", "b c", "b c", "a b c"]),
            ([(p, 50), (s, 5), (s, 21)], ["a", "a", "b", "b", "b"]),
            ([(p, 5), (s, 20), (s, 21)], ["a", "a", "b c", "b c", "a b"]),
            ([(u, 0), (s, 5), (s, 30)], ["", "b", "b", "b", "b"]),
            ([(p, 5), (u, 0), (o, 1)], ["a", "a", "", "a", "a"]),
            ([(u, 0), (o, 1), (Role::Arbiter, 1)], ["", "", "", "", ""]),
        ] {
            let mut topology = set(&["a", "b", "c"]);
            for (name, (role, millis)) in ["a", "b", "c"].into_iter().zip(roles) {
                let mut server = described(role, &["a", "b", "c"], name);
                server.round_trip = Duration::from_millis(millis);
                topology.note(&host(name), server);
            }
            for (mode, expected) in modes.into_iter().zip(fit) {
                let got = fitting(&topology, mode, Duration::from_millis(15));
                assert_eq!(names(&got), expected, "{roles:?} {mode:?}");
            }
        }
    }

    #[test]
    fn a_choice_is_any_that_fits() {
        let fit = ["a", "b", "c"].map(host);
        let chosen: Vec<_> = (0..4).filter_map(|random| choose(&fit, random)).cloned().collect();
        assert_eq!(names(&chosen), "a b c a");
        assert_eq!(choose(&[], 7), None);
    }
}
