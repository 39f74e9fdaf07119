//! `profile`: which operations are logged as slow. Nothing is written to `system.profile`.

use super::find::matcher;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::{DocBuf, Elem, Value};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command =
    Command::new("profile", "sets which operations are logged as slow", run);

/// What becomes of the filter.
enum Filter {
    Keep,
    Change(Option<DocBuf>),
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("profile");
        let Some(level) = args.given(invocation.target()?, Args::long)? else {
            return Err(args.missing("profile"));
        };
        let (mut slow_ms, mut sample_rate, mut filter) = (None, None, Filter::Keep);
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
        let slow_ms_now = server.slow_ms.load(Ordering::Relaxed);
        let (was, rate, shown) = server.profiling.with(|settings| -> Result<_> {
            let was = settings.level(db);
            let rate = settings.sample_rate;
            let shown = settings.filter(db).cloned();
            if let Filter::Change(filter) = filter {
                settings.set_filter(db, filter)?;
            }
            // Any other level only asks.
            if let level @ 0..=2 = level {
                settings.set_level(db, level as i32);
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
        Ok(())
    })
}

fn read_rate(args: &Args<'_>, elem: Elem<'_>) -> Result<f64> {
    match elem.value().as_f64_lossy() {
        Some(rate) if (0.0..=1.0).contains(&rate) => Ok(rate),
        Some(_) => bail!(BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive"),
        None => Err(args.wrong_type(elem, &["decimal", "int", "long", "double"])),
    }
}

fn read_filter(invocation: &Invocation<'_>, elem: Elem<'_>) -> Result<Filter> {
    match (elem.value(), elem.as_doc()) {
        (Value::String(text), _) if text == "unset" => Ok(Filter::Change(None)),
        (Value::Document(_), Some(filter)) => {
            let env = invocation.query_env();
            Ok(Filter::Change(Some(match matcher(filter, &env)? {
                Some(matcher) => matcher.expr().to_bson(),
                None => DocBuf::new(),
            })))
        }
        _ => bail!(BadValue, "Expected an object, or the string 'unset'."),
    }
}
