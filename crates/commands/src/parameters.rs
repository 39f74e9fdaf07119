//! Server parameters, for `setParameter` and `getParameter`.
//!
//! The table is `parameter_table`. Code reads a parameter when it needs the value, or registers a hook that is
//! called on each change. A refused value changes nothing.

use crate::parameter_table;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Value, not_utf8, shell_value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Acts on a new value, or says why it can't be.
pub type Hook = Arc<dyn Fn(&Value<'_>) -> Result<()> + Send + Sync>;

/// The values of a parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// True or false; anything can stand for one of them.
    Bool,
    /// An int within bounds.
    Int(i32, i32),
    /// A long within bounds.
    Long(i64, i64),
    /// A double within bounds.
    Double(f64, f64),
    /// A text of at most this many bytes.
    Text(usize),
    /// A text out of these.
    Choice(&'static [&'static str]),
    /// `logComponentVerbosity`.
    Verbosity,
    /// Cannot be set.
    Fixed,
}

/// One parameter.
#[derive(Clone)]
pub struct Parameter {
    /// Its value.
    pub value: Value<'static>,
    /// The accepted values.
    pub kind: Kind,
    /// May be given on the command line or in the configuration file.
    pub at_startup: bool,
    /// May be changed while the server runs.
    pub at_runtime: bool,
    hook: Option<Hook>,
}

impl Parameter {
    /// A parameter of this kind.
    pub fn new(value: impl Into<Value<'static>>, kind: Kind) -> Parameter {
        let settable = kind != Kind::Fixed;
        Parameter {
            value: value.into(),
            kind,
            at_startup: settable,
            at_runtime: settable,
            hook: None,
        }
    }

    /// Not to be changed while the server runs.
    pub fn startup_only(mut self) -> Parameter {
        self.at_runtime = false;
        self
    }

    /// Has this called on each change.
    pub fn with_hook(mut self, hook: Hook) -> Parameter {
        self.hook = Some(hook);
        self
    }
}

/// All parameters by name.
pub struct Parameters {
    all: Mutex<BTreeMap<&'static str, Parameter>>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { all: Mutex::new(parameter_table::all()) }
    }
}

impl Parameters {
    /// Adds a parameter, or replaces it.
    pub fn define(&self, name: &'static str, parameter: Parameter) {
        self.lock().insert(name, parameter);
    }

    /// Names of parameters that may be set and that nothing follows by a hook.
    pub fn without_hook(&self) -> Vec<&'static str> {
        let all = self.lock();
        let settable =
            all.iter().filter(|(_, p)| (p.at_startup || p.at_runtime) && p.hook.is_none());
        settable.map(|(name, _)| *name).collect()
    }

    /// Has `hook` called on each change of a parameter that there is.
    pub fn on_change(&self, name: &str, hook: Hook) {
        if let Some(parameter) = self.lock().get_mut(name) {
            parameter.hook = Some(hook);
        }
    }

    /// The parameter of this name.
    pub fn get(&self, name: &str) -> Option<Parameter> {
        self.lock().get(name).cloned()
    }

    /// A boolean parameter; false if it does not exist.
    pub fn flag(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|p| p.value.truthy())
    }

    /// A numeric parameter; 0 if it does not exist.
    pub fn number(&self, name: &str) -> i64 {
        self.lock().get(name).and_then(|p| p.value.to_i64_saturating()).unwrap_or(0)
    }

    /// All, by name.
    pub fn all(&self) -> BTreeMap<&'static str, Parameter> {
        self.lock().clone()
    }

    /// Sets a parameter of a server that is starting. Numbers and booleans may come as text.
    pub fn set_at_startup(&self, name: &str, value: Value<'static>) -> Result<()> {
        let mut all = self.lock();
        let Some(parameter) = all.get_mut(name).filter(|p| p.at_startup) else {
            bail!(BadValue, "Illegal --setParameter parameter: \"{name}\"");
        };
        let value = coerce(name, parameter, &from_text(parameter.kind, value))?;
        if let Some(hook) = &parameter.hook {
            hook(&value)?;
        }
        parameter.value = value;
        follow_level(&mut all, name)
    }

    /// Sets parameters of a running server, all or none of them. Returns what the first one was.
    pub fn set(&self, values: &[(&str, Value<'_>)]) -> Result<Value<'static>> {
        let mut all = self.lock();
        let mut ready = Vec::with_capacity(values.len());
        for (name, value) in values {
            let Some(parameter) = all.get(name) else { return Err(unrecognised(name)) };
            if !parameter.at_runtime {
                bail!(IllegalOperation, "not allowed to change [{name}] at runtime");
            }
            ready.push((*name, coerce(name, parameter, value)?));
        }
        let mut was = None;
        for (name, value) in ready {
            let Some(parameter) = all.get_mut(name) else { continue };
            if let Some(hook) = &parameter.hook {
                hook(&value)?;
            }
            let before = std::mem::replace(&mut parameter.value, value);
            was.get_or_insert(before);
            follow_level(&mut all, name)?;
        }
        Ok(was.unwrap_or(Value::Missing))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Parameter>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `logLevel` is the root of `logComponentVerbosity`: a change of one is a change of the other.
fn follow_level(all: &mut BTreeMap<&'static str, Parameter>, changed: &str) -> Result<()> {
    const LEVEL: &str = "logLevel";
    const COMPONENTS: &str = "logComponentVerbosity";
    let value = |name: &str| all.get(name).map(|parameter| parameter.value.clone());
    let (Some(level), Some(components)) = (value(LEVEL), value(COMPONENTS)) else { return Ok(()) };
    let (other, value) = match changed {
        LEVEL => {
            let level = level.to_i64_saturating().unwrap_or(0);
            (COMPONENTS, parameter_table::with_root(&components, level)?)
        }
        COMPONENTS => (LEVEL, Value::Int32(parameter_table::root_of(&components))),
        _ => return Ok(()),
    };
    if let Some(parameter) = all.get_mut(other) {
        parameter.value = value;
    }
    Ok(())
}

fn unrecognised(name: &str) -> Error {
    Error::new(
        kauri_base::ErrorCode::InvalidOptions,
        format!("attempted to set unrecognized parameter [{name}], use help:true to see options "),
    )
}

/// Parses a value of the command line.
fn from_text(kind: Kind, value: Value<'static>) -> Value<'static> {
    let Value::String(text) = &value else { return value };
    match kind {
        Kind::Bool => match text.as_ref() {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => value,
        },
        Kind::Int(..) | Kind::Long(..) => text.parse().map_or(value, Value::Int64),
        Kind::Double(..) => text.parse().map_or(value, Value::Double),
        _ => value,
    }
}

/// The value as the parameter keeps it.
fn coerce(name: &str, parameter: &Parameter, value: &Value<'_>) -> Result<Value<'static>> {
    match parameter.kind {
        Kind::Bool => Ok(Value::Bool(stands_for_true(value))),
        Kind::Int(min, max) => {
            whole(name, value, i64::from(min), i64::from(max)).map(|n| Value::Int32(n as i32))
        }
        Kind::Long(min, max) => whole(name, value, min, max).map(Value::Int64),
        Kind::Double(min, max) => match value.as_f64_lossy() {
            Some(n) if (min..=max).contains(&n) => Ok(Value::Double(n)),
            Some(n) => Err(out_of_range(name, n, min, max)),
            None => Err(not_a_number(name, value)),
        },
        Kind::Text(bytes_max) => match value {
            Value::String(text) if text.len() <= bytes_max => {
                Ok(Value::from(text.clone().into_owned()))
            }
            Value::String(text) => bail!(
                Overflow,
                "Value for parameter {name} must be no more than {bytes_max} bytes, got {}",
                text.len()
            ),
            text if text.string_bytes().is_some() => {
                Err(not_utf8::error(&format!("Value for parameter {name}")))
            }
            other => bail!(
                TypeMismatch,
                "Value for parameter {name} must be of type string, got {}",
                other.type_name()
            ),
        },
        Kind::Choice(texts) => match value.as_str() {
            Some(text) if texts.contains(&text) => Ok(Value::from(text.to_owned())),
            _ => bail!(
                BadValue,
                "Invalid value for parameter {name}: {}. It must be one of: {}",
                shell_value(value),
                texts.join(", ")
            ),
        },
        Kind::Verbosity => parameter_table::change_verbosity(&parameter.value, value),
        Kind::Fixed => bail!(IllegalOperation, "not allowed to change [{name}]"),
    }
}

/// A text, array or document stands for true, whatever it says.
fn stands_for_true(value: &Value<'_>) -> bool {
    value.truthy()
}

fn whole(name: &str, value: &Value<'_>, min: i64, max: i64) -> Result<i64> {
    let number = match value {
        Value::Bool(flag) => i64::from(*flag),
        value if value.is_nan() => return Err(not_a_number(name, value)),
        value => value.to_i64_saturating().ok_or_else(|| not_a_number(name, value))?,
    };
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(out_of_range(name, number, min, max))
    }
}

fn out_of_range<T: std::fmt::Display + PartialOrd>(name: &str, value: T, min: T, max: T) -> Error {
    let bound = if value < min {
        format!("{value} is not greater than or equal to {min}")
    } else {
        format!("{value} is not less than or equal to {max}")
    };
    Error::bad_value(format!("Invalid value for parameter {name}: {bound}"))
}

fn not_a_number(name: &str, value: &Value<'_>) -> Error {
    Error::bad_value(format!(
        "Invalid value for parameter {name}: {} is not a number",
        shell_value(value)
    ))
}
