//! `replSetInitiate`, `replSetReconfig`, `replSetGetConfig`: the set's configuration.

use super::{ask, config_of, member_of, quorum};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use crate::set::defaults::{self, Defaults};
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::Doc;
use kauri_member::{Member, Request, SetConfig, View};
use std::sync::Arc;

/// `replSetInitiate`.
pub const INITIATE: Command =
    Command::admin("replSetInitiate", "begins a replica set with this member", initiate);
/// `replSetReconfig`.
pub const RECONFIG: Command =
    Command::admin("replSetReconfig", "changes the configuration of the replica set", reconfigure);
/// `replSetGetConfig`.
pub const GET_CONFIG: Command =
    Command::admin("replSetGetConfig", "returns the configuration of the replica set", get_config);

/// A forced configuration's version is greater than its predecessor's by this much, and up to ten times as much more:
/// two of them that do not know of each other have different ones.
const FORCED_STEP: i64 = 10_000;

fn initiate<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let server = invocation.server;
        let Some(member) = &server.member else {
            bail!(NoReplicationEnabled, "This node was not started with replication enabled.");
        };
        let args = Args::new("replSetInitiate");
        invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))?;
        if member.view().config.is_some() {
            bail!(AlreadyInitialized, "already initialized");
        }
        let given = invocation.target()?.as_doc().filter(|config| !config.is_empty());
        let set_id = server.backend.new_object_id();
        let config = match given {
            Some(config) => first_config(server, member, config, set_id)
                .map_err(|error| Error::new(ErrorCode::InvalidReplicaSetConfig, error.message()))?,
            None => {
                let why = "no configuration specified. Using a default configuration for the set";
                invocation.reply.put("info2", why);
                let me = &server.start.member_host;
                invocation.reply.put("me", me);
                let mut config = SetConfig::alone(member.set_name(), me, set_id);
                config.term = 1;
                config
            }
        };
        quorum::check(invocation, &config, &server.start.member_host).await?;
        let attr = kauri_bson::log_doc(Attr::new(), "config", config.to_doc().as_doc());
        log::info("REPL", 21356, "-", "replSetInitiate: configuration accepted", attr);
        ask(invocation, member, Request::Initiate(config)).await
    })
}

/// The configuration that a client gives to begin with.
fn first_config(
    server: &Server,
    member: &Member,
    config: Doc<'_>,
    set_id: [u8; 12],
) -> Result<SetConfig> {
    let mut config = SetConfig::parse(config)?;
    if config.settings.set_id != [0; 12] {
        bail!(
            InvalidReplicaSetConfig,
            "replica set configuration cannot contain 'replicaSetId' field when called from replSetInitiate"
        );
    }
    config.settings.set_id = set_id;
    config.term = 1;
    check_name(member, &config, "initiate")?;
    if config.version != 1 {
        bail!(
            InvalidReplicaSetConfig,
            "Configuration used to initiate a replica set must  have version 1, but found {}",
            config.version
        );
    }
    config.validate()?;
    check_self(server, &config, true)?;
    Ok(config)
}

fn check_name(member: &Member, config: &SetConfig, what: &str) -> Result<()> {
    if config.name == member.set_name() {
        return Ok(());
    }
    bail!(
        InvalidReplicaSetConfig,
        "Attempting to {what} a replica set with name {}, but command line reports {}; rejecting",
        config.name,
        member.set_name()
    )
}

/// Fails unless exactly one host is this server, which can lead if it has to.
fn check_self(server: &Server, config: &SetConfig, leads: bool) -> Result<()> {
    let own = server.start.member_host.as_str();
    let me = config.find_self(|host| host == own || (server.is_self)(host))?;
    match config.members.get(me) {
        Some(me) if leads && (me.is_arbiter || me.priority == 0.0) => bail!(
            NodeNotElectable,
            "This node, {}, with _id {} is not electable under the new configuration with {{version: {}, term: {}}} \
             for replica set {}",
            me.host,
            me.id,
            config.version,
            config.term,
            config.name
        ),
        _ => Ok(()),
    }
}

fn reconfigure<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let server = invocation.server;
        let member = member_of(server)?;
        let args = Args::new("replSetReconfig");
        let mut force = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "force" => force = elem.value().truthy(),
                _ => args.other(elem)?,
            }
        }
        let Some(given) = invocation.target()?.as_doc() else {
            bail!(BadValue, "no configuration specified");
        };
        let view = member.view();
        let Some(old) = &view.config else {
            let message = "Node not yet initialized; use the replSetInitiate command";
            return Err(Error::new(ErrorCode::NotYetInitialized, message));
        };
        if !force && !view.is_writable {
            bail!(
                NotWritablePrimary,
                "New config is rejected :: caused by :: replSetReconfig should only be run on a writable PRIMARY. \
                 Current state {};",
                view.state.name()
            );
        }
        let config = next_config(server, member, (&view, old), given, force)?;
        if !force {
            let stored = defaults::stored(&mut invocation.op, &server.catalog).await?;
            if Defaults::of(stored).write.is_none() {
                config.check_default_of(old)?;
            }
        }
        let attr = kauri_bson::log_doc(Attr::new(), "config", config.to_doc().as_doc());
        let attr = attr.json("force", force.to_string());
        log::info("REPL", 21352, "-", "replSetReconfig: configuration accepted", attr);
        ask(invocation, member, Request::Reconfigure { config, force }).await
    })
}

/// The configuration that a client gives to follow the one in force.
fn next_config(
    server: &Server,
    member: &Member,
    (view, old): (&View, &Arc<SetConfig>),
    given: Doc<'_>,
    force: bool,
) -> Result<SetConfig> {
    let of_code = |code| move |error: Error| Error::new(code, error.message());
    let mut config =
        SetConfig::parse(given).map_err(of_code(ErrorCode::InvalidReplicaSetConfig))?;
    if config.settings.set_id == [0; 12] {
        config.settings.set_id = old.settings.set_id;
    }
    check_name(member, &config, "reconfigure")?;
    config.term = if force { -1 } else { view.term };
    if force {
        let more = (server.random.next_u64() % (10 * FORCED_STEP as u64)) as i64;
        config.version = config.version.max(old.version) + FORCED_STEP + more;
    }
    let incompatible = ErrorCode::NewReplicaSetConfigurationIncompatible;
    config.validate().map_err(of_code(incompatible))?;
    config.check_successor(old, force)?;
    match check_self(server, &config, !force) {
        Err(error) if error.code() == ErrorCode::NodeNotFound => Err(error),
        Err(error) => Err(of_code(incompatible)(error)),
        Ok(()) => Ok(config),
    }
}

fn get_config<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        let args = Args::new("replSetGetConfig");
        let mut wants_commitment = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "commitmentStatus" => wants_commitment = elem.value().truthy(),
                _ => args.other(elem)?,
            }
        }
        let view = member.view();
        let config = config_of(&view)?;
        if wants_commitment && !member.is_primary() {
            bail!(NotWritablePrimary, "commitmentStatus is only known to the primary");
        }
        invocation.reply.put("config", config.to_doc());
        if wants_commitment {
            invocation.reply.put("commitmentStatus", is_committed(member, &view, config));
        }
        Ok(())
    })
}

/// Whether a majority has the configuration.
fn is_committed(member: &Member, view: &View, config: &SetConfig) -> bool {
    let votes = |at: usize| config.members.get(at).is_some_and(|member| member.is_voter());
    let peers = member.peers();
    let theirs = peers
        .iter()
        .filter(|peer| votes(peer.member) && peer.config == (config.version, config.term));
    theirs.count() + usize::from(view.me.is_some_and(votes)) >= config.majority()
}
