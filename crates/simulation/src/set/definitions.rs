//! What a client does with collections and indexes, and which of them must be there.
//!
//! Definitions have no numbers, so they are not sent again. What may have happened is not known from then on, and its
//! name is not used again.

use super::client::{Answer, Client, text, with};
use super::workload::DB;
use kauri_bson::{DocBuf, Value, doc};
use std::collections::BTreeMap;
use std::time::Duration;

/// The database of collections that come and go.
pub const DDL: &str = "ddl";
/// The collections whose indexes come and go, while one's documents do.
const INDEXED: [&str; 2] = ["own", "bulk"];

/// What is expected of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A collection with these indexes; those with `false` may be there or not.
    Collection(BTreeMap<String, bool>),
    /// A view.
    View,
    /// Nobody knows.
    Unsure,
}

/// What is expected, by namespace. What is not listed is not there.
pub type Definitions = BTreeMap<String, Expected>;

/// Creates, changes and drops collections and indexes.
pub async fn defines(client: &mut Client, expected: &mut Definitions) {
    let mut numbered = 0;
    let at_first = ["_id_", "u_1", "t_1"].map(|name| (name.to_owned(), true));
    expected.insert("test.own".to_owned(), Expected::Collection(at_first.into()));
    let at_first = [("_id_".to_owned(), true)].into();
    expected.insert("test.bulk".to_owned(), Expected::Collection(at_first));
    while !client.shared.is_over() {
        client.pause(Duration::from_millis(120)).await;
        numbered += 1;
        let picked = pick(client, expected);
        let indexed = INDEXED[client.dice.below(2) as usize];
        match (client.dice.below(10), picked) {
            (0, _) | (_, None) => create(client, expected, &format!("c{numbered}")).await,
            (1, Some(name)) => copy(client, expected, &name, &format!("out{numbered}")).await,
            (2, Some(name)) => rename(client, expected, &name, &format!("r{numbered}")).await,
            (3, Some(name)) => drop_collection(client, expected, &name).await,
            (4 | 5, Some(name)) => insert(client, &name, numbered).await,
            (6, Some(name)) => {
                create_index(client, expected, DDL, &name, &format!("i{numbered}")).await;
            }
            (7, Some(name)) => drop_index(client, expected, DDL, &name).await,
            (8, _) => create_index(client, expected, DB, indexed, &format!("i{numbered}")).await,
            _ => drop_index(client, expected, DB, indexed).await,
        }
    }
}

fn full(name: &str) -> String {
    format!("{DDL}.{name}")
}

/// A collection that comes and goes, and is there.
fn pick(client: &Client, expected: &Definitions) -> Option<String> {
    let is_there = |(name, of): (&String, &Expected)| match of {
        Expected::Collection(_) => name.strip_prefix("ddl.").map(str::to_owned),
        _ => None,
    };
    let all: Vec<String> = expected.iter().filter_map(is_there).collect();
    client.dice.pick(&all).cloned()
}

/// Sends a definition. Whether it was executed; `None`: nobody knows.
async fn define(client: &mut Client, database: &str, command: DocBuf) -> Option<bool> {
    let command = with(&command, "writeConcern", doc! { "w" => "majority" });
    match client.attempt(database, &command).await {
        Answer::Done(_) => {
            client.shared.count("definitions");
            Some(true)
        }
        Answer::Unknown | Answer::Executed => None,
        refused @ Answer::Refused(..) => {
            client.shared.fault(format!("{}: {refused:?}", text(&command)));
            Some(false)
        }
    }
}

async fn create(client: &mut Client, expected: &mut Definitions, name: &str) {
    let (command, of) = match client.dice.below(5) {
        0 => (
            doc! { "create" => name, "viewOn" => "c", "pipeline" => Value::array([]) },
            Expected::View,
        ),
        1 => (
            doc! { "create" => name, "validator" => doc! { "a" => doc! { "$gte" => 0 } } },
            Expected::Collection([("_id_".to_owned(), true)].into()),
        ),
        2 => (
            doc! { "create" => name, "collation" => doc! { "locale" => "simple" } },
            Expected::Collection([("_id_".to_owned(), true)].into()),
        ),
        _ => (doc! { "create" => name }, Expected::Collection([("_id_".to_owned(), true)].into())),
    };
    match define(client, DDL, command).await {
        Some(true) => drop(expected.insert(full(name), of)),
        Some(false) => {}
        None => drop(expected.insert(full(name), Expected::Unsure)),
    }
}

/// `$out` into a new collection.
async fn copy(client: &mut Client, expected: &mut Definitions, name: &str, to: &str) {
    let stages = Value::array([Value::from(doc! { "$out" => to })]);
    let command = doc! { "aggregate" => name, "pipeline" => stages, "cursor" => doc! {} };
    let of = match define(client, DDL, command).await {
        Some(true) => Expected::Collection([("_id_".to_owned(), true)].into()),
        _ => Expected::Unsure,
    };
    expected.insert(full(to), of);
}

async fn rename(client: &mut Client, expected: &mut Definitions, name: &str, to: &str) {
    let command = doc! { "renameCollection" => full(name), "to" => full(to) };
    match define(client, "admin", command).await {
        Some(true) => {
            let of = expected.remove(&full(name)).unwrap_or(Expected::Unsure);
            expected.insert(full(to), of);
        }
        _ => {
            expected.insert(full(name), Expected::Unsure);
            expected.insert(full(to), Expected::Unsure);
        }
    }
}

async fn drop_collection(client: &mut Client, expected: &mut Definitions, name: &str) {
    match define(client, DDL, doc! { "drop" => name }).await {
        Some(true) => drop(expected.remove(&full(name))),
        _ => drop(expected.insert(full(name), Expected::Unsure)),
    }
}

async fn insert(client: &mut Client, name: &str, numbered: i64) {
    let docs = (0..3).map(|at| {
        let a = client.dice.below(100) as i64;
        Value::from(doc! { "_id" => numbered * 10 + at, "a" => a, "b" => array(client) })
    });
    let command = doc! { "insert" => name, "documents" => Value::array(docs) };
    if let refused @ Answer::Refused(..) = client.write(DDL, &command).await {
        client.shared.fault(format!("{}: {refused:?}", text(&command)));
    }
}

fn array(client: &Client) -> Value<'static> {
    Value::array((0..client.dice.below(3)).map(|_| Value::from(client.dice.below(9) as i64)))
}

async fn create_index(
    client: &mut Client,
    expected: &mut Definitions,
    database: &str,
    name: &str,
    index: &str,
) {
    // No two have the same keys.
    let key = match client.dice.percent(50) {
        true => doc! { "v" => 1, "t" => -1, index => 1 },
        false => doc! { "a" => 1, index => 1 },
    };
    let spec = Value::from(doc! { "key" => key, "name" => index });
    let command = doc! { "createIndexes" => name, "indexes" => Value::array([spec]) };
    let done = define(client, database, command).await;
    if let Some(Expected::Collection(indexes)) = expected.get_mut(&format!("{database}.{name}"))
        && done != Some(false)
    {
        indexes.insert(index.to_owned(), done == Some(true));
    }
}

async fn drop_index(client: &mut Client, expected: &mut Definitions, database: &str, name: &str) {
    let ns = format!("{database}.{name}");
    let Some(Expected::Collection(indexes)) = expected.get(&ns) else { return };
    let may_go =
        |(name, sure): (&String, &bool)| (*sure && name.starts_with('i')).then(|| name.clone());
    let all: Vec<String> = indexes.iter().filter_map(may_go).collect();
    let Some(index) = client.dice.pick(&all).cloned() else { return };
    let command = doc! { "dropIndexes" => name, "index" => index.as_str() };
    let done = define(client, database, command).await;
    if let Some(Expected::Collection(indexes)) = expected.get_mut(&ns) {
        match done {
            Some(true) => drop(indexes.remove(&index)),
            _ => drop(indexes.insert(index, false)),
        }
    }
}
