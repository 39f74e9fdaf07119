//! The commands: what each is called, what it does to data, and what runs it.

use crate::invocation::Invocation;
use kauri_base::Result;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

/// A command in progress.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// What a command does to data, which decides counters, concerns and where it may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Neither reads nor writes data of users.
    None,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it does to data.
    pub access: Access,
    /// Only on the `admin` database.
    pub admin_only: bool,
    /// Allowed before authentication.
    pub before_auth: bool,
    /// Takes a read concern other than `local`.
    pub read_concern: bool,
    /// Part of API version 1.
    pub api_v1: bool,
    /// Reads, and runs anew if what it reads is dropped before it has had an effect
    /// ([`Invocation::has_effect`]). Running it must leave nothing behind but the reply.
    pub replans: bool,
    /// What it's for, in a line (`listCommands`).
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
            admin_only: false,
            before_auth: false,
            read_concern: false,
            api_v1: false,
            replans: false,
            help,
            run,
        }
    }

    /// Whether a write concern has a meaning for it.
    pub fn takes_write_concern(&self) -> bool {
        self.access == Access::Write || matches!(self.name, "aggregate" | "mapReduce")
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
