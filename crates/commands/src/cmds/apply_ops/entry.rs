//! One oplog entry with validated fields.

use crate::admission::check_part_writes;
use crate::args::{Args, structure};
use crate::cmds::ddl;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, Result, bail, work};
use kauri_bson::{Doc, Elem, shell_text};
use kauri_catalog::Namespace;

/// The operation of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `n`.
    Nothing,
    /// `i`.
    Insert,
    /// `u`.
    Update,
    /// `d`.
    Delete,
    /// `c`.
    Command,
}

/// See the module's head.
pub struct Entry<'d> {
    /// All of it.
    pub whole: Doc<'d>,
    /// The operation.
    pub operation: Operation,
    /// The UUID of its collection.
    pub uuid: Option<[u8; 16]>,
    /// `o`: a document, a change, or a command.
    pub object: Doc<'d>,
    /// `o2`: which document an update is of.
    pub target: Doc<'d>,
    /// `b`: whether an update is an upsert.
    pub upsert: bool,
}

/// The commands that entries have.
const COMMANDS: &[&str] = &[
    "create",
    "renameCollection",
    "drop",
    "collMod",
    "applyOps",
    "dbCheck",
    "dropDatabase",
    "emptycapped",
    "convertToCapped",
    "createIndexes",
    "startIndexBuild",
    "commitIndexBuild",
    "abortIndexBuild",
    "dropIndexes",
    "deleteIndexes",
    "commitTransaction",
    "abortTransaction",
    "importCollection",
    "modifyCollectionShardingIndexCatalog",
    "createGlobalIndex",
    "dropGlobalIndex",
];

/// Fields about the origin of an entry, without an effect.
const ORIGIN: &[&str] = &[
    "_id",
    "checkExistenceForDiffInsert",
    "destinedRecipient",
    "donorApplyOpsIndex",
    "donorOpTime",
    "fromMigrate",
    "fromTenantMigration",
    "lsid",
    "multiOpType",
    "needsRetryImage",
    "postImageOpTime",
    "preImageOpTime",
    "prevOpTime",
    "rid",
    "stmtId",
    "t",
    "tid",
    "ts",
    "txnNumber",
    "txnRetryCounter",
    "v",
    "versionContext",
    "wall",
];

impl<'d> Entry<'d> {
    /// Reads an entry.
    pub fn parse(whole: Doc<'d>) -> Result<Entry<'d>> {
        let args = Args::new("OplogEntryBase");
        let (mut operation, mut object) = (None, None);
        let (mut uuid, mut target, mut upsert) = (None, Doc::EMPTY, false);
        work::tick_bytes(whole.as_bytes().len())?;
        let mut seen = Vec::new();
        for elem in structure(whole) {
            if seen.contains(&elem.key()) {
                bail!(40413, "BSON field 'OplogEntryBase.{}' is a duplicate field", elem.key());
            }
            seen.push(elem.key());
            match elem.key() {
                "op" => operation = Some(parse_operation(&args, elem)?),
                "ns" => drop(args.string(elem)?),
                "ui" => uuid = Some(ddl::uuid(&args, elem)?),
                "o" => object = Some(args.object(elem)?),
                "o2" => target = args.object(elem)?,
                "b" => upsert = args.bool(elem)?,
                name if ORIGIN.contains(&name) => {}
                name => return Err(args.unknown(name)),
            }
        }
        let Some(operation) = operation else { return Err(args.missing("op")) };
        let Some(object) = object else { return Err(args.missing("o")) };
        if operation == Operation::Command {
            check_command(object)?;
        }
        Ok(Entry { whole, operation, uuid, object, target, upsert })
    }

    /// The entry as messages show it.
    pub fn text(&self) -> String {
        shell_text(self.whole)
    }

    /// Whether it is of the command of this name.
    pub fn is_command(&self, name: &str) -> bool {
        self.object.first().is_some_and(|first| first.key() == name)
    }

    /// The first field of its command.
    pub fn command_target(&self) -> Result<Elem<'d>> {
        self.object.first().ok_or_else(|| Error::failed_to_parse("no command name"))
    }
}

fn parse_operation(args: &Args<'_>, elem: Elem<'_>) -> Result<Operation> {
    Ok(match args.string(elem)?.as_str() {
        "n" => Operation::Nothing,
        "i" => Operation::Insert,
        "u" => Operation::Update,
        "d" => Operation::Delete,
        "c" => Operation::Command,
        other => bail!(
            BadValue,
            "Enumeration value '{other}' for field 'OplogEntryBase.op' is not a valid value."
        ),
    })
}

fn check_command(command: Doc<'_>) -> Result<()> {
    let name = command.first().map_or("", |first| first.key());
    if !COMMANDS.contains(&name) {
        bail!(
            BadValue,
            "Unknown oplog entry command type: {name} Object field: {}",
            shell_text(command)
        );
    }
    Ok(())
}

/// The namespace of an entry, which has to be one that is written here.
pub fn namespace(server: &Server, op: Doc<'_>) -> Result<Namespace> {
    let ns = op.value("ns");
    let ns = ns.as_str().unwrap_or_default();
    let parsed = Namespace::parse(ns).ok().filter(|ns| !ns.collection().is_empty());
    let invalid = || Error::new(ErrorCode::InvalidNamespace, format!("invalid ns: {ns}"));
    let parsed = parsed.ok_or_else(invalid)?;
    check_part_writes(server, parsed.database())?;
    Ok(parsed)
}
