//! The options of `create`: types, bounds, and exclusions.

use super::views::ViewRequest;
use super::{clustered, encryption, storage_options, timeseries};
use crate::args::Args;
use crate::invocation::Invocation;
use kauri_base::{Result, bail};
use kauri_bson::{ArrayWriter, Doc, DocBuf, DocWriter, Elem, Type, Value};
use kauri_catalog::{Capped, CollectionOptions, collation, options, spec};

/// A request of `create`.
pub struct CreateRequest {
    /// The options of a collection.
    pub options: CollectionOptions,
    /// The definition of the `_id` index, if one was given.
    pub id_index: Option<DocBuf>,
    /// The view, if it is to be one.
    pub view: Option<ViewRequest>,
}

/// Largest `size`: a petabyte.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

#[derive(Default)]
struct Given<'a> {
    capped: bool,
    size: Option<i64>,
    max: Option<i64>,
    validator: Option<Doc<'a>>,
    level: Option<String>,
    action: Option<String>,
    id_index: Option<Doc<'a>>,
    view_on: Option<String>,
    pipeline: Option<DocBuf>,
    collation: bool,
    images: Option<bool>,
    timeseries: bool,
    clustered: Option<clustered::Form>,
    expire: Option<i64>,
    encrypted: bool,
    storage_engine: Option<Doc<'a>>,
    index_defaults: Option<Doc<'a>>,
    auto_index_id: Option<bool>,
    temp: bool,
}

/// Reads and checks the arguments of `create`.
pub fn parse_create(invocation: &Invocation<'_>) -> Result<CreateRequest> {
    let args = Args::new("create");
    let mut given = Given::default();
    for elem in invocation.body.iter().skip(1) {
        given.read(&args, elem)?;
    }
    given.check(invocation)?;
    given.finish(invocation.namespace()?.is_system())
}

impl<'a> Given<'a> {
    fn read(&mut self, args: &Args<'_>, elem: Elem<'a>) -> Result<()> {
        match elem.key() {
            "capped" => self.capped = args.given(elem, Args::safe_bool)?.unwrap_or(false),
            "size" => self.size = args.given(elem, capped_size)?,
            "max" => self.max = args.given(elem, Args::long)?,
            "validator" => self.validator = args.given(elem, Args::object)?,
            "validationLevel" => self.level = args.given(elem, Args::string)?,
            "validationAction" => self.action = args.given(elem, Args::string)?,
            "idIndex" => self.id_index = args.given(elem, Args::object)?,
            "viewOn" => self.view_on = args.given(elem, Args::namespace)?,
            "pipeline" => self.pipeline = args.given(elem, view_pipeline)?,
            "collation" => {
                if let Some(doc) = args.given(elem, Args::object)? {
                    self.collation = collation::check(doc)?;
                }
            }
            "changeStreamPreAndPostImages" => {
                self.images = args.given(elem, images)?;
            }
            "timeseries" => {
                if let Some(doc) = args.given(elem, Args::object)? {
                    timeseries::check(doc)?;
                    self.timeseries = true;
                }
            }
            "clusteredIndex" => self.clustered = clustered::check(args, elem)?,
            "expireAfterSeconds" => self.expire = args.given(elem, Args::long)?,
            "encryptedFields" => {
                self.encrypted = args.given(elem, encryption::check_fields)?.is_some();
            }
            "storageEngine" => self.storage_engine = args.given(elem, storage_options::check)?,
            "indexOptionDefaults" => {
                self.index_defaults = args.given(elem, storage_options::check_index_defaults)?;
            }
            "autoIndexId" => self.auto_index_id = args.given(elem, Args::safe_bool)?,
            "temp" => self.temp = args.given(elem, Args::safe_bool)?.is_some(),
            _ => args.other(elem)?,
        }
        Ok(())
    }

    fn check(&self, invocation: &Invocation<'_>) -> Result<()> {
        if let Some(level) = &self.level {
            options::parse_level(level)?;
        }
        if let Some(action) = &self.action {
            options::parse_action(action)?;
        }
        if self.clustered.is_some() {
            self.check_clustered()?;
        }
        if self.auto_index_id == Some(false) {
            bail!(
                50001,
                "autoIndexId:false is not allowed for collection {} because it can be replicated",
                invocation.namespace()?
            );
        }
        if self.temp {
            bail!(InvalidOptions, "the 'temp' field is an invalid option");
        }
        if self.pipeline.is_some() && self.view_on.is_none() {
            bail!(InvalidOptions, "'pipeline' requires 'viewOn' to also be specified");
        }
        if self.capped && self.size.is_none() {
            bail!(InvalidOptions, "the 'size' field is required when 'capped' is true");
        }
        if !self.capped && (self.size.is_some() || self.max.is_some()) {
            bail!(
                InvalidOptions,
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are \
                 present"
            );
        }
        if let Some(max) = self.max
            && max > i64::from(i32::MAX)
        {
            bail!(BadValue, "max in a capped collection has to be < 2^31 or not set");
        }
        if self.encrypted {
            if self.view_on.is_some() || self.timeseries || self.capped {
                return Err(encryption::conflict(self.capped));
            }
            return Err(encryption::refuse());
        }
        if self.timeseries {
            self.check_timeseries()?;
        }
        self.check_expiry(invocation)?;
        if self.view_on.is_some() {
            if self.id_index.is_some() {
                bail!(InvalidOptions, "'idIndex' is not allowed with 'viewOn'");
            }
            if self.images == Some(true) {
                bail!(
                    InvalidOptions,
                    "option not supported on a view: changeStreamPreAndPostImages"
                );
            }
        }
        for (given, what) in
            [(self.timeseries, "timeseries"), (self.clustered.is_some(), "clusteredIndex")]
        {
            if given {
                bail!(InvalidOptions, "'{what}' is not supported by this server");
            }
        }
        if self.collation {
            bail!(
                BadValue,
                "collation other than {{locale: \"simple\"}} is not supported by this server"
            );
        }
        Ok(())
    }

    fn check_clustered(&self) -> Result<()> {
        if self.capped {
            bail!(6049200, "'clusteredIndex' is not supported with 'capped'");
        }
        if self.view_on.is_some() {
            bail!(6026500, "The 'clusteredIndex' option is not supported with views");
        }
        if self.max.is_some() {
            bail!(6049204, "'max' is not supported with 'clusteredIndex'");
        }
        if self.id_index.is_some() {
            bail!(
                InvalidOptions,
                "The 'clusteredIndex' option is not supported with the 'idIndex' option"
            );
        }
        if self.clustered == Some(clustered::Form::Legacy) {
            bail!(
                5979703,
                "'clusteredIndex' legacy format {{clusteredIndex: <bool>}} is not supported here"
            );
        }
        Ok(())
    }

    fn check_timeseries(&self) -> Result<()> {
        let others = [
            (self.capped, "capped"),
            (self.view_on.is_some(), "viewOn"),
            (self.validator.is_some(), "validator"),
            (self.level.is_some(), "validationLevel"),
            (self.action.is_some(), "validationAction"),
            (self.id_index.is_some(), "idIndex"),
            (self.clustered.is_some(), "clusteredIndex"),
            (self.images.is_some(), "changeStreamPreAndPostImages"),
        ];
        for (given, name) in others {
            if given {
                bail!(InvalidOptions, "'timeseries' is not allowed with '{name}'");
            }
        }
        Ok(())
    }

    fn check_expiry(&self, invocation: &Invocation<'_>) -> Result<()> {
        let Some(seconds) = self.expire else { return Ok(()) };
        if !self.timeseries && self.clustered.is_none() {
            bail!(
                InvalidOptions,
                "'expireAfterSeconds' is only supported on time-series collections or when the \
                 'clusteredIndex' option is specified"
            );
        }
        if seconds < 0 || seconds > invocation.server.clock.unix_ms() / 1000 {
            bail!(
                InvalidOptions,
                "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a \
                 different number than {seconds}"
            );
        }
        Ok(())
    }

    fn finish(self, is_system: bool) -> Result<CreateRequest> {
        let id_index = self.id_index.map(|doc| id_index(doc)).transpose()?;
        if let Some(view_on) = self.view_on {
            let pipeline = self.pipeline.unwrap_or_default();
            let view = Some(ViewRequest { view_on, pipeline });
            return Ok(CreateRequest { options: CollectionOptions::default(), id_index, view });
        }
        let mut options = CollectionOptions::default();
        if self.capped {
            let records_max = self.max.unwrap_or(0).max(0) as u64;
            let bytes_max = self.size.unwrap_or(0).max(0) as u64;
            options.capped = Some(Capped { bytes_max, records_max });
        }
        if let Some(validator) = self.validator {
            check_validator_place(validator, is_system)?;
            options.set_validator(Some(validator.to_buf()))?;
        }
        options.validation_level = self.level.as_deref().map(options::parse_level).transpose()?;
        options.validation_action =
            self.action.as_deref().map(options::parse_action).transpose()?;
        options.kept = DocBuf::build(|out| {
            if self.auto_index_id == Some(true) {
                out.put("autoIndexId", true);
            }
            put_unless_empty(out, "storageEngine", self.storage_engine);
            put_unless_empty(out, "indexOptionDefaults", self.index_defaults);
            if self.images == Some(true) {
                out.document("changeStreamPreAndPostImages").put("enabled", true);
            }
        });
        Ok(CreateRequest { options, id_index, view: None })
    }
}

fn put_unless_empty(out: &mut DocWriter<'_>, name: &str, doc: Option<Doc<'_>>) {
    if let Some(doc) = doc.filter(|doc| !doc.is_empty()) {
        out.put(name, doc);
    }
}

/// Fails where a validator isn't allowed.
pub fn check_validator_place(validator: Doc<'_>, is_system: bool) -> Result<()> {
    if is_system && !validator.is_empty() {
        bail!(InvalidOptions, "Document validators not allowed on system collection");
    }
    Ok(())
}

fn capped_size(args: &Args<'_>, elem: Elem<'_>) -> Result<i64> {
    let size = args.long(elem)?;
    if size < 1 {
        bail!(BadValue, "BSON field 'size' value must be >= 1, actual value '{size}'");
    }
    if size > CAPPED_BYTES_MAX {
        bail!(
            BadValue,
            "BSON field 'size' value must be <= {CAPPED_BYTES_MAX}, actual value '{size}'"
        );
    }
    Ok(size)
}

fn images(args: &Args<'_>, elem: Elem<'_>) -> Result<bool> {
    let doc = args.object(elem)?;
    let path = "create.changeStreamPreAndPostImages";
    images_enabled(doc, path)
}

/// `{enabled: bool}` of `changeStreamPreAndPostImages`.
pub fn images_enabled(doc: Doc<'_>, path: &str) -> Result<bool> {
    let args = Args::new(path);
    let mut enabled = None;
    for field in doc {
        match field.key() {
            "enabled" => enabled = args.given(field, Args::bool)?,
            other => return Err(args.unknown(other)),
        }
    }
    enabled.ok_or_else(|| args.missing("enabled"))
}

/// An array of stages; nulls in it are passed over.
pub fn view_pipeline(args: &Args<'_>, elem: Elem<'_>) -> Result<DocBuf> {
    let stages = args.array(elem)?;
    let mut bytes = Vec::with_capacity(stages.as_bytes().len());
    let mut out = ArrayWriter::new(&mut bytes);
    for stage in stages {
        match stage.ty() {
            Type::Document => out.push_elem(stage),
            Type::Null | Type::Undefined => {}
            _ => bail!(
                TypeMismatch,
                "BSON field 'pipeline.{}' is the wrong type '{}', expected type 'object'",
                stage.key(),
                stage.ty().alias()
            ),
        }
    }
    drop(out);
    DocBuf::from_vec(bytes)
}

/// The `_id` index as given: nothing but its name and version may be said.
fn id_index(given: Doc<'_>) -> Result<DocBuf> {
    if let (Some(key), Some(_)) = (given.get("key"), given.get("name"))
        && let (Type::Document, Some(key)) = (key.ty(), key.as_doc())
    {
        let mut fields = key.iter();
        let is_id = matches!((fields.next(), fields.next()), (Some(first), None)
            if first.key() == "_id" && first.value().as_f64_lossy() == Some(1.0));
        if !is_id {
            bail!(
                BadValue,
                "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                kauri_bson::shell_text(key)
            );
        }
    }
    if let Some(Value::String(name)) = given.get("name").map(|e| e.value())
        && name.is_empty()
    {
        bail!(CannotCreateIndex, "index names cannot be empty");
    }
    if let Some(Value::Document(asked)) = given.get("collation").map(|e| e.value())
        && collation::check(asked.as_doc())?
    {
        bail!(
            BadValue,
            "The _id index must have the same collation as the collection. Index collation: {}, \
             collection collation: {{}}",
            kauri_bson::shell_text(asked.as_doc())
        );
    }
    spec::normalise(given, false)
}
