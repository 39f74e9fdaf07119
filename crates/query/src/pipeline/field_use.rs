//! The fields that a stage reads and changes. With this, stages are reordered and unused fields are left out.
//!
//! Fields are top-level fields: a stage that reads `a.b` reads `a`.

use crate::exec::Fields;
use crate::exec::fields::top_level;
use kauri_expr::Dependencies;
use kauri_matcher::MatchExpr;
use std::collections::BTreeSet;

/// Which fields come out of a stage as they went in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// All but these.
    AllBut(BTreeSet<String>),
    /// Only these.
    Only(BTreeSet<String>),
}

impl Keeps {
    /// All.
    pub fn all() -> Keeps {
        Keeps::AllBut(BTreeSet::new())
    }

    /// None: the rows that come out are others.
    pub fn nothing() -> Keeps {
        Keeps::Only(BTreeSet::new())
    }

    /// All but the top-level fields of these paths.
    pub fn all_but<'p>(paths: impl IntoIterator<Item = &'p str>) -> Keeps {
        Keeps::AllBut(paths.into_iter().map(|p| top_level(p).to_owned()).collect())
    }

    /// Whether this field does.
    pub fn keeps(&self, name: &str) -> bool {
        match self {
            Keeps::AllBut(changed) => !changed.contains(name),
            Keeps::Only(kept) => kept.contains(name),
        }
    }
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct FieldUse {
    /// The fields that the stage itself reads.
    pub reads: Fields,
    /// The fields that come out as they went in.
    pub keeps: Keeps,
    /// Whether each row becomes one row, in the same order, whatever the others are.
    pub one_to_one: bool,
    /// Whether a filter on fields that are kept may as well be asked before the stage.
    pub filter_first: bool,
    /// Whether it needs `$meta: "sortKey"`.
    pub sort_key: bool,
    /// Positions of the variables from outside the pipeline that it reads.
    pub variables: BTreeSet<usize>,
    /// Whether it gives something else each time.
    pub random: bool,
}

impl FieldUse {
    /// For a stage that reads whole rows and creates others.
    pub fn everything() -> FieldUse {
        FieldUse {
            reads: Fields::All,
            keeps: Keeps::nothing(),
            one_to_one: false,
            filter_first: false,
            sort_key: false,
            variables: BTreeSet::new(),
            random: false,
        }
    }

    /// For a stage that reads nothing and only drops rows (`$limit`).
    pub fn passing() -> FieldUse {
        FieldUse { reads: Fields::none(), keeps: Keeps::all(), ..FieldUse::everything() }
    }

    /// For a stage that reads the fields of these expressions.
    pub fn reading(found: &Dependencies) -> FieldUse {
        let mut field_use = FieldUse::passing();
        field_use.add(found);
        field_use
    }

    /// Adds what an expression reads.
    pub fn add(&mut self, found: &Dependencies) {
        let fields = match found.whole_document {
            true => Fields::All,
            false => Fields::of_paths(found.fields.iter().map(String::as_str)),
        };
        self.reads = self.reads.union(&fields);
        self.sort_key |= found.meta.contains("sortKey");
        self.variables.extend(&found.variables);
        self.random |= found.random;
    }

    /// Adds what a filter reads.
    pub fn add_filter(&mut self, filter: &MatchExpr) {
        let found = filter.dependencies();
        if !found.whole_document {
            self.reads =
                self.reads.union(&Fields::of_paths(found.paths.iter().map(String::as_str)));
            return;
        }
        self.add(&filter_dependencies(filter));
    }

    /// Adds what the stages of a pipeline within this stage read, of rows that are this stage's
    /// where `of_rows`. Variables from `first_own` on are the stage's own.
    pub fn add_pipeline(&mut self, stages: &[FieldUse], of_rows: bool, first_own: usize) {
        let mut needed = super::Needed::default();
        for stage in stages.iter().rev() {
            needed = needed.before(stage);
            self.variables.extend(stage.variables.iter().filter(|v| **v < first_own));
            self.random |= stage.random;
        }
        if of_rows {
            self.reads = self.reads.union(&needed.fields);
            self.sort_key |= needed.sort_key;
        }
    }
}

/// The fields that a filter reads, including its expressions.
pub fn filter_dependencies(filter: &MatchExpr) -> Dependencies {
    let mut found = Dependencies::default();
    collect(filter, &mut found);
    found
}

fn collect(filter: &MatchExpr, found: &mut Dependencies) {
    match filter {
        MatchExpr::Expr(expr) => expr.expression().add_dependencies(found),
        MatchExpr::Schema(_) => found.whole_document = true,
        MatchExpr::Leaf(leaf) => {
            found.fields.insert(leaf.path.as_str().to_owned());
        }
        other => other.children().iter().for_each(|child| collect(child, found)),
    }
}

impl super::Needed {
    /// The fields needed before a stage, if these are needed after it.
    pub fn before(&self, stage: &FieldUse) -> super::Needed {
        let passed = match (&self.fields, &stage.keeps) {
            (Fields::All, Keeps::AllBut(_)) => Fields::All,
            (Fields::All, Keeps::Only(kept)) => Fields::Only(std::sync::Arc::new(kept.clone())),
            // A field that the stage changes stays where it is in the document, so it must be there.
            (Fields::Only(names), Keeps::AllBut(_)) => Fields::Only(names.clone()),
            (Fields::Only(names), keeps) => {
                let kept = names.iter().filter(|name| keeps.keeps(name));
                Fields::Only(std::sync::Arc::new(kept.cloned().collect()))
            }
        };
        // The sort key goes with the row through stages that keep rows apart.
        let keeps_rows = matches!(stage.keeps, Keeps::AllBut(_)) || stage.one_to_one;
        super::Needed {
            fields: stage.reads.union(&passed),
            sort_key: stage.sort_key || (self.sort_key && keeps_rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Needed;
    use super::*;

    fn only(names: &[&str]) -> Fields {
        Fields::of_paths(names.iter().copied())
    }

    #[test]
    fn what_is_needed_before_a_stage() {
        let behind = |fields: Fields| Needed { fields, sort_key: false };
        let mut unwind = FieldUse::passing();
        unwind.reads = only(&["tags"]);
        unwind.keeps = Keeps::all_but(["tags"]);
        assert_eq!(behind(only(&["k"])).before(&unwind).fields, only(&["k", "tags"]));
        assert_eq!(behind(Fields::All).before(&unwind).fields, Fields::All);

        let mut group = FieldUse::passing();
        group.reads = only(&["k", "v"]);
        group.keeps = Keeps::nothing();
        assert_eq!(behind(Fields::All).before(&group).fields, only(&["k", "v"]));
        assert_eq!(behind(only(&["_id"])).before(&group).fields, only(&["k", "v"]));

        let mut set = FieldUse::passing();
        set.reads = only(&["x"]);
        set.keeps = Keeps::all_but(["sum"]);
        assert_eq!(behind(only(&["sum", "y"])).before(&set).fields, only(&["sum", "x", "y"]));

        let mut project = FieldUse::passing();
        project.reads = only(&["x"]);
        project.keeps = Keeps::Only(BTreeSet::from(["y".to_owned()]));
        assert_eq!(behind(only(&["sum", "y"])).before(&project).fields, only(&["x", "y"]));
    }
}
