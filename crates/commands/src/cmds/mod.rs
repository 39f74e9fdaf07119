//! The commands, one file each.

pub mod aggregate;
pub mod count;
pub mod delete;
pub mod distinct;
pub mod explain;
pub mod find;
pub mod find_and_modify;
pub mod get_more;
pub mod hello;
pub mod insert;
pub mod kill_cursors;
pub mod ping;
pub mod update;

use crate::registry::Command;

/// Every command there is.
pub const ALL: &[&Command] = &[
    &aggregate::COMMAND,
    &count::COMMAND,
    &delete::COMMAND,
    &distinct::COMMAND,
    &explain::COMMAND,
    &find::COMMAND,
    &find_and_modify::COMMAND,
    &get_more::COMMAND,
    &hello::HELLO,
    &hello::IS_MASTER,
    &insert::COMMAND,
    &kill_cursors::COMMAND,
    &ping::COMMAND,
    &update::COMMAND,
];
