//! Requests and stored definitions of hostile shapes, on a server with request stacks of 512 KB. Each gets a
//! reply, and the server survives.
//!
//! `cases` has one test for each kind, `generate` makes random shapes of all kinds, `fuzz` sends them.
//! `KAURI_SHAPES_SECONDS=600 cargo test -p kauri-server --test suite -- shapes::fuzz` runs for ten minutes.
//! `KAURI_SHAPES_SEED=…` repeats a failed run.

mod cases;
mod fuzz;
mod generate;

use crate::rig::Server;
use kauri_base::{Error, ErrorCode};
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{ClientError, Connection};

/// A server with small stacks, and a connection to it.
pub struct Victim {
    server: Server,
    connection: Connection,
    args: Vec<&'static str>,
}

impl Victim {
    /// Starts a server with a collection `c` of a few documents.
    pub fn start(name: &str, args: &[&'static str]) -> Victim {
        let args = [&["--stackKB", "512", "--rdma", "off"], args].concat();
        let server = Server::start(&format!("shapes-{name}"), &args);
        let connection = server.connect(OPTIONS);
        let mut victim = Victim { server, connection, args };
        let documents = (0..3).map(|id| {
            let items = kauri_bson::array![doc! { "b" => id }, doc! { "b" => array_of(id) }];
            Value::from(doc! { "_id" => id, "a" => items, "n" => id, "t" => "text" })
        });
        victim.works(doc! { "insert" => "c", "documents" => Value::array(documents) });
        victim
    }

    /// Runs a command and returns its reply or its error. Panics if the server has died.
    #[track_caller]
    pub fn ask(&mut self, command: &DocBuf) -> Result<DocBuf, Error> {
        self.ask_on("test", command)
    }

    #[track_caller]
    pub fn ask_on(&mut self, database: &str, command: &DocBuf) -> Result<DocBuf, Error> {
        match self.connection.command(database, command) {
            Ok(reply) => Ok(reply),
            Err(ClientError::Command(error)) => Err(error),
            Err(error) => {
                let ended = self.server.process.child.try_wait();
                panic!("{error}; process: {ended:?}; {}", abridged(command));
            }
        }
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn works(&mut self, command: DocBuf) -> DocBuf {
        match self.ask(&command) {
            Ok(reply) => {
                assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
                reply
            }
            Err(error) => panic!("{error:?}: {}", abridged(&command)),
        }
    }

    /// Runs a command that must fail, and returns its code.
    #[track_caller]
    pub fn fails(&mut self, command: DocBuf) -> i32 {
        match self.ask(&command) {
            Ok(_) => panic!("works: {}", abridged(&command)),
            Err(error) => error.code().number(),
        }
    }

    /// Runs a command that may fail only because it nests too deeply.
    #[track_caller]
    pub fn works_or_is_too_deep(&mut self, command: DocBuf) -> bool {
        match self.ask(&command) {
            Ok(_) => true,
            Err(error) if error.code() == ErrorCode::Overflow => false,
            Err(error) => panic!("{error:?}: {}", abridged(&command)),
        }
    }

    /// Checks that another client is served.
    #[track_caller]
    pub fn is_alive(&mut self) {
        let mut other = self.server.connect(OPTIONS);
        other.command("admin", &doc! { "ping" => 1 }).unwrap();
    }

    /// Kills the server and restarts it on the same directory.
    pub fn restart(&mut self) {
        let Victim { server, args, .. } = self;
        server.restart(args);
        self.connection = self.server.connect(OPTIONS);
    }
}

const OPTIONS: &str = "sharedMemory=off&socketTimeoutMS=120000";

fn array_of(id: i32) -> Value<'static> {
    kauri_bson::array![id, id + 1]
}

/// The beginning of a command.
fn abridged(command: &DocBuf) -> String {
    kauri_bson::shell_text(command.as_doc()).chars().take(600).collect()
}

/// Applies `wrap` to the level below, `levels` times.
pub fn nested(
    levels: usize,
    inner: Value<'static>,
    mut wrap: impl FnMut(Value<'static>) -> Value<'static>,
) -> Value<'static> {
    (0..levels).fold(inner, |value, _| wrap(value))
}

/// A document with one field.
pub fn field(name: &str, value: impl Into<Value<'static>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| out.put_value(name, &value))
}

/// `{find: …, filter: …}` with all rows in one batch.
pub fn find(collection: &str, filter: DocBuf) -> DocBuf {
    doc! { "find" => collection, "filter" => filter, "batchSize" => 1000 }
}

/// `{aggregate: …, pipeline: …}`
pub fn aggregate(collection: &str, stages: impl IntoIterator<Item = DocBuf>) -> DocBuf {
    let stages = Value::array(stages.into_iter().map(Value::from));
    doc! { "aggregate" => collection, "pipeline" => stages, "cursor" => doc! {} }
}

/// The rows of a reply's first batch.
pub fn rows(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = reply.as_doc().value("cursor").into_owned();
    let batch = cursor.as_document().unwrap().value("firstBatch").into_owned();
    batch.as_array().unwrap().iter().map(|row| row.as_doc().unwrap().to_buf()).collect()
}
