//! `getDefaultRWConcern` and `setDefaultRWConcern`: the concerns of requests that name none. Only sets have them.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::read_concern;
use crate::registry::{Command, Run, Target};
use crate::set::defaults::{self, Defaults, ID, READ, WRITE};
use crate::write_concern::{self, WriteConcern, WriteConcernW};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value, doc};
use kauri_member::Member;
use std::sync::Arc;

/// `getDefaultRWConcern`.
pub const GET: Command =
    Command::admin("getDefaultRWConcern", "returns the default read and write concerns", get);

/// `setDefaultRWConcern`.
pub const SET: Command = Command {
    admin_only: true,
    target: Target::Server,
    ..Command::define("setDefaultRWConcern", "sets the default read and write concerns", set)
};

/// Fields of the document beside the concerns.
const TIME: &str = "updateOpTime";
const DATE: &str = "updateWallClockTime";

fn member_of<'s>(invocation: &Invocation<'s>) -> Result<&'s Arc<Member>> {
    match &invocation.server.member {
        Some(member) => Ok(member),
        None => bail!(51300, "'{}' is not supported on standalone nodes.", invocation.name),
    }
}

fn get<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation)?;
        let args = Args::new("getDefaultRWConcern");
        let mut in_memory = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                // There is no copy in memory, so both answers are the same.
                "inMemory" => in_memory = args.bool(elem)?,
                _ => args.other(elem)?,
            }
        }
        let server = invocation.server;
        let stored = defaults::stored(&mut invocation.op, &server.catalog).await?;
        write(&mut invocation.reply, member, stored);
        if in_memory {
            invocation.reply.put("inMemory", true);
        }
        Ok(())
    })
}

/// Writes the concerns in force, and where they come from.
fn write(out: &mut DocWriter<'_>, member: &Member, stored: Option<DocBuf>) {
    if let Some(stored) = &stored {
        let times = stored.as_doc().iter().filter(|elem| matches!(elem.key(), TIME | DATE));
        times.for_each(|elem| out.put_elem(elem));
    }
    let level = stored.as_ref().and_then(|stored| stored.as_doc().get(READ)?.as_doc());
    let level = level.filter(|level| !level.is_empty()).map(Doc::to_buf);
    let defaults = Defaults::of(stored);
    let source = |is_set: bool| if is_set { "global" } else { "implicit" };
    let (has_read, has_write) = (level.is_some(), defaults.write.is_some());
    out.put(READ, level.unwrap_or_else(|| doc! { "level" => "local" }));
    defaults.write_concern(member).write(&mut out.document(WRITE));
    out.put("defaultReadConcernSource", source(has_read));
    out.put("defaultWriteConcernSource", source(has_write));
}

fn set<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation)?;
        let args = Args::new("setDefaultRWConcern");
        let (mut read, mut written) = (None, None);
        for elem in invocation.body.iter().skip(1).filter(|elem| !elem.value().is_nullish()) {
            match elem.key() {
                READ => read = Some(read_default(&args, elem)?),
                WRITE => written = Some(write_default(&args, elem)?),
                _ => args.other(elem)?,
            }
        }
        if read.is_none() && written.is_none() {
            bail!(BadValue, "At least one of the \"{READ}\" or \"{WRITE}\" fields must be present");
        }
        let server = invocation.server;
        let old = defaults::stored(&mut invocation.op, &server.catalog).await?;
        let kept = |field: &str| old.as_ref()?.as_doc().get(field)?.as_doc().map(Doc::to_buf);
        let had = kept(WRITE).filter(|concern| !concern.as_doc().is_empty());
        if had.is_some() && written.as_ref().is_some_and(|concern| concern.as_doc().is_empty()) {
            bail!(
                IllegalOperation,
                "The global default write concern cannot be unset once it is set."
            );
        }
        let (read, written) = (read.or_else(|| kept(READ)), written.or(had));
        let time = invocation.op.backend().tick();
        let document = DocBuf::build(|out| {
            out.put("_id", ID);
            for (field, concern) in [(READ, &read), (WRITE, &written)] {
                if let Some(concern) = concern.as_ref().filter(|c| !c.as_doc().is_empty()) {
                    out.put(field, concern);
                }
            }
            out.put(TIME, time);
            out.put(DATE, Value::DateTime(server.clock.unix_ms()));
        });
        let ticket = defaults::store(&mut invocation.op, &server.catalog, &document).await?;
        write(&mut invocation.reply, member, Some(document));
        // As MongoDB has it, whatever the client's default.
        invocation.write_concern = WriteConcern::majority();
        invocation.wait_for_commit(Some(ticket)).await
    })
}

fn read_default(args: &Args<'_>, elem: Elem<'_>) -> Result<DocBuf> {
    let concern = args.object(elem)?;
    for field in concern {
        match (field.key(), field.value().as_str()) {
            ("level", Some("local" | "available" | "majority")) => {}
            ("level", Some(level))
                if level == "snapshot" || read_concern::level_of(level).is_some() =>
            {
                bail!(BadValue, "level: '{level}' is not suitable for the default read concern")
            }
            ("level", Some(level)) => bail!(
                BadValue,
                "Enumeration value '{level}' for field 'readConcern.level' is not a valid value."
            ),
            ("level", None) => {
                return Err(Args::new("readConcern").wrong_type(field, &["string"]));
            }
            (name @ ("afterOpTime" | "afterClusterTime" | "atClusterTime"), _) => {
                bail!(BadValue, "'{name}' is not suitable for the default read concern")
            }
            (name, _) => return Err(Args::new("readConcern").unknown(name)),
        }
    }
    Ok(concern.to_buf())
}

fn write_default(args: &Args<'_>, elem: Elem<'_>) -> Result<DocBuf> {
    let concern = args.object(elem)?;
    if concern.is_empty() {
        return Ok(DocBuf::new());
    }
    let parsed = write_concern::parse(concern, true)?;
    if !parsed.has_w {
        bail!(BadValue, "The default write concern must have a 'w' field");
    }
    if parsed.w == WriteConcernW::None {
        bail!(
            BadValue,
            "Unacknowledged write concern is not suitable for the default write concern"
        );
    }
    Ok(DocBuf::build(|out| parsed.write(out)))
}
