//! The servers that fit a read preference, and the choice among them.
//!
//! The steps are those of the public specification "server selection": the mode gives candidates, of which secondaries
//! that are too far behind are left out, then those without the wanted tags, then those that answer late.

use super::description::{Description, Role};
use super::topology::{Kind, Topology};
use crate::options::{ReadMode, SetOptions, Tags};
use crate::uri::Host;
use std::time::Duration;

type Server<'t> = (&'t Host, &'t Description);

/// The servers that fit, in the order of their hosts: of those that the read preference allows all that answer at most
/// `threshold` later than the fastest.
pub fn fitting(topology: &Topology, options: &SetOptions, threshold: Duration) -> Vec<Host> {
    let of = |role: Role| with(topology, |known| known == role);
    let secondaries = || wanted(of(Role::Secondary), topology, options);
    let or = |first: Vec<_>, other: &dyn Fn() -> Vec<_>| match first.is_empty() {
        true => other(),
        false => first,
    };
    let fit = match (topology.kind(), options.preference.mode) {
        (Kind::Unknown, _) => Vec::new(),
        // One server is the whole: it is asked, and refuses what it must.
        (Kind::Single, _) => with(topology, |role| role != Role::Unknown),
        (Kind::Sharded, _) => of(Role::Router),
        (_, ReadMode::Primary) => of(Role::Primary),
        (_, ReadMode::PrimaryPreferred) => or(of(Role::Primary), &secondaries),
        (_, ReadMode::Secondary) => secondaries(),
        (_, ReadMode::SecondaryPreferred) => or(secondaries(), &|| of(Role::Primary)),
        (_, ReadMode::Nearest) => {
            let both = with(topology, |role| matches!(role, Role::Primary | Role::Secondary));
            wanted(both, topology, options)
        }
    };
    near(fit, threshold)
}

fn with(topology: &Topology, fits: impl Fn(Role) -> bool) -> Vec<Server<'_>> {
    topology.servers().filter(|(_, server)| fits(server.role)).collect()
}

/// Of these those that are not too far behind, and of these those that have the tags of the first set that any has.
fn wanted<'t>(
    servers: Vec<Server<'t>>,
    topology: &'t Topology,
    options: &SetOptions,
) -> Vec<Server<'t>> {
    let is_fresh = |server: &Server<'t>| match options.preference.max_staleness {
        Some(most) => {
            staleness_ms(server.1, topology, options.heartbeat) <= most.as_millis() as i64
        }
        None => true,
    };
    let fresh: Vec<_> = servers.into_iter().filter(is_fresh).collect();
    let sets = &options.preference.tag_sets;
    if sets.is_empty() {
        return fresh;
    }
    let having = |set: &Tags| -> Vec<_> {
        let has_all = |server: &&Server<'t>| set.iter().all(|tag| server.1.tags.contains(tag));
        fresh.iter().filter(has_all).copied().collect()
    };
    sets.iter().map(having).find(|found| !found.is_empty()).unwrap_or_default()
}

/// How far a secondary may be behind the primary, in milliseconds; without a primary behind the newest secondary. A
/// primary is not behind. Of a server that does not tell its last write all is possible.
fn staleness_ms(server: &Description, topology: &Topology, heartbeat: Duration) -> i64 {
    if server.role != Role::Secondary {
        return 0;
    }
    let heartbeat_ms = heartbeat.as_millis() as i64;
    let primary = topology.servers().find(|(_, known)| known.role == Role::Primary);
    let behind_ms = match primary {
        Some((_, primary)) => behind_now_ms(server).zip(behind_now_ms(primary)).map(|(a, b)| a - b),
        None => {
            let secondaries = topology.servers().filter(|(_, of)| of.role == Role::Secondary);
            let newest = secondaries.filter_map(|(_, of)| of.last_write_ms).max();
            newest.zip(server.last_write_ms).map(|(newest, own)| newest.saturating_sub(own))
        }
    };
    behind_ms.map_or(i64::MAX, |behind| behind.saturating_add(heartbeat_ms))
}

/// From the last write to when it was told. Only differences of such times mean something.
fn behind_now_ms(server: &Description) -> Option<i64> {
    let seen_ms = i64::try_from(server.seen.as_millis()).ok()?;
    // Dates are what the server says: kept where sums have room.
    let wrote_ms = server.last_write_ms?.clamp(i64::MIN / 4, i64::MAX / 4);
    Some(seen_ms.min(i64::MAX / 4) - wrote_ms)
}

fn near(fit: Vec<Server<'_>>, threshold: Duration) -> Vec<Host> {
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
    use crate::options::ReadPreference;

    const THRESHOLD: Duration = Duration::from_millis(15);

    fn options(mode: ReadMode) -> SetOptions {
        SetOptions { preference: ReadPreference::new(mode), ..SetOptions::new(Vec::new()) }
    }

    /// A set of these servers: a name, a role, tags like `dc:ny rack:1`, when it answered and its last write, in
    /// seconds.
    fn tagged(servers: &[(&str, Role, &str, u64, i64)]) -> Topology {
        let names: Vec<_> = servers.iter().map(|server| server.0).collect();
        let mut topology = set(&names);
        for (name, role, tags, seen, wrote) in servers {
            let mut server = described(*role, &names, name);
            let tag = |tag: &str| tag.split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned()));
            server.tags = tags.split(' ').filter_map(tag).collect();
            server.seen = Duration::from_secs(*seen);
            server.last_write_ms = Some(wrote * 1000);
            topology.note(&host(name), server);
        }
        topology
    }

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
                let got = fitting(&topology, &options(mode), THRESHOLD);
                assert_eq!(names(&got), expected, "{roles:?} {mode:?}");
            }
        }
    }

    #[test]
    fn tag_sets_count_in_their_order() {
        use ReadMode::*;
        let (p, s) = (Role::Primary, Role::Secondary);
        let servers = [
            ("a", p, "dc:ny rack:1", 0, 0),
            ("b", s, "dc:ny rack:2", 0, 0),
            ("c", s, "dc:la rack:1", 0, 0),
            ("d", s, "", 0, 0),
        ];
        let with_primary = tagged(&servers);
        let no_primary = tagged(&servers[1..]);
        for (sets, mode, fit, fit_without_primary) in [
            (&[][..], Secondary, "b c d", "b c d"),
            (&[""], Secondary, "b c d", "b c d"),
            (&["dc:ny"], Secondary, "b", "b"),
            (&["dc:ny rack:2"], Secondary, "b", "b"),
            // All tags of a set are to match, the names exactly.
            (&["dc:ny rack:1"], Secondary, "", ""),
            (&["DC:ny"], Secondary, "", ""),
            // The next set counts if no server has the first one's tags, and is not looked at otherwise.
            (&["dc:tokyo", "rack:1"], Secondary, "c", "c"),
            (&["dc:la", "dc:ny"], Secondary, "c", "c"),
            (&["dc:tokyo", ""], Secondary, "b c d", "b c d"),
            // The primary has to match only where it is no more than another one.
            (&["dc:la"], Nearest, "c", "c"),
            (&["dc:ny"], Nearest, "a b", "b"),
            (&["dc:tokyo"], SecondaryPreferred, "a", ""),
            (&["dc:la"], SecondaryPreferred, "c", "c"),
            (&["dc:la"], PrimaryPreferred, "a", "c"),
            (&["dc:tokyo"], PrimaryPreferred, "a", ""),
        ] {
            let mut options = options(mode);
            let parsed = |set: &&str| {
                let tags = set.split(' ').filter_map(|tag| tag.split_once(':'));
                tags.map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
            };
            options.preference.tag_sets = sets.iter().map(parsed).collect();
            let got =
                [&with_primary, &no_primary].map(|of| names(&fitting(of, &options, THRESHOLD)));
            assert_eq!(got, [fit, fit_without_primary], "{sets:?} {mode:?}");
        }
    }

    #[test]
    fn secondaries_that_are_too_far_behind_do_not_fit() {
        use ReadMode::*;
        let (p, s) = (Role::Primary, Role::Secondary);
        // The heartbeat's 10 s count: 110 s behind is the most.
        let fit = |servers: &[_], mode| {
            let mut options = options(mode);
            options.preference.max_staleness = Some(Duration::from_secs(120));
            names(&fitting(&tagged(servers), &options, THRESHOLD))
        };
        // With a primary: the times of the answers count as well.
        let servers = [("a", p, "", 5, 1000), ("b", s, "", 5, 890), ("c", s, "", 5, 889)];
        assert_eq!(fit(&servers, Secondary), "b");
        assert_eq!(fit(&servers, Nearest), "a b");
        assert_eq!(fit(&servers, PrimaryPreferred), "a");
        // The secondary was asked later than the primary, which may have written since then.
        let later = [("a", p, "", 5, 1000), ("b", s, "", 6, 890), ("c", s, "", 4, 889)];
        assert_eq!(fit(&later, Secondary), "c");
        // Behind: only the primary is left, though it is not wanted.
        let behind = [("a", p, "", 5, 1000), ("b", s, "", 5, 10)];
        assert_eq!(
            (fit(&behind, Secondary), fit(&behind, SecondaryPreferred)),
            ("".into(), "a".into())
        );
        // Without a primary: behind the newest one, whenever it was asked.
        let none = [("b", s, "", 5, 1000), ("c", s, "", 900, 890), ("d", s, "", 5, 889)];
        assert_eq!(fit(&none, Secondary), "b c");
        assert_eq!(fit(&none, PrimaryPreferred), "b c");
        // It says nothing of its last write.
        let mut topology = tagged(&servers);
        topology.note(&host("b"), described(s, &["a", "b", "c"], "b"));
        let mut options = options(Secondary);
        options.preference.max_staleness = Some(Duration::from_secs(120));
        assert_eq!(names(&fitting(&topology, &options, THRESHOLD)), "");
        options.preference.max_staleness = None;
        assert_eq!(names(&fitting(&topology, &options, THRESHOLD)), "b c");
    }

    #[test]
    fn staleness_comes_before_tags() {
        let (p, s) = (Role::Primary, Role::Secondary);
        let servers = [("a", p, "", 5, 1000), ("b", s, "dc:ny", 5, 10), ("c", s, "dc:la", 5, 1000)];
        let mut options = options(ReadMode::Secondary);
        options.preference.max_staleness = Some(Duration::from_secs(120));
        let tag = |value: &str| vec![("dc".to_owned(), value.to_owned())];
        options.preference.tag_sets = vec![tag("ny"), tag("la")];
        assert_eq!(names(&fitting(&tagged(&servers), &options, THRESHOLD)), "c");
    }

    #[test]
    fn a_choice_is_any_that_fits() {
        let fit = ["a", "b", "c"].map(host);
        let chosen: Vec<_> = (0..4).filter_map(|random| choose(&fit, random)).cloned().collect();
        assert_eq!(names(&chosen), "a b c a");
        assert_eq!(choose(&[], 7), None);
    }
}
