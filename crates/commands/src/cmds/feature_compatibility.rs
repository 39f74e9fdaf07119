//! `setFeatureCompatibilityVersion`. There is one version, so the command only checks its arguments.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use crate::server::FEATURE_COMPATIBILITY;
use kauri_base::bail;

/// See the module's head.
pub const COMMAND: Command = Command {
    admin_only: true,
    target: Target::Server,
    ..Command::define(
        "setFeatureCompatibilityVersion",
        "sets the version whose features are enabled",
        run,
    )
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("setFeatureCompatibilityVersion");
        let target = invocation.target()?;
        let version = args.string(target)?;
        let mut is_confirmed = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "confirm" => is_confirmed = args.given(elem, Args::safe_bool)?.unwrap_or(false),
                _ => args.other(elem)?,
            }
        }
        if version != FEATURE_COMPATIBILITY {
            bail!(
                4926900,
                "Invalid feature compatibility version value '{version}'; expected \
                 '{FEATURE_COMPATIBILITY}'. See https://docs.mongodb.com/master/release-notes/\
                 8.0-compatibility/#feature-compatibility."
            );
        }
        if !is_confirmed {
            bail!(
                7369100,
                "Once you have upgraded to {version}, you will not be able to downgrade FCV and binary \
                 version without support assistance. Please re-run this command with 'confirm: true' to \
                 acknowledge this and continue with the FCV upgrade."
            );
        }
        Ok(())
    })
}
