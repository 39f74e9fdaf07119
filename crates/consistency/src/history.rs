//! Histories as text, a transaction a line.
//!
//! ```text
//! CLIENT SENT END ORDER STEP…
//! 7 100 120 realtime a3=17 r3=15,16,17
//! 8 101 ? realtime a3=18
//! 9 130 140 data r3=
//! ```
//!
//! `END` is the time of the reply, `-` of a transaction that was refused, `?` of one whose outcome is unknown. `ORDER` is
//! what the transaction follows: `realtime`, `session` or `data`. `aKEY=VALUE` appends, `rKEY=VALUE,VALUE` has read this
//! list, `rKEY=?` has no reply. Empty lines do not count.

use crate::cycles::Order;
use crate::lists::{Outcome, Step, Transaction, Value};

/// A line that is no transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Its number, from 1 on.
    pub line: usize,
}

/// The transactions of a text, each with its order.
pub fn parse(text: &str) -> Result<Vec<(Transaction, Order)>, Malformed> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    lines.map(|(at, line)| transaction(line).ok_or(Malformed { line: at + 1 })).collect()
}

fn transaction(line: &str) -> Option<(Transaction, Order)> {
    let mut fields = line.split(' ');
    let client = fields.next()?.parse().ok()?;
    let sent = fields.next()?.parse().ok()?;
    let outcome = match fields.next()? {
        "-" => Outcome::Aborted,
        "?" => Outcome::Unknown,
        at => Outcome::Committed(at.parse().ok()?),
    };
    let order = match fields.next()? {
        "realtime" => Order::RealTime,
        "session" => Order::Session,
        "data" => Order::Data,
        _ => return None,
    };
    let steps = fields.map(step).collect::<Option<Vec<_>>>()?;
    Some((Transaction { client, sent, outcome, steps }, order))
}

fn step(text: &str) -> Option<Step> {
    let (place, rest) = text.split_once('=')?;
    if let Some(key) = place.strip_prefix('a') {
        return Some(Step::Append(key.parse().ok()?, rest.parse().ok()?));
    }
    let key = place.strip_prefix('r')?.parse().ok()?;
    let list = match rest {
        "?" => None,
        "" => Some(Vec::new()),
        list => {
            let values = list.split(',').map(|value| value.parse::<Value>().ok());
            Some(values.collect::<Option<Vec<_>>>()?)
        }
    };
    Some(Step::Read(key, list))
}
