//! The options `storageEngine` and `indexOptionDefaults`: stored and listed, without an effect. Options for
//! `wiredTiger` are accepted, because applications send them.

use crate::args::Args;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Value};

/// Engines whose options are taken.
const ENGINES: &[&str] = &["wiredTiger", "pmlog", "ephemeralForTest"];

/// Checks `{<engine>: {configString}}`.
pub fn check<'d>(args: &Args<'_>, elem: Elem<'d>) -> Result<Doc<'d>> {
    let doc = args.object(elem)?;
    check_engines(doc)?;
    Ok(doc)
}

fn check_engines(doc: Doc<'_>) -> Result<()> {
    for engine in doc {
        let Some(options) = engine.value().as_document().map(|d| d.to_buf()) else {
            bail!(BadValue, "'storageEngine.{}' has to be an embedded document.", engine.key());
        };
        if !ENGINES.contains(&engine.key()) {
            bail!(
                InvalidOptions,
                "{} is not a registered storage engine for this server",
                engine.key()
            );
        }
        for option in options.as_doc() {
            match (option.key(), option.value().lossy()) {
                ("configString", Value::String(text)) => check_config_string(&text)?,
                ("configString", _) => bail!(TypeMismatch, "'configString' must be a string."),
                (other, _) => bail!(
                    InvalidOptions,
                    "'{other}' is not a supported option in storageEngine.{}",
                    engine.key()
                ),
            }
        }
    }
    Ok(())
}

/// WiredTiger's own options, by name; their values are ignored.
const CONFIG_NAMES: &[&str] = &[
    "access_pattern_hint",
    "allocation_size",
    "app_metadata",
    "block_allocation",
    "block_compressor",
    "checksum",
    "dictionary",
    "encryption",
    "format",
    "internal_page_max",
    "key_format",
    "leaf_page_max",
    "leaf_value_max",
    "log",
    "memory_page_max",
    "os_cache_max",
    "prefix_compression",
    "split_pct",
    "type",
    "value_format",
];

fn check_config_string(text: &str) -> Result<()> {
    if text.contains('\0') {
        bail!(FailedToParse, "Malformed configuration string: it holds a null byte");
    }
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in text.char_indices().chain([(text.len(), ',')]) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                let name = text[start..at].split('=').next().unwrap_or_default().trim();
                if !name.is_empty() && !CONFIG_NAMES.contains(&name) {
                    bail!(BadValue, "22: Invalid argument: unknown configuration key: '{name}'");
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks `indexOptionDefaults: {storageEngine}`.
pub fn check_index_defaults<'d>(args: &Args<'_>, elem: Elem<'d>) -> Result<Doc<'d>> {
    let doc = args.object(elem)?;
    let inner = Args::new("create.indexOptionDefaults");
    for field in doc {
        match field.key() {
            "storageEngine" => {
                if let Some(engines) = inner.given(field, Args::object)? {
                    check_engines(engines)?;
                }
            }
            other => return Err(inner.unknown(other)),
        }
    }
    Ok(doc)
}
