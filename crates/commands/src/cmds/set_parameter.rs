//! `setParameter`.

use crate::args::is_generic;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;
use kauri_base::log::{self, Attr};
use kauri_bson::{Value, shell_value};

/// See the module's head.
pub const COMMAND: Command = Command::admin("setParameter", "changes server parameters", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let given = invocation.body.iter().skip(1).filter(|e| !is_generic(e.key()));
        let values: Vec<(&str, Value<'_>)> = given.map(|e| (e.key(), e.value())).collect();
        if values.is_empty() {
            bail!(InvalidOptions, "no option found to set, use help:true to see options ");
        }
        let was = invocation.server.parameters.set(&values)?;
        for (name, value) in &values {
            let attr = Attr::new().str("parameterName", name).str("newValue", shell_value(value));
            log::info("CONTROL", 23435, "-", "Successfully set server parameter", attr);
        }
        invocation.reply.put_value("was", &was);
        Ok(())
    })
}
