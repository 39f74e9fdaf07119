//! The rows of a collection that is read elsewhere, at the beginning of a pipeline.

use super::{BuildCx, Constraints, FieldUse, StageSpec};
use crate::exec::Stage;
use crate::namespaces::RemoteRows;
use kauri_base::Result;
use kauri_bson::{Doc, DocWriter};
use std::any::Any;
use std::sync::Arc;

struct Remote(Arc<dyn RemoteRows>);

/// The stage that gives these rows.
pub fn stage(rows: Arc<dyn RemoteRows>) -> Arc<dyn StageSpec> {
    Arc::new(Remote(rows))
}

impl StageSpec for Remote {
    fn name(&self) -> &'static str {
        "$mergeCursors"
    }

    fn constraints(&self) -> Constraints {
        Constraints::SOURCE
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::everything()
    }

    fn build(&self, _child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        self.0.open(&cx.env)
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$mergeCursors", Doc::EMPTY);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
