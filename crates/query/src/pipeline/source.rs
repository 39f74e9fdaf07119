//! Stages without input: data about a collection, an index or the server, and literal documents.

use super::{BuildCx, Constraints, FieldUse, StageSpec};
use crate::exec::Stage;
use crate::exec::rows::Rows;
use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter, Value};
use std::any::Any;
use std::collections::BTreeSet;

/// Makes the rows.
pub type Produce = Box<dyn Fn(&BuildCx) -> Result<Vec<DocBuf>> + Send + Sync>;

/// A parsed stage of this kind.
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// As the user wrote it.
    pub spec: Value<'static>,
    /// Its allowed positions.
    pub constraints: Constraints,
    /// Variables from outside that the rows are made with.
    pub variables: BTreeSet<usize>,
    /// Makes the rows.
    pub produce: Produce,
}

impl Source {
    /// A stage with the allowed positions of stages about a collection.
    pub fn new(name: &'static str, spec: Value<'_>, produce: Produce) -> Source {
        let constraints = Constraints { not_in_api: true, ..Constraints::SOURCE };
        let (spec, variables) = (spec.into_owned(), BTreeSet::new());
        Source { name, spec, constraints, variables, produce }
    }

    /// A stage of a command that names no collection.
    pub fn of_server(name: &'static str, spec: Value<'_>, produce: Produce) -> Source {
        let constraints = Constraints {
            collectionless: true,
            local_reads: true,
            not_in_api: true,
            ..Constraints::SOURCE
        };
        Source { constraints, ..Source::new(name, spec, produce) }
    }
}

impl StageSpec for Source {
    fn name(&self) -> &'static str {
        self.name
    }

    fn constraints(&self) -> Constraints {
        self.constraints
    }

    fn field_use(&self) -> FieldUse {
        FieldUse { variables: self.variables.clone(), ..FieldUse::everything() }
    }

    fn build(&self, _child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(Rows::new((self.produce)(cx)?)))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value(self.name, &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
