//! The commands, one file each.

pub mod aggregate;
pub mod build_info;
mod clustered;
mod collection_options;
pub mod configure_fail_point;
pub mod connection_status;
pub mod count;
pub mod create;
pub mod create_indexes;
mod ddl;
pub mod delete;
pub mod distinct;
pub mod drop;
pub mod drop_database;
pub mod drop_indexes;
pub mod end_sessions;
pub mod explain;
pub mod find;
pub mod find_and_modify;
pub mod get_more;
pub mod get_parameter;
pub mod hello;
mod index_build;
pub mod insert;
pub mod kill_all_sessions;
pub mod kill_cursors;
pub mod kill_sessions;
pub mod list_collections;
pub mod list_databases;
pub mod list_indexes;
mod list_rows;
pub mod logout;
pub mod ping;
pub mod refresh_sessions;
pub mod server_status;
mod session_ids;
pub mod set_parameter;
pub mod start_session;
mod storage_options;
mod timeseries;
pub mod update;
mod views;
pub mod whatsmyuri;

use crate::registry::Command;

/// Every command there is.
pub const ALL: &[&Command] = &[
    &aggregate::COMMAND,
    &build_info::COMMAND,
    &configure_fail_point::COMMAND,
    &connection_status::COMMAND,
    &count::COMMAND,
    &create::COMMAND,
    &create_indexes::COMMAND,
    &delete::COMMAND,
    &distinct::COMMAND,
    &drop::COMMAND,
    &drop_database::COMMAND,
    &drop_indexes::COMMAND,
    &end_sessions::COMMAND,
    &explain::COMMAND,
    &find::COMMAND,
    &find_and_modify::COMMAND,
    &get_more::COMMAND,
    &get_parameter::COMMAND,
    &hello::HELLO,
    &hello::IS_MASTER,
    &insert::COMMAND,
    &kill_all_sessions::BY_PATTERN,
    &kill_all_sessions::COMMAND,
    &kill_cursors::COMMAND,
    &kill_sessions::COMMAND,
    &list_collections::COMMAND,
    &list_databases::COMMAND,
    &list_indexes::COMMAND,
    &logout::COMMAND,
    &ping::COMMAND,
    &refresh_sessions::COMMAND,
    &server_status::COMMAND,
    &set_parameter::COMMAND,
    &start_session::COMMAND,
    &update::COMMAND,
    &whatsmyuri::COMMAND,
];
