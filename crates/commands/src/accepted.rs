//! Fields that commands accept without an effect, and the reason for each: on a standalone server the field's
//! promise holds anyway.
//!
//! Invariant: a command ignores a field only if it is in this table. Any other field has an effect or is refused.

use crate::args::Args;
use kauri_base::Result;
use kauri_bson::Elem;

/// The values that such a field accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Any.
    Any,
    /// True or false.
    Bool,
    /// True, false, or a number that stands for one of them.
    SafeBool,
    /// A whole number.
    Long,
    /// A document.
    Object,
    /// An array.
    Array,
    /// A text.
    String,
}

/// Fields of one command, or of a structure within one.
pub struct Accepted {
    /// The command, or the path of the structure; `*` for every command.
    pub path: &'static str,
    /// The fields.
    pub fields: &'static [&'static str],
    /// The accepted values.
    pub takes: Takes,
    /// Why nothing is to be done.
    pub why: &'static str,
}

const fn accepted(
    path: &'static str,
    fields: &'static [&'static str],
    takes: Takes,
    why: &'static str,
) -> Accepted {
    Accepted { path, fields, takes, why }
}

/// Why fields of routers and shards are passed over.
const OF_CLUSTERS: &str = "routers and shards say it to each other, and this server is neither";
/// Why fields of members of replica sets are passed over.
const OF_REPLICATION: &str =
    "members of replica sets say it to each other, and this server is none";
/// Why fields about what users may see are passed over.
const NO_USERS: &str = "there are no users, so everybody may see everything";
/// Why fields about roles are passed over.
const NO_ROLES: &str = "there is no access control, so there are no roles to show";
/// Why fields about time series are passed over.
const NO_TIME_SERIES: &str = "routers say it of time series, of which there are none";

/// See the module's head.
pub const ACCEPTED: &[Accepted] = &[
    accepted(
        "*",
        &["$clusterTime", "$configTime", "$topologyTime", "$replData", "$configServerState"],
        Takes::Any,
        "times and states of a cluster: a standalone server has none to compare them with. A member of a set reads \
         $clusterTime",
    ),
    accepted(
        "*",
        &[
            "$client",
            "allowImplicitCollectionCreation",
            "coordinator",
            "databaseVersion",
            "requestGossipRoutingCache",
            "shardVersion",
            "tracking_info",
            "versionContext",
        ],
        Takes::Any,
        OF_CLUSTERS,
    ),
    accepted("*", &["$audit"], Takes::Any, "says for whom a router asks: there are no users"),
    accepted("*", &["$queryOptions"], Takes::Any, "holds the read preference of old routers"),
    accepted(
        "*",
        &["stmtId", "stmtIds", "txnRetryCounter"],
        Takes::Any,
        "count statements of numbered writes; commands that have those read them where there is a txnNumber",
    ),
    accepted(
        "*",
        &["clientOperationKey"],
        Takes::Any,
        "names an operation for killOperations, a command of clusters",
    ),
    accepted(
        "*",
        &["mayBypassWriteBlocking"],
        Takes::Any,
        "nothing blocks writes: setUserWriteBlockMode is refused",
    ),
    accepted("*", &["rawData"], Takes::Any, "asks for time series as they are stored"),
    accepted("*", &["traceCtx"], Takes::Any, "belongs to the client's own traces"),
    accepted(
        "aggregate",
        &["fromMongos"],
        Takes::Any,
        "changes nothing without needsMerge, which is refused",
    ),
    accepted("aggregate", &["isMapReduceCommand"], Takes::Any, OF_CLUSTERS),
    accepted("bulkWrite.nsInfo", &["shardVersion", "databaseVersion"], Takes::Any, OF_CLUSTERS),
    accepted("collMod", &["isTimeseriesNamespace"], Takes::SafeBool, NO_TIME_SERIES),
    accepted(
        "collStats",
        &["verbose"],
        Takes::SafeBool,
        "no version of the reply has less or more",
    ),
    accepted("collStats", &["waitForLock"], Takes::SafeBool, "no lock is taken"),
    accepted("collStats", &["numericOnly"], Takes::SafeBool, "what an engine tells is numbers"),
    accepted(
        "compact",
        &["force"],
        Takes::Bool,
        "forces a primary, or stops another compact: there is neither",
    ),
    accepted(
        "count",
        &["fields"],
        Takes::Any,
        "MongoDB ignores it: no field of a document is returned",
    ),
    accepted("count", &["queryOptions"], Takes::Any, "holds the read preference of old drivers"),
    accepted("count", &["mirrored"], Takes::Any, OF_REPLICATION),
    accepted("create", &["flags"], Takes::Long, "MongoDB ignores it: it belonged to MMAPv1"),
    accepted(
        "create",
        &["recordIdsReplicated"],
        Takes::SafeBool,
        "says that members of a replica set have equal record ids",
    ),
    accepted("create.clusteredIndex", &["name"], Takes::String, "the option itself is refused"),
    accepted("createIndexes", &["isTimeseriesNamespace"], Takes::Bool, NO_TIME_SERIES),
    accepted("createIndexes", &["returnOnStart"], Takes::Bool, OF_CLUSTERS),
    accepted("createIndexes", &["v"], Takes::Any, "each index says its version itself"),
    accepted(
        "delete",
        &["bypassDocumentValidation"],
        Takes::SafeBool,
        "a delete validates no document",
    ),
    accepted("delete", &["bypassEmptyTsReplacement"], Takes::Bool, "a delete stores no document"),
    accepted("delete.deletes", &["sampleId"], Takes::Any, OF_CLUSTERS),
    accepted("distinct", &["mirrored"], Takes::Any, OF_REPLICATION),
    accepted(
        "drop",
        &["encryptedFields"],
        Takes::Object,
        "the client itself drops the collections that go with encrypted ones",
    ),
    accepted("drop", &["_shouldDropRecordsInBatches"], Takes::Any, OF_CLUSTERS),
    accepted("dropIndexes", &["isTimeseriesNamespace"], Takes::Bool, NO_TIME_SERIES),
    accepted(
        "find",
        &["allowPartialResults"],
        Takes::Bool,
        "says that shards may be missing: there is one, which is this server",
    ),
    accepted("find", &["mirrored"], Takes::Bool, OF_REPLICATION),
    accepted("find", &["oplogReplay"], Takes::Bool, "MongoDB ignores it since 4.4"),
    accepted(
        "find",
        &["readOnce"],
        Takes::Bool,
        "tells the cache that the documents are not read again, which is no promise",
    ),
    accepted(
        "find",
        &["allowSpeculativeMajorityRead"],
        Takes::Bool,
        "whatever is read is committed by the majority of one",
    ),
    accepted(
        "find",
        &["options", "ntoreturn"],
        Takes::Any,
        "fields of old messages, which MongoDB ignores",
    ),
    accepted("findAndModify", &["sampleId"], Takes::Any, OF_CLUSTERS),
    accepted(
        "fsync",
        &["async", "forBackup"],
        Takes::SafeBool,
        "MongoDB ignores them: the command answers when all is durable",
    ),
    accepted(
        "getMore",
        &["lastKnownCommittedOpTime"],
        Takes::Any,
        "secondaries say it when they read the oplog",
    ),
    accepted(
        "getMore",
        &["includeQueryStatsMetrics"],
        Takes::Any,
        "routers ask shards for it; MongoDB leaves it out where query statistics are off",
    ),
    accepted(
        "killAllSessionsByPattern.killAllSessionsByPattern",
        &["users", "roles"],
        Takes::Array,
        "say for whom a router asks: there are no users",
    ),
    accepted("listCollections", &["authorizedCollections"], Takes::Bool, NO_USERS),
    accepted("listDatabases", &["authorizedDatabases"], Takes::Bool, NO_USERS),
    accepted("listIndexes", &["isTimeseriesNamespace"], Takes::Bool, NO_TIME_SERIES),
    accepted(
        "lockInfo",
        &["includeStorageEngineDump"],
        Takes::SafeBool,
        "the dump goes to the log, and no engine has locks to dump",
    ),
    accepted(
        "renameCollection",
        &["stayTemp"],
        Takes::Bool,
        "no client can have a temporary collection to rename",
    ),
    accepted(
        "runtimeConstants",
        &["jsScope", "isMapReduce", "userRoles"],
        Takes::Any,
        "variables of JavaScript and of users: there are neither",
    ),
    accepted("rolesInfo", &["showPrivileges"], Takes::Any, NO_ROLES),
    accepted(
        "rolesInfo",
        &["showBuiltinRoles", "showAuthenticationRestrictions"],
        Takes::SafeBool,
        NO_ROLES,
    ),
    accepted("shutdown", &["force"], Takes::SafeBool, "there are no secondaries to wait for"),
    accepted(
        "update.updates",
        &["allowShardKeyUpdatesWithoutFullShardKeyInQuery", "sampleId"],
        Takes::Any,
        OF_CLUSTERS,
    ),
    accepted("usersInfo", &["showPrivileges"], Takes::Any, NO_USERS),
    accepted(
        "usersInfo",
        &["showCredentials", "showCustomData", "showAuthenticationRestrictions"],
        Takes::SafeBool,
        NO_USERS,
    ),
    accepted("usersInfo", &["filter"], Takes::Object, NO_USERS),
];

/// The entry of a field that every command takes.
pub fn is_of_every_command(field: &str) -> bool {
    entry("*", field).is_some()
}

fn entry(path: &str, field: &str) -> Option<&'static Accepted> {
    ACCEPTED.iter().find(|entry| entry.path == path && entry.fields.contains(&field))
}

/// Whether the field is one that the structure of this path may have without an effect; fails if its value is of
/// a wrong type.
pub fn passes(args: &Args<'_>, path: &str, elem: Elem<'_>) -> Result<bool> {
    let Some(entry) = entry(path, elem.key()) else { return Ok(false) };
    match entry.takes {
        Takes::Any => {}
        Takes::Bool => drop(args.given(elem, Args::bool)?),
        Takes::SafeBool => drop(args.given(elem, Args::safe_bool)?),
        Takes::Long => drop(args.given(elem, Args::long)?),
        Takes::Object => drop(args.given(elem, Args::object)?),
        Takes::Array => drop(args.array(elem)?),
        Takes::String => drop(args.given(elem, Args::string)?),
    }
    Ok(true)
}
