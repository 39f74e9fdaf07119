//! What `hello` and `serverStatus` tell of the set.

use super::put_optime;
use kauri_bson::{DocWriter, Value};
use kauri_member::{Member, MemberConfig, MemberState, SetConfig, View};

/// `electionId` of a term: the id of a later one compares greater, also with those of MongoDB's first protocol.
pub fn election_id(term: i64) -> [u8; 12] {
    let mut id = [0; 12];
    id[..4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    id[4..].copy_from_slice(&term.to_be_bytes());
    id
}

/// The configuration, and this member in it; `None` if it has no place in a set.
pub fn place(view: &View) -> Option<(&SetConfig, &MemberConfig)> {
    let config = view.config.as_deref()?;
    let me = config.members.get(view.me?)?;
    (view.state != MemberState::Removed).then_some((config, me))
}

/// Writes the fields of a member of a set. `primary_field`: `isWritablePrimary`, or its old name.
pub fn write(out: &mut DocWriter<'_>, member: &Member, view: &View, primary_field: &str) {
    let Some((config, me)) = place(view) else {
        out.put(primary_field, false);
        out.put("secondary", false);
        out.put("info", "Does not have a valid replica set config");
        out.put("isreplicaset", true);
        return;
    };
    write_members(out, config);
    out.put("setName", member.set_name());
    out.put("setVersion", config.version as i32);
    let is_primary = view.state == MemberState::Primary;
    out.put(primary_field, is_primary && view.is_writable);
    // A new primary that still applies what it has looks like a secondary.
    out.put("secondary", view.state == MemberState::Secondary || is_primary && !view.is_writable);
    if let Some(primary) = view.primary.and_then(|at| config.members.get(at)) {
        out.put("primary", &primary.host);
    }
    write_own(out, me);
    out.put("me", &me.host);
    if is_primary {
        out.put("electionId", election_id(view.term));
    }
    let progress = member.progress();
    let mut last = out.document("lastWrite");
    put_optime(&mut last, "opTime", progress.applied.optime);
    last.put("lastWriteDate", Value::DateTime(progress.applied.wall_ms));
    put_optime(&mut last, "majorityOpTime", progress.committed.optime);
    last.put("majorityWriteDate", Value::DateTime(progress.committed.wall_ms));
}

/// The members that clients may know.
fn write_members(out: &mut DocWriter<'_>, config: &SetConfig) {
    let known =
        || config.members.iter().filter(|member| !member.is_hidden && member.delay_secs == 0);
    let lists: [(&str, fn(&MemberConfig) -> bool); 3] = [
        ("hosts", |member| !member.is_arbiter && member.priority > 0.0),
        ("passives", |member| !member.is_arbiter && member.priority == 0.0),
        ("arbiters", |member| member.is_arbiter),
    ];
    for (field, is_in) in lists {
        let mut hosts = known().filter(|member| is_in(member)).peekable();
        if hosts.peek().is_some() || field == "hosts" {
            let mut list = out.array(field);
            hosts.for_each(|member| list.push(&member.host));
        }
    }
}

fn write_own(out: &mut DocWriter<'_>, me: &MemberConfig) {
    if me.is_arbiter {
        out.put("arbiterOnly", true);
    } else if me.priority == 0.0 {
        out.put("passive", true);
    }
    if me.is_hidden {
        out.put("hidden", true);
    }
    if me.delay_secs > 0 {
        out.put("secondaryDelaySecs", me.delay_secs);
    }
    if !me.tags.is_empty() {
        let mut tags = out.document("tags");
        me.tags.iter().for_each(|(tag, value)| tags.put(tag, value));
    }
}
