//! `profile`: which operations are written to `system.profile`, and which are logged as slow.

use super::find::matcher;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::profiler::ensure_collection;
use crate::profiling::{Filter, PROFILE_COLLECTION};
use crate::registry::{Command, Report, Run};
use kauri_base::{Result, bail};
use kauri_bson::{DocBuf, Elem, Value};
use kauri_catalog::Namespace;
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    settles_profile: true,
    writes: |asked| {
        asked.body.first().is_some_and(|level| level.value().to_i64_saturating() > Some(0))
    },
    report: Report::Line,
    ..Command::new("profile", "sets which operations are profiled and logged as slow", run)
};

/// The change of the filter.
enum Given {
    Keep,
    Change(Option<Filter>),
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("profile");
        let Some(level) = args.given(invocation.target()?, Args::long)? else {
            return Err(args.missing("profile"));
        };
        let (mut slow_ms, mut sample_rate, mut filter) = (None, None, Given::Keep);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "slowms" => slow_ms = args.given(elem, Args::long)?,
                "sampleRate" => sample_rate = args.given(elem, read_rate)?,
                "filter" => filter = read_filter(invocation, elem)?,
                _ => args.other(elem)?,
            }
        }
        let server = invocation.server;
        let db = invocation.db;
        let mut created = None;
        if let 1 | 2 = level {
            let ns = Namespace::new(db, PROFILE_COLLECTION)?;
            created = ensure_collection(&server.catalog, &mut invocation.op, &ns).await?.1;
        }
        let slow_ms_now = server.slow_ms.load(Ordering::Relaxed);
        let (was, rate, shown) = server.profiling.with(|settings| -> Result<_> {
            let was = settings.level(db);
            let rate = settings.sample_rate;
            let shown = settings.filter(db).map(|filter| filter.spec.clone());
            if let Given::Change(filter) = filter {
                settings.set_filter(db, filter)?;
            }
            // Any other level only asks.
            if let level @ 0..=2 = level {
                settings.set_level(db, level as i32)?;
            }
            settings.sample_rate = sample_rate.unwrap_or(rate);
            Ok((was, rate, shown))
        })?;
        if let Some(ms) = slow_ms {
            let ms = ms.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            server.slow_ms.store(ms, Ordering::Relaxed);
        }
        let out = &mut invocation.reply;
        out.put("was", was);
        out.put("slowms", slow_ms_now as i32);
        out.put("sampleRate", rate);
        if let Some(filter) = shown {
            out.put("filter", filter);
            out.put(
                "note",
                "When a filter expression is set, slowms and sampleRate are not used for profiling \
                 and slow-query log lines.",
            );
        }
        invocation.wait_for_commit(created).await
    })
}

fn read_rate(args: &Args<'_>, elem: Elem<'_>) -> Result<f64> {
    match elem.value().as_f64_lossy() {
        Some(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        Some(_) => bail!(BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive"),
        None => Err(args.wrong_type(elem, &["decimal", "int", "long", "double"])),
    }
}

fn read_filter(invocation: &Invocation<'_>, elem: Elem<'_>) -> Result<Given> {
    match (elem.value(), elem.as_doc()) {
        (Value::String(text), _) if text == "unset" => Ok(Given::Change(None)),
        (Value::Document(_), Some(filter)) => {
            let matcher = matcher(filter, &invocation.query_env())?;
            let spec = matcher.as_ref().map_or_else(DocBuf::new, |m| m.expr().to_bson());
            Ok(Given::Change(Some(Filter { spec, matcher })))
        }
        _ => bail!(BadValue, "Expected an object, or the string 'unset'."),
    }
}
