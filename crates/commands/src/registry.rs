//! The registry of commands: name, policy, and function of each.
//!
//! Policy (admission, counters, locks, log lines) reads what a command declares here, and never compares names.

use crate::invocation::Invocation;
use kauri_base::Result;
use kauri_bson::{Doc, Value};
use kauri_catalog::OperationKind;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

/// A command in progress.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A command's access to data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Neither reads nor writes data of users.
    None,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Where a request names its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The collection that the first field names. A first field that names none: the database.
    Collection,
    /// As `Collection`. Without a name it is about `$cmd` and this suffix.
    CollectionOr(&'static str),
    /// The collection that this field names.
    Field(&'static str),
    /// That of the command in the first field.
    Inner,
    /// The first field is a full name.
    FullName,
    /// The collections that its statements are about. The command itself is about `$cmd` and this suffix.
    Statements(&'static str),
    /// The database.
    Database,
    /// The server.
    Server,
}

/// The roles of a server on which a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles(u8);

/// The role of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Role {
    Standalone = 1,
    Primary = 2,
    Secondary = 4,
    Arbiter = 8,
    /// A member that serves no data for now.
    Recovering = 16,
}

impl Roles {
    /// Everywhere.
    pub const ALL: Roles = Roles::of(&[
        Role::Standalone,
        Role::Primary,
        Role::Secondary,
        Role::Arbiter,
        Role::Recovering,
    ]);
    /// Roles with data.
    pub const WITH_DATA: Roles = Roles::of(&[Role::Standalone, Role::Primary, Role::Secondary]);
    /// Roles that accept writes.
    pub const WRITABLE: Roles = Roles::of(&[Role::Standalone, Role::Primary]);

    /// These.
    pub const fn of(roles: &[Role]) -> Roles {
        let (mut bits, mut at) = (0, 0);
        while at < roles.len() {
            bits |= roles[at] as u8;
            at += 1;
        }
        Roles(bits)
    }

    /// Whether this is one of them.
    pub const fn contains(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }
}

/// The counter of `opcounters` that a run raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpCounter {
    /// `query`.
    Query,
    /// `getmore`.
    GetMore,
    /// `command`.
    Command,
    /// Statements and documents are counted where they run.
    Statements,
}

/// How a command is reported in the log and in `system.profile`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Not at all.
    None,
    /// In the log alone.
    Line,
    /// In the log only, with `$cmd`: its statements are reported separately.
    Statements,
    /// In both.
    Full,
}

/// The levels of read concern that a command takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevels {
    /// `local` alone.
    Local,
    /// All.
    All,
    /// All but `snapshot`.
    AllButSnapshot,
    /// All. Whether the request goes with the level comes before whether the server has it, and the command looks
    /// at both.
    AllByRequest,
}

/// The definitions that a writing command may change. They are loaded into memory first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definitions {
    /// None.
    None,
    /// Those that its string fields name.
    Named,
    /// All of the database.
    OfDatabase,
}

/// A privilege: an action on a resource. Not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// The database, empty for any.
    pub db: String,
    /// The collection, empty for any.
    pub collection: String,
    /// The action, as MongoDB names it.
    pub action: &'static str,
}

/// The part of a request that policy needs.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
    /// The database.
    pub db: &'r str,
    /// The command document.
    pub body: Doc<'r>,
}

/// One command: its name, its policy, and its function.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Its access to data.
    pub access: Access,
    /// Whether a request that reads by [`Command::access`] writes all the same.
    pub writes: fn(Asked<'_>) -> bool,
    /// Its target.
    pub target: Target,
    /// Only on the `admin` database.
    pub admin_only: bool,
    /// Whether it runs for a client that has not logged in, and while the server ends.
    pub needs_no_login: bool,
    /// Whether it may be part of a transaction.
    pub in_transaction: bool,
    /// The roles that it runs on.
    pub roles: Roles,
    /// Whether it reads on a secondary whatever the read preference is.
    pub reads_anywhere: bool,
    /// Whether it is for members of a set alone, so that `listCommands` leaves it out.
    pub is_internal: bool,
    /// The privileges that a request needs.
    pub privileges: fn(Asked<'_>) -> Vec<Privilege>,
    /// The read concerns that it takes.
    pub read_levels: ReadLevels,
    /// Takes a write concern.
    pub write_concern: bool,
    /// Whether `w: 0` keeps what became of it from the client.
    pub unacknowledged: bool,
    /// Whether a session may number its runs, to send one again.
    pub numbered: bool,
    /// Part of API version 1.
    pub api_v1: bool,
    /// A reading command that runs again if its collection is dropped before it has had an effect
    /// ([`Invocation::has_effect`]). Its run must leave nothing behind but the reply.
    pub replans: bool,
    /// Whether `maxTimeMS` is the time that it waits for data, and not its time limit.
    pub waits_for_data: bool,
    /// Whether a request without `maxTimeMS` that writes nothing has the time limit of `defaultMaxTimeMS`.
    pub has_default_limit: bool,
    /// Whether it needs memory, and so waits while memory is full.
    pub adds_memory: bool,
    /// Definitions that it may change.
    pub definitions: Definitions,
    /// Whether documents on their way into `system.profile` are stored before it runs.
    pub settles_profile: bool,
    /// Its counter in `opcounters`.
    pub op_counter: OpCounter,
    /// Its kind in `top` and in latencies.
    pub kind: OperationKind,
    /// Whether it executes a plan of its own.
    pub has_plan: bool,
    /// How it is reported.
    pub report: Report,
    /// Whether failpoints leave it alone.
    pub never_fails_by_failpoint: bool,
    /// Its purpose, in a line (`listCommands`).
    pub help: &'static str,
    /// Runs it: writes the reply's fields, `ok` apart, or fails.
    pub run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
}

impl Command {
    /// A command that neither reads nor writes; to be changed with struct update syntax.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
    ) -> Command {
        Command {
            name,
            aliases: &[],
            access: Access::None,
            writes: |_| false,
            target: Target::Collection,
            admin_only: false,
            needs_no_login: false,
            in_transaction: false,
            roles: Roles::ALL,
            reads_anywhere: false,
            is_internal: false,
            privileges: |_| Vec::new(),
            read_levels: ReadLevels::Local,
            write_concern: false,
            unacknowledged: false,
            numbered: false,
            api_v1: false,
            replans: false,
            waits_for_data: false,
            has_default_limit: false,
            adds_memory: false,
            definitions: Definitions::None,
            settles_profile: false,
            op_counter: OpCounter::Command,
            kind: OperationKind::Other,
            has_plan: false,
            report: Report::Full,
            never_fails_by_failpoint: false,
            help,
            run,
        }
    }

    /// A command that reads, on roles with data.
    pub const fn read(
        name: &'static str,
        help: &'static str,
        run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
    ) -> Command {
        Command { access: Access::Read, roles: Roles::WITH_DATA, ..Command::new(name, help, run) }
    }

    /// A command that writes documents.
    pub const fn write(
        name: &'static str,
        help: &'static str,
        run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
    ) -> Command {
        Command {
            access: Access::Write,
            write_concern: true,
            roles: Roles::WRITABLE,
            kind: OperationKind::Write,
            ..Command::new(name, help, run)
        }
    }

    /// A command that changes definitions which its fields name.
    pub const fn define(
        name: &'static str,
        help: &'static str,
        run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
    ) -> Command {
        Command {
            definitions: Definitions::Named,
            kind: OperationKind::Other,
            ..Command::write(name, help, run)
        }
    }

    /// A command about the server as a whole, on the `admin` database.
    pub const fn admin(
        name: &'static str,
        help: &'static str,
        run: for<'a, 'b> fn(&'a mut Invocation<'b>) -> Run<'a>,
    ) -> Command {
        Command { admin_only: true, target: Target::Server, ..Command::new(name, help, run) }
    }

    /// Whether a request writes.
    pub fn is_write(&self, asked: Asked<'_>) -> bool {
        self.access == Access::Write || (self.writes)(asked)
    }

    /// The collection that a request names: its full name.
    pub fn collection(&self, asked: Asked<'_>) -> Option<String> {
        let named = |value: Value<'_>| match value {
            Value::String(name) => Some(format!("{}.{name}", asked.db)),
            _ => None,
        };
        let first = asked.body.first()?;
        match self.target {
            Target::Collection | Target::CollectionOr(_) => named(first.value()),
            Target::Field(field) => named(asked.body.value(field)),
            Target::Inner => named(first.as_doc()?.first()?.value()),
            Target::FullName => match first.value() {
                Value::String(full) => Some(full.into_owned()),
                _ => None,
            },
            Target::Statements(_) | Target::Database | Target::Server => None,
        }
    }

    /// The namespace that the log, the profiler and `currentOp` show of a request.
    pub fn namespace(&self, asked: Asked<'_>) -> String {
        let suffix = match self.target {
            Target::Statements(suffix) | Target::CollectionOr(suffix) => suffix,
            _ => "",
        };
        self.collection(asked).unwrap_or_else(|| format!("{}.$cmd{suffix}", asked.db))
    }
}

/// A command with its number, which is its place in `cmds::ALL`.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The command.
    pub command: &'static Command,
    /// Its number.
    pub number: usize,
}

/// All commands by name and alias.
pub fn by_name() -> &'static HashMap<&'static str, Entry> {
    static MAP: OnceLock<HashMap<&'static str, Entry>> = OnceLock::new();
    MAP.get_or_init(|| {
        let mut map = HashMap::new();
        for (number, command) in crate::cmds::ALL.iter().enumerate() {
            for name in std::iter::once(&command.name).chain(command.aliases) {
                let before = map.insert(*name, Entry { command, number });
                debug_assert!(before.is_none(), "two commands are called {name}");
            }
        }
        map
    })
}
