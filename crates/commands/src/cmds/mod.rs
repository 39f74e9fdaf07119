//! The commands, one file each.

pub mod aggregate;
mod aggregate_server;
pub mod apply_ops;
pub mod auto_compact;
pub mod build_info;
pub mod bulk_write;
pub mod cluster_parameters;
mod clustered;
pub mod clusters;
pub mod coll_mod;
mod coll_mod_index;
pub mod coll_stats;
mod collection_options;
pub mod compact;
pub mod configure_fail_point;
pub mod conn_pool_stats;
pub mod connection_status;
pub mod convert_to_capped;
mod copy;
pub mod count;
pub mod create;
pub mod create_indexes;
pub mod current_op;
pub mod data_size;
pub mod db_hash;
pub mod db_stats;
mod ddl;
pub mod default_rw_concern;
pub mod delete;
pub mod diagnostic_data;
pub mod distinct;
pub mod drop;
pub mod drop_connections;
pub mod drop_database;
pub mod drop_indexes;
pub mod encryption;
pub mod end_sessions;
pub mod explain;
mod explain_stages;
pub mod feature_compatibility;
pub mod features;
pub mod find;
pub mod find_and_modify;
pub mod fsync;
pub mod get_cmd_line_opts;
pub mod get_log;
pub mod get_more;
pub mod get_parameter;
pub mod hello;
pub mod host_info;
mod index_build;
pub mod insert;
mod internal_fields;
pub mod kill_all_sessions;
pub mod kill_cursors;
pub mod kill_op;
pub mod kill_sessions;
pub mod list_collections;
pub mod list_commands;
pub mod list_databases;
pub mod list_indexes;
mod list_rows;
pub mod lock_info;
pub mod log_rotate;
pub mod logout;
pub mod ping;
pub mod plan_cache;
pub mod profile;
pub mod re_index;
pub mod refresh_sessions;
pub mod rename_collection;
pub mod repl_set;
pub mod search_indexes;
pub mod server_status;
mod session_ids;
pub mod set_parameter;
pub mod shutdown;
pub mod start_session;
mod storage_options;
mod timeseries;
pub mod top;
pub mod update;
pub mod upgrade;
pub mod users_info;
pub mod validate;
pub mod validate_db_metadata;
mod views;
pub mod whatsmyuri;

use crate::registry::Command;

pub(crate) use session_ids::timeout_minutes as session_timeout_minutes;

/// Every command there is.
pub const ALL: &[&Command] = &[
    &aggregate::COMMAND,
    &apply_ops::COMMAND,
    &auto_compact::COMMAND,
    &build_info::COMMAND,
    &bulk_write::COMMAND,
    &cluster_parameters::GET,
    &cluster_parameters::SET,
    &clusters::BLOCK_WRITES,
    &clusters::REMOVE_QUERY_SETTINGS,
    &clusters::SET_QUERY_SETTINGS,
    &coll_mod::COMMAND,
    &coll_stats::COMMAND,
    &compact::COMMAND,
    &configure_fail_point::COMMAND,
    &conn_pool_stats::COMMAND,
    &connection_status::COMMAND,
    &convert_to_capped::CLONE,
    &convert_to_capped::CONVERT,
    &count::COMMAND,
    &create::COMMAND,
    &create_indexes::COMMAND,
    &current_op::COMMAND,
    &data_size::COMMAND,
    &db_hash::COMMAND,
    &db_stats::COMMAND,
    &default_rw_concern::GET,
    &default_rw_concern::SET,
    &delete::COMMAND,
    &diagnostic_data::COMMAND,
    &distinct::COMMAND,
    &drop::COMMAND,
    &drop_connections::COMMAND,
    &drop_database::COMMAND,
    &drop_indexes::COMMAND,
    &encryption::CLEAN_UP,
    &encryption::COMPACT,
    &end_sessions::COMMAND,
    &explain::COMMAND,
    &feature_compatibility::COMMAND,
    &features::COMMAND,
    &find::COMMAND,
    &find_and_modify::COMMAND,
    &fsync::COMMAND,
    &fsync::UNLOCK,
    &get_cmd_line_opts::COMMAND,
    &get_log::COMMAND,
    &get_more::COMMAND,
    &get_parameter::COMMAND,
    &hello::HELLO,
    &hello::IS_MASTER,
    &host_info::COMMAND,
    &insert::COMMAND,
    &kill_all_sessions::BY_PATTERN,
    &kill_all_sessions::COMMAND,
    &kill_cursors::COMMAND,
    &kill_op::COMMAND,
    &kill_sessions::COMMAND,
    &list_collections::COMMAND,
    &list_commands::COMMAND,
    &list_databases::COMMAND,
    &list_indexes::COMMAND,
    &lock_info::COMMAND,
    &log_rotate::COMMAND,
    &logout::COMMAND,
    &ping::COMMAND,
    &plan_cache::CLEAR,
    &plan_cache::CLEAR_FILTERS,
    &plan_cache::LIST_FILTERS,
    &plan_cache::SET_FILTER,
    &profile::COMMAND,
    &re_index::COMMAND,
    &refresh_sessions::COMMAND,
    &rename_collection::COMMAND,
    &repl_set::config::GET_CONFIG,
    &repl_set::config::INITIATE,
    &repl_set::config::RECONFIG,
    &repl_set::member::FREEZE,
    &repl_set::member::MAINTENANCE,
    &repl_set::member::STEP_DOWN,
    &repl_set::member::STEP_UP,
    &repl_set::member::SYNC_FROM,
    &repl_set::message::COMMAND,
    &repl_set::status::COMMAND,
    &search_indexes::CREATE,
    &search_indexes::DROP,
    &search_indexes::LIST,
    &search_indexes::UPDATE,
    &server_status::COMMAND,
    &set_parameter::COMMAND,
    &shutdown::COMMAND,
    &start_session::COMMAND,
    &top::COMMAND,
    &update::COMMAND,
    &upgrade::COMMAND,
    &users_info::ROLES,
    &users_info::USERS,
    &validate::COMMAND,
    &validate_db_metadata::COMMAND,
    &whatsmyuri::COMMAND,
];
