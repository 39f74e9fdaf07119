//! Which statements sessions have executed, by the session: of its newest write alone.
//!
//! A session that begins a newer write needs the older one's statements no longer. Consecutive statements without a
//! result of their own are ranges.
//!
//! Bounds: a session is forgotten [`WINDOW_MS`] after its last use. If results need too much memory, those of the
//! sessions that were used longest ago go first; their statements are remembered as executed ([`Done::Lost`]). Nothing
//! else is forgotten: a leader lets no session begin for which there is no room ([`Table::has_room`]).

use super::encoding::{Executed, Item};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A session's id.
pub type SessionId = [u8; 16];

/// For how long a statement can be retried, in milliseconds: the life of a session without use.
pub const WINDOW_MS: u64 = kauri_base::limits::LOGICAL_SESSION_IDLE_MINUTES as u64 * 60_000;

/// Memory of a session without its statements, and of a range or result without its bytes, about.
const SESSION_BYTES: usize = 200;
const ITEM_BYTES: usize = 64;

/// What is known of an executed statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// It has inserted, changed or deleted one document.
    Plain,
    /// Its result.
    Result(Arc<[u8]>),
    /// It was executed; its result took too much room.
    Lost,
}

/// What a table may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Memory of results.
    pub result_bytes: usize,
    /// Memory of the rest.
    pub other_bytes: usize,
}

struct Session {
    number: i64,
    /// Ranges by their first statement: the last one.
    ranges: BTreeMap<i32, i32>,
    results: BTreeMap<i32, Done>,
    used_ms: u64,
    /// Its place in the order of use.
    place: u64,
    result_bytes: usize,
}

impl Session {
    /// What is known of it, as a unit that has executed all of it.
    fn executed(&self, id: SessionId) -> Executed {
        let ranges = self.ranges.iter().map(|(&first, &last)| Item::Plain { first, last });
        let results = self.results.iter().map(|(&statement, done)| {
            let result = match done {
                Done::Result(result) => Some(result.clone()),
                Done::Plain | Done::Lost => None,
            };
            Item::Result { statement, result }
        });
        Executed { session: id, number: self.number, items: ranges.chain(results).collect() }
    }

    fn other_bytes(&self) -> usize {
        SESSION_BYTES + ITEM_BYTES * (self.ranges.len() + self.results.len())
    }

    fn find(&self, statement: i32) -> Option<Done> {
        if let Some(done) = self.results.get(&statement) {
            return Some(done.clone());
        }
        let (_, last) = self.ranges.range(..=statement).next_back()?;
        (*last >= statement).then_some(Done::Plain)
    }

    fn add_range(&mut self, mut first: i32, mut last: i32) {
        // Those that overlap it or touch it become one with it.
        while let Some((&low, &high)) = self.ranges.range(..=last.saturating_add(1)).next_back() {
            if high < first.saturating_sub(1) {
                break;
            }
            self.ranges.remove(&low);
            (first, last) = (first.min(low), last.max(high));
        }
        self.ranges.insert(first, last);
    }

    fn lose_results(&mut self) {
        self.results.values_mut().for_each(|done| *done = Done::Lost);
        self.result_bytes = 0;
    }
}

/// See the module's head.
pub struct Table {
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions in the order of their last use.
    order: BTreeMap<u64, SessionId>,
    /// Those of them with results.
    with_results: BTreeMap<u64, SessionId>,
    next_place: u64,
    result_bytes: usize,
    other_bytes: usize,
    bounds: Bounds,
}

impl Table {
    /// An empty table.
    pub fn new(bounds: Bounds) -> Table {
        Table {
            sessions: BTreeMap::new(),
            order: BTreeMap::new(),
            with_results: BTreeMap::new(),
            next_place: 0,
            result_bytes: 0,
            other_bytes: 0,
            bounds,
        }
    }

    /// What is known of a statement; `None`: it was not executed. Fails with the session's newest number if that is
    /// greater than this one.
    pub fn find(
        &self,
        session: &SessionId,
        number: i64,
        statement: i32,
        now_ms: u64,
    ) -> Result<Option<Done>, i64> {
        let known = self.sessions.get(session);
        match known.filter(|known| known.used_ms.saturating_add(WINDOW_MS) >= now_ms) {
            Some(known) if known.number > number => Err(known.number),
            Some(known) if known.number == number => Ok(known.find(statement)),
            _ => Ok(None),
        }
    }

    /// Whether a session may begin a write: it is known, or can be remembered.
    pub fn has_room(&mut self, session: &SessionId, now_ms: u64) -> bool {
        self.trim(now_ms);
        self.sessions.contains_key(session) || self.other_bytes < self.bounds.other_bytes
    }

    /// A session begins a write of this number, or goes on with it. One that is older changes nothing.
    pub fn begin(&mut self, session: SessionId, number: i64, now_ms: u64) {
        self.change(session, number, now_ms, |_| {});
    }

    /// Statements were executed. Those of a number that is not the session's newest one change nothing.
    pub fn note(&mut self, executed: &Executed, now_ms: u64) {
        self.change(executed.session, executed.number, now_ms, |session| {
            for item in &executed.items {
                match item {
                    Item::Plain { first, last } => session.add_range(*first, *last),
                    Item::Result { statement, result } => {
                        let done = result.clone().map_or(Done::Lost, Done::Result);
                        session.result_bytes += result.as_ref().map_or(0, |result| result.len());
                        if let Some(Done::Result(old)) = session.results.insert(*statement, done) {
                            session.result_bytes -= old.len();
                        }
                    }
                }
            }
        });
    }

    fn change(
        &mut self,
        id: SessionId,
        number: i64,
        now_ms: u64,
        change: impl FnOnce(&mut Session),
    ) {
        let known = self.sessions.get(&id);
        if known.is_some_and(|known| known.used_ms.saturating_add(WINDOW_MS) < now_ms) {
            self.remove(&id);
        } else if known.is_some_and(|known| known.number > number) {
            return;
        }
        let known = self.remove(&id).filter(|known| known.number == number);
        let mut session = known.unwrap_or_else(|| Session {
            number,
            ranges: BTreeMap::new(),
            results: BTreeMap::new(),
            used_ms: 0,
            place: 0,
            result_bytes: 0,
        });
        change(&mut session);
        session.used_ms = session.used_ms.max(now_ms);
        self.next_place += 1;
        session.place = self.next_place;
        self.result_bytes += session.result_bytes;
        self.other_bytes += session.other_bytes();
        self.order.insert(session.place, id);
        if session.result_bytes > 0 {
            self.with_results.insert(session.place, id);
        }
        self.sessions.insert(id, session);
        self.trim(now_ms);
    }

    fn remove(&mut self, id: &SessionId) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.order.remove(&session.place);
        self.with_results.remove(&session.place);
        self.result_bytes -= session.result_bytes;
        self.other_bytes -= session.other_bytes();
        Some(session)
    }

    fn trim(&mut self, now_ms: u64) {
        while self.result_bytes > self.bounds.result_bytes
            && let Some((_, id)) = self.with_results.pop_first()
        {
            if let Some(session) = self.sessions.get_mut(&id) {
                self.result_bytes -= session.result_bytes;
                session.lose_results();
            }
        }
        while let Some((_, &id)) = self.order.first_key_value() {
            let is_old = |known: &Session| known.used_ms.saturating_add(WINDOW_MS) < now_ms;
            if !self.sessions.get(&id).is_some_and(is_old) {
                break;
            }
            self.remove(&id);
        }
    }

    /// What is known of each session that may still be used, and when that was; in the order of their use.
    pub fn all(&self, now_ms: u64) -> impl Iterator<Item = (u64, Executed)> {
        let sessions = self.order.values().filter_map(|id| Some((id, self.sessions.get(id)?)));
        sessions
            .filter(move |(_, of)| of.used_ms.saturating_add(WINDOW_MS) >= now_ms)
            .map(|(id, session)| (session.used_ms, session.executed(*id)))
    }

    /// Sessions that it has.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bounds = Bounds { result_bytes: 1 << 20, other_bytes: 1 << 20 };
    const ONE: SessionId = [1; 16];

    fn plain(session: SessionId, number: i64, first: i32, last: i32) -> Executed {
        Executed { session, number, items: vec![Item::Plain { first, last }] }
    }

    fn result(session: SessionId, number: i64, statement: i32, bytes: &[u8]) -> Executed {
        let item = Item::Result { statement, result: Some(bytes.into()) };
        Executed { session, number, items: vec![item] }
    }

    #[test]
    fn ranges_become_one_where_they_meet() {
        let mut table = Table::new(WIDE);
        for (first, last) in
            [(0, 0), (2, 2), (9, 12), (1, 1), (4, 6), (5, 10), (i32::MAX, i32::MAX)]
        {
            table.note(&plain(ONE, 1, first, last), 0);
        }
        let session = &table.sessions[&ONE];
        let ranges: Vec<_> = session.ranges.iter().map(|(low, high)| (*low, *high)).collect();
        assert_eq!(ranges, [(0, 2), (4, 12), (i32::MAX, i32::MAX)]);
        let known = |statement| table.find(&ONE, 1, statement, 0).unwrap();
        for statement in [0, 1, 2, 4, 7, 12, i32::MAX] {
            assert_eq!(known(statement), Some(Done::Plain), "{statement}");
        }
        for statement in [3, 13, i32::MAX - 1] {
            assert_eq!(known(statement), None, "{statement}");
        }
    }

    #[test]
    fn only_the_newest_number_counts() {
        let mut table = Table::new(WIDE);
        table.note(&plain(ONE, 5, 0, 3), 0);
        table.note(&result(ONE, 5, 9, b"x"), 0);
        assert_eq!(table.find(&ONE, 5, 9, 0), Ok(Some(Done::Result((*b"x").into()))));
        assert_eq!(table.find(&ONE, 4, 0, 0), Err(5));
        assert_eq!(table.find(&ONE, 6, 0, 0), Ok(None));
        table.note(&plain(ONE, 4, 7, 7), 0);
        assert_eq!(table.find(&ONE, 5, 7, 0), Ok(None), "an older write changes nothing");
        table.begin(ONE, 6, 0);
        assert_eq!(table.find(&ONE, 5, 0, 0), Err(6));
        assert_eq!(table.find(&ONE, 6, 0, 0), Ok(None));
        assert_eq!((table.result_bytes, table.len()), (0, 1));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut table = Table::new(WIDE);
        table.note(&plain(ONE, 1, 0, 0), 1_000);
        table.note(&plain([2; 16], 1, 0, 0), 2_000);
        assert_eq!(table.find(&ONE, 1, 0, 1_000 + WINDOW_MS), Ok(Some(Done::Plain)));
        assert_eq!(table.find(&ONE, 1, 0, 1_001 + WINDOW_MS), Ok(None));
        table.note(&plain([3; 16], 1, 0, 0), 1_001 + WINDOW_MS);
        assert_eq!(table.len(), 2);
        // It may begin anew, with any number.
        table.note(&plain([2; 16], 0, 0, 0), 2_001 + WINDOW_MS);
        assert_eq!(table.find(&[2; 16], 0, 0, 2_001 + WINDOW_MS), Ok(Some(Done::Plain)));
    }

    #[test]
    fn results_go_before_statements_and_those_stay() {
        let bounds = Bounds { result_bytes: 250, other_bytes: 10 * (SESSION_BYTES + ITEM_BYTES) };
        let mut table = Table::new(bounds);
        let session = |n: u8| [n; 16];
        for n in 0..4 {
            table.note(&result(session(n), 1, 0, &[n; 100]), 0);
        }
        let found = |table: &Table, n| table.find(&session(n), 1, 0, 0).unwrap();
        assert_eq!((found(&table, 0), found(&table, 1)), (Some(Done::Lost), Some(Done::Lost)));
        assert_eq!(found(&table, 3), Some(Done::Result([3; 100].as_slice().into())));
        for n in 4..30 {
            assert_eq!(table.has_room(&session(n), 0), n < 10, "{n}");
            // A follower learns what the leader has executed.
            table.note(&plain(session(n), 1, 0, 0), 0);
            assert!(table.has_room(&session(n), 0) && table.result_bytes <= 250);
        }
        assert_eq!(table.len(), 30);
        assert_eq!((found(&table, 4), found(&table, 29)), (Some(Done::Plain), Some(Done::Plain)));
        assert!(table.has_room(&[99; 16], WINDOW_MS + 1), "all are old");
        assert!(table.is_empty());
        // Exactly what is there is counted.
        for n in 0..30 {
            table.remove(&session(n));
        }
        assert_eq!((table.other_bytes, table.result_bytes), (0, 0));
        assert!(table.is_empty() && table.order.is_empty() && table.with_results.is_empty());
    }
}
