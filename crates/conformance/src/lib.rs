//! The suite that every engine passes.
//!
//! An engine's `tests/` has one file with [`crate::conformance_tests!`] (and, if data survives closing it,
//! [`crate::conformance_durable_tests!`]; with held snapshots and transactions,
//! [`crate::conformance_snapshot_tests!`] and [`crate::conformance_transaction_tests!`]). Each case becomes a
//! `#[test]`:
//!
//! ```
//! use kauri_conformance::Subject;
//! use kauri_storage::EphemeralEngine;
//! use std::sync::Arc;
//!
//! fn subject() -> Subject {
//!     Subject::new(|| Arc::new(EphemeralEngine::new()))
//! }
//!
//! kauri_conformance::conformance_tests!(subject);
//! ```
//!
//! The cases check the contract in [`kauri_storage::engine`] and no more. An engine may choose how it assigns
//! commit numbers, whether a reader sees newer versions, and what a refused unit costs. Other tests use [`table`]
//! and [`inspect`], too.

mod concurrency;
mod conflicts;
mod ddl;
mod durable;
mod held;
mod indexes;
pub mod inspect;
mod oracle;
mod pending_log;
mod readers;
mod records;
mod scans;
mod snapshots;
mod subject;
pub mod table;
mod transactions;
mod unique;

pub use subject::Subject;

/// The cases for every engine: calls the macro `$then` with `$arg` and their paths.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            records::documents_come_back_as_they_went_in,
            records::ids_are_dense_and_ascend,
            records::ids_are_not_reused_after_deletes,
            records::a_refused_unit_does_not_disturb_ids,
            records::updates_change_bytes_and_version,
            records::deleted_records_are_gone,
            records::statistics_follow_the_commits,
            records::documents_of_16_mb,
            scans::both_directions,
            scans::from_a_position,
            scans::over_an_empty_store,
            scans::over_few_survivors_of_many,
            scans::while_records_come_and_go,
            scans::taken_up_again_at_the_end,
            indexes::find_takes_whole_keys_only,
            indexes::find_answers_the_first_record,
            indexes::ranges_in_both_directions,
            indexes::random_ranges_against_a_model,
            indexes::equal_keys_across_batches,
            indexes::keys_that_are_prefixes_of_others,
            indexes::skipping_ahead,
            indexes::scans_while_entries_come_and_go,
            indexes::entries_are_a_set,
            indexes::type_bits_come_back,
            indexes::multikey_records,
            indexes::keys_of_megabytes,
            unique::against_committed_records,
            unique::within_one_unit,
            unique::a_key_that_its_record_gives_up_is_free,
            unique::keys_may_be_swapped,
            unique::a_record_may_keep_its_own_key,
            unique::exempted_keys,
            unique::a_refused_unit_leaves_nothing,
            unique::one_of_many_threads_wins,
            conflicts::outdated_versions,
            conflicts::gone_records,
            conflicts::backfill_of_an_outdated_version,
            conflicts::one_conflict_refuses_the_unit,
            conflicts::conflicts_come_before_duplicates,
            conflicts::definitions,
            conflicts::a_definition_change_refuses_older_units,
            ddl::stores_come_and_go,
            ddl::a_store_that_is_not_there,
            ddl::a_unit_uses_what_it_creates,
            ddl::a_refused_unit_creates_nothing,
            ddl::indexes_come_and_go,
            ddl::indexes_go_with_their_store,
            ddl::indexes_belong_to_one_store,
            ddl::handles_outlive_a_drop,
            ddl::a_dropped_index_is_no_empty_one,
            ddl::backfill_builds_an_index,
            ddl::an_index_build_among_writers,
            readers::bytes_stay_while_the_unit_is_entered,
            readers::a_unit_is_entered_and_left_many_times,
            readers::snapshots_cover_what_was_committed,
            readers::units_are_independent,
            readers::tickets_resolve,
            readers::tickets_resolve_for_an_executor,
            readers::sync_leaves_no_ticket_waiting,
            readers::many_threads_wait,
            readers::an_empty_unit,
            readers::a_unit_is_used_again,
            readers::status_and_space,
            concurrency::inserts_give_each_its_own_id,
            concurrency::transfers_preserve_the_sum,
            concurrency::counters_lose_no_update,
            concurrency::units_are_seen_whole,
            concurrency::stores_are_created_and_dropped_among_writers,
            concurrency::readers_see_all_of_what_is_dropped_or_an_error,
            oracle::random_units,
            held::commits_are_refused_until_files_are_let_go,
        }
    };
}

/// The cases for engines whose data survives closing.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_durable_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            durable::records_survive,
            durable::written_suffices_for_closing,
            durable::ids_go_on,
            durable::commits_go_on,
            durable::deletes_and_drops_survive,
            durable::multi_document_units_survive_whole,
            durable::indexes_are_rebuilt_equal,
            durable::indexes_attach_from_many_threads,
            durable::attaching_finds_duplicates,
            durable::definitions_hold_after_reopening,
            durable::large_documents_survive,
            durable::statistics_survive,
            durable::an_unused_engine_reopens,
            oracle::random_units_with_reopening,
        }
    };
}

/// The cases for engines that can hold snapshots.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_snapshot_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            snapshots::a_held_snapshot_stays_as_it_was,
            snapshots::what_is_not_held_is_the_newest,
            snapshots::records_that_come_later_are_not_seen,
            snapshots::index_entries_stay_as_they_were,
            snapshots::entries_that_come_and_go_again,
            snapshots::a_definition_change_ends_what_a_snapshot_shows,
            snapshots::an_index_that_is_dropped_is_not_shown,
            snapshots::held_readers_of_indexes_among_writers,
            snapshots::other_collections_go_on,
            snapshots::random_histories,
            snapshots::sums_hold_among_writers,
        }
    };
}

/// The cases for engines that can do transactions.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_transaction_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            transactions::it_reads_what_it_has_written,
            transactions::nobody_else_sees_its_write_set,
            transactions::an_abort_leaves_nothing,
            transactions::the_first_updater_wins,
            transactions::a_claim_can_be_waited_for,
            transactions::what_was_committed_since_conflicts,
            transactions::a_refused_statement_leaves_the_transaction,
            transactions::unique_keys_of_others,
            transactions::unique_keys_of_its_own,
            transactions::definitions_are_not_changed_in_one,
            transactions::there_is_a_bound,
            transactions::random_transactions,
            transactions::transfers_in_transactions_preserve_the_sum,
        }
    };
}

/// The cases for engines that keep a replicated log's units.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_pending_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            pending_log::nobody_sees_what_is_pending,
            pending_log::units_commit_in_order,
            pending_log::the_suffix_goes,
            pending_log::others_conflict_with_it,
            pending_log::indexes_wait_for_it,
            pending_log::positions_ascend,
            pending_log::snapshots_among_pending_units,
            pending_log::random_logs,
        }
    };
}

/// The cases for engines that keep a replicated log's units over a restart.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_durable_pending_cases {
    ($then:ident, $arg:tt) => {
        $crate::$then! { $arg
            pending_log::the_suffix_is_there_after_a_restart,
            pending_log::random_logs_with_reopening,
        }
    };
}

/// Makes a `#[test]` of each case. `$factory` is the path of a `fn() -> Subject`.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:path) => {
        $crate::__conformance_cases! { __conformance_make_tests, ($factory) }
    };
}

/// Makes a `#[test]` of each case that closes the engine and opens it again.
#[macro_export]
macro_rules! conformance_durable_tests {
    ($factory:path) => {
        $crate::__conformance_durable_cases! { __conformance_make_tests, ($factory) }
    };
}

/// Makes a `#[test]` of each case with held snapshots.
#[macro_export]
macro_rules! conformance_snapshot_tests {
    ($factory:path) => {
        $crate::__conformance_snapshot_cases! { __conformance_make_tests, ($factory) }
    };
}

/// Makes a `#[test]` of each case with transactions.
#[macro_export]
macro_rules! conformance_transaction_tests {
    ($factory:path) => {
        $crate::__conformance_transaction_cases! { __conformance_make_tests, ($factory) }
    };
}

/// Makes a `#[test]` of each case with pending units.
#[macro_export]
macro_rules! conformance_pending_tests {
    ($factory:path) => {
        $crate::__conformance_pending_cases! { __conformance_make_tests, ($factory) }
    };
}

/// Makes a `#[test]` of each case with pending units that closes the engine and opens it again.
#[macro_export]
macro_rules! conformance_durable_pending_tests {
    ($factory:path) => {
        $crate::__conformance_durable_pending_cases! { __conformance_make_tests, ($factory) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_make_tests {
    (($factory:path) $($module:ident::$case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::run(
                    concat!(stringify!($module), "::", stringify!($case)),
                    &mut $factory(),
                );
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_make_table {
    (() $($module:ident::$case:ident,)*) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), $module::$case),)*]
    };
}

type Case = fn(&mut Subject);

const CASES: &[(&str, Case)] = crate::__conformance_cases! { __conformance_make_table, () };
const DURABLE_CASES: &[(&str, Case)] =
    crate::__conformance_durable_cases! { __conformance_make_table, () };

const SNAPSHOT_CASES: &[(&str, Case)] =
    crate::__conformance_snapshot_cases! { __conformance_make_table, () };
const TRANSACTION_CASES: &[(&str, Case)] =
    crate::__conformance_transaction_cases! { __conformance_make_table, () };
const PENDING_CASES: &[(&str, Case)] =
    crate::__conformance_pending_cases! { __conformance_make_table, () };
const DURABLE_PENDING_CASES: &[(&str, Case)] =
    crate::__conformance_durable_pending_cases! { __conformance_make_table, () };

/// Runs the case of this name. Panics if it does not exist, or if the engine fails it.
pub fn run(name: &str, subject: &mut Subject) {
    let all = [
        CASES,
        DURABLE_CASES,
        SNAPSHOT_CASES,
        TRANSACTION_CASES,
        PENDING_CASES,
        DURABLE_PENDING_CASES,
    ];
    let case = all.into_iter().flatten().find(|case| case.0 == name);
    let (_, case) = case.unwrap_or_else(|| panic!("there is no case {name}"));
    case(subject);
}
