//! Names of databases and collections, and the rules for them (manual, "Naming Restrictions").

use kauri_base::{Error, ErrorCode, Result, limits};
use std::fmt;

/// A full collection name, `database.collection`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    full: Box<str>,
    dot: usize,
}

impl Namespace {
    /// A collection of a database; both names are checked.
    pub fn new(database: &str, collection: &str) -> Result<Namespace> {
        check_database_name(database)?;
        let valid =
            !collection.is_empty() && !collection.starts_with('.') && !collection.contains('\0');
        if !valid {
            return Err(invalid(database, collection));
        }
        Ok(Namespace {
            full: format!("{database}.{collection}").into_boxed_str(),
            dot: database.len(),
        })
    }

    /// Splits `database.collection` at the first dot.
    pub fn parse(full: &str) -> Result<Namespace> {
        match full.split_once('.') {
            Some((database, collection)) => Namespace::new(database, collection),
            None => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{full}'"),
            )),
        }
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.full[..self.dot]
    }

    /// The collection's name.
    pub fn collection(&self) -> &str {
        &self.full[self.dot + 1..]
    }

    /// `database.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Whether users may not create or write it (`system.…`, apart from those that are theirs).
    pub fn is_system(&self) -> bool {
        self.collection().starts_with("system.")
    }

    /// Whether the collection has an index on `_id`: that of the profiler has none, and the server alone writes it.
    pub fn has_id_index(&self) -> bool {
        self.collection() != "system.profile"
    }

    /// Fails if nothing may have so long a name.
    pub fn check_length(&self) -> Result<()> {
        if self.full.len() > limits::NAMESPACE_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!(
                    "Fully qualified namespace is too long. Namespace: {self} Max: {}",
                    limits::NAMESPACE_BYTES_MAX
                ),
            ));
        }
        Ok(())
    }

    /// Fails where a user may not create a collection of this name.
    pub fn check_creatable(&self) -> Result<()> {
        let name = self.collection();
        if name.contains('$') {
            return Err(invalid(self.database(), name));
        }
        self.check_length()?;
        if name.starts_with("system.buckets.") {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                format!("a bucket collection is only made with its time series: {self}"),
            ));
        }
        // `system.views` isn't among them: the catalog keeps views, and nothing else may look like
        // one.
        let allowed_system = ["system.js", "system.profile", "system.users"];
        if self.is_system() && !allowed_system.contains(&name) {
            return Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid system namespace: {self}"),
            ));
        }
        Ok(())
    }
}

/// Fails if this cannot be a database's name.
pub fn check_database_name(name: &str) -> Result<()> {
    let valid = !name.is_empty()
        && name.len() <= limits::DATABASE_NAME_BYTES_MAX
        && !name.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    if valid || name == "$external" {
        return Ok(());
    }
    Err(Error::new(ErrorCode::InvalidNamespace, format!("Invalid database name: '{name}'")))
}

fn invalid(database: &str, collection: &str) -> Error {
    Error::new(
        ErrorCode::InvalidNamespace,
        format!("Invalid namespace specified '{database}.{collection}'"),
    )
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_the_first_dot_and_checked() {
        let ns = Namespace::parse("db.a.b").unwrap();
        assert_eq!((ns.database(), ns.collection()), ("db", "a.b"));
        for bad in ["db", "db.", ".a", "d b.a", "d$b.a", "db..a", "a/b.c"] {
            let error = Namespace::parse(bad).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidNamespace, "{bad}");
        }
        let long = |n: usize| Namespace::parse(&format!("db.{}", "x".repeat(n))).unwrap();
        assert!(long(252).check_creatable().is_ok());
        assert!(long(253).check_creatable().is_err());
        assert!(Namespace::new("db", "a$b").unwrap().check_creatable().is_err());
        assert!(Namespace::new("db", "system.foo").unwrap().check_creatable().is_err());
    }
}
