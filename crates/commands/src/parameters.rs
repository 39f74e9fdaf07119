//! Server parameters: what `setParameter` may change and `getParameter` shows.

use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes a new value, or says why not.
pub type Setter = Arc<dyn Fn(&Value<'_>) -> Result<()> + Send + Sync>;

/// One parameter.
#[derive(Clone)]
pub struct Parameter {
    /// Its value.
    pub value: Value<'static>,
    /// May be given on the command line or in the configuration file.
    pub at_startup: bool,
    /// Acts on a change while the server runs; `None` if it can't be changed then.
    pub setter: Option<Setter>,
}

/// All parameters by name.
#[derive(Default)]
pub struct Parameters {
    all: Mutex<BTreeMap<&'static str, Parameter>>,
}

impl Parameters {
    /// Adds a parameter, or replaces it.
    pub fn define(&self, name: &'static str, parameter: Parameter) {
        self.lock().insert(name, parameter);
    }

    /// The parameter of this name.
    pub fn get(&self, name: &str) -> Option<Parameter> {
        self.lock().get(name).cloned()
    }

    /// A boolean parameter; false if there is none.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|p| p.value.truthy())
    }

    /// All, by name.
    pub fn all(&self) -> BTreeMap<&'static str, Parameter> {
        self.lock().clone()
    }

    /// Sets a parameter of a server that is starting.
    pub fn set_at_startup(&self, name: &str, value: Value<'static>) -> Result<()> {
        let parameter = self.get(name).filter(|p| p.at_startup).ok_or_else(|| {
            Error::bad_value(format!("Illegal --setParameter parameter: \"{name}\""))
        })?;
        if let Some(setter) = &parameter.setter {
            setter(&value)?;
        }
        self.store(name, value);
        Ok(())
    }

    /// Sets a parameter of a running server; returns what it was.
    pub fn set(&self, name: &str, value: Value<'static>) -> Result<Value<'static>> {
        let Some(parameter) = self.get(name) else {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "attempted to set unrecognized parameter [".to_owned()
                    + name
                    + "], use help:true to see options ",
            ));
        };
        let Some(setter) = &parameter.setter else {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                format!("not allowed to change [{name}] at runtime"),
            ));
        };
        setter(&value)?;
        self.store(name, value);
        Ok(parameter.value)
    }

    fn store(&self, name: &str, value: Value<'static>) {
        if let Some(parameter) = self.lock().get_mut(name) {
            parameter.value = value;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Parameter>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
