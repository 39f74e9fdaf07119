//! The schema rules that a document violates, for the details of a validation failure.
//!
//! Rules are walked together with their schema document, which has the original keywords.

use super::eval::{self, equal_unordered};
use super::{Additional, Dependency, Items, Rules, Schema};
use crate::type_set::TypeSet;
use kauri_base::{Result, work};
use kauri_bson::{ArrayWriter, Doc, DocWriter, Elem, Value};

/// Larger details are left out, because they go into an error reply. A list of them is truncated at this size.
pub(crate) const DETAILS_BYTES_MAX: usize = 1024 * 1024;
/// Larger values are not shown.
pub(crate) const VALUE_BYTES_MAX: usize = 64 * 1024;

impl Schema {
    /// Writes the details of why the document does not obey.
    pub(crate) fn explain(&self, doc: Doc<'_>, out: &mut DocWriter<'_>) -> Result<()> {
        let source = self.source.as_doc();
        out.put("operatorName", "$jsonSchema");
        put_annotations(source, out);
        let mut broken = Broken { rules: out.array("schemaRulesNotSatisfied") };
        broken.all(&self.rules, source, &Value::from(doc))
    }
}

fn put_annotations(source: Doc<'_>, out: &mut DocWriter<'_>) {
    for name in ["title", "description"] {
        if let Some(text) = source.get(name) {
            out.put_elem(text);
        }
    }
}

impl Rules {
    /// What is said of a value that breaks this keyword, one that looks at the value alone.
    fn broken_reason(&self, keyword: &str, value: &Value<'_>) -> Result<Option<&'static str>> {
        let (holds, reason) = match keyword {
            "type" | "bsonType" => {
                let among = |types: TypeSet| value.ty().is_none_or(|ty| types.contains(ty));
                (self.types.is_none_or(among), "type did not match")
            }
            "enum" => {
                let has = |v: &Vec<Value<'_>>| v.iter().any(|v| equal_unordered(v, value));
                (self.values.as_ref().is_none_or(has), "value was not found in enum")
            }
            "pattern" => match (&self.string.pattern, value) {
                (Some(regex), Value::String(text)) => {
                    (regex.is_match(text)?, "regular expression did not match")
                }
                (Some(_), text) if text.string_bytes().is_some() => {
                    (false, "regular expression did not match")
                }
                _ => return Ok(None),
            },
            "minimum" | "maximum" | "multipleOf" => self.number_holds(keyword, value),
            _ => self.size_holds(keyword, value)?,
        };
        Ok((!holds).then_some(reason))
    }

    fn number_holds(&self, keyword: &str, value: &Value<'_>) -> (bool, &'static str) {
        let Some(number) = value.as_number() else { return (true, "") };
        match keyword {
            "minimum" => (self.number.reaches_minimum(value), "comparison failed"),
            "maximum" => (self.number.keeps_maximum(value), "comparison failed"),
            _ => (
                self.number.is_multiple(number),
                "considered value is not a multiple of the specified value",
            ),
        }
    }

    fn size_holds(&self, keyword: &str, value: &Value<'_>) -> Result<(bool, &'static str)> {
        let length = "specified string length was not satisfied";
        let count = "array did not match specified length";
        let properties = "specified number of properties was not satisfied";
        let (string, array, object) = (&self.string, &self.array, &self.object);
        let text = value.string_bytes().map(eval::length);
        let (size, min, max, reason) = match (keyword, value) {
            ("minLength", _) if text.is_some() => {
                (text.unwrap_or_default(), string.length_min, None, length)
            }
            ("maxLength", _) if text.is_some() => {
                (text.unwrap_or_default(), None, string.length_max, length)
            }
            ("minItems", Value::Array(v)) => {
                (v.iter().count() as u64, array.count_min, None, count)
            }
            ("maxItems", Value::Array(v)) => {
                (v.iter().count() as u64, None, array.count_max, count)
            }
            ("minProperties", Value::Document(v)) => {
                (v.iter().count() as u64, object.count_min, None, properties)
            }
            ("maxProperties", Value::Document(v)) => {
                (v.iter().count() as u64, None, object.count_max, properties)
            }
            ("uniqueItems", Value::Array(v)) => {
                let unique = !array.unique || !eval::has_duplicates(v.as_doc())?;
                return Ok((unique, "found a duplicate item"));
            }
            _ => return Ok((true, "")),
        };
        Ok((eval::within(size, min, max), reason))
    }
}

/// The list of broken rules being written.
struct Broken<'w> {
    rules: ArrayWriter<'w>,
}

fn put_considered(rule: &mut DocWriter<'_>, value: &Value<'_>) {
    let size = match value {
        Value::Document(doc) | Value::Array(doc) => doc.as_bytes().len(),
        Value::String(text) => text.len(),
        Value::Binary { bytes, .. } | Value::NotUtf8 { bytes, .. } => bytes.len(),
        _ => 0,
    };
    if size <= VALUE_BYTES_MAX {
        rule.put_value("consideredValue", value);
    }
}

/// Below which keyword something lies in the schema document.
fn below<'d>(source: Doc<'d>, keyword: &str, name: &str) -> Doc<'d> {
    let inner = source.get(keyword).and_then(Elem::as_doc);
    inner.and_then(|d| d.get(name)).and_then(Elem::as_doc).unwrap_or(Doc::EMPTY)
}

fn under<'d>(source: Doc<'d>, keyword: &str) -> Doc<'d> {
    source.get(keyword).and_then(Elem::as_doc).unwrap_or(Doc::EMPTY)
}

impl Broken<'_> {
    /// Adds what the value breaks of these rules.
    fn all(&mut self, rules: &Rules, source: Doc<'_>, value: &Value<'_>) -> Result<()> {
        work::check_stack()?;
        for keyword in source {
            if self.rules.len() > DETAILS_BYTES_MAX {
                break;
            }
            let name = keyword.key();
            // One keyword at a time: the rules that it alone makes.
            match name {
                "properties"
                | "patternProperties"
                | "additionalProperties"
                | "dependencies"
                | "required" => {
                    if let Value::Document(doc) = value {
                        self.object(rules, source, keyword, doc.as_doc())?;
                    }
                }
                "items" | "additionalItems" => {
                    if let Value::Array(list) = value {
                        self.array(rules, source, name, list.as_doc())?;
                    }
                }
                "allOf" | "anyOf" | "oneOf" | "not" => {
                    self.combination(rules, source, name, value)?;
                }
                _ => self.simple(rules, keyword, value)?,
            }
        }
        Ok(())
    }

    /// A keyword that looks at the value alone.
    fn simple(&mut self, rules: &Rules, keyword: Elem<'_>, value: &Value<'_>) -> Result<()> {
        let Some(reason) = rules.broken_reason(keyword.key(), value)? else { return Ok(()) };
        let mut rule = self.rule(keyword);
        rule.put("reason", reason);
        match (keyword.key(), value) {
            ("minProperties" | "maxProperties", Value::Document(doc)) => {
                rule.put("numberOfProperties", doc.as_doc().count() as i32);
            }
            ("type" | "bsonType", value) => {
                put_considered(&mut rule, value);
                rule.put("consideredType", value.type_name());
            }
            _ => put_considered(&mut rule, value),
        }
        Ok(())
    }

    /// Begins a broken rule with the keyword as it was written.
    fn rule(&mut self, keyword: Elem<'_>) -> DocWriter<'_> {
        let mut rule = self.rules.document();
        rule.put("operatorName", keyword.key());
        rule.document("specifiedAs").put_elem(keyword);
        rule
    }

    fn object(
        &mut self,
        rules: &Rules,
        source: Doc<'_>,
        keyword: Elem<'_>,
        doc: Doc<'_>,
    ) -> Result<()> {
        let object = &rules.object;
        match keyword.key() {
            "required" => {
                let missing = |n: &&String| doc.get(n).is_none();
                if object.required.iter().any(|n| missing(&n)) {
                    let mut rule = self.rule(keyword);
                    let mut names = rule.array("missingProperties");
                    object.required.iter().filter(missing).for_each(|n| names.push(n.as_str()));
                }
                Ok(())
            }
            "properties" => self.properties(rules, source, doc),
            "patternProperties" => self.patterns(rules, source, doc),
            "additionalProperties" => self.additional_properties(rules, keyword, doc),
            _ => self.dependencies(rules, source, doc),
        }
    }

    fn properties(&mut self, rules: &Rules, source: Doc<'_>, doc: Doc<'_>) -> Result<()> {
        let mut broken = Vec::new();
        for (name, rules) in &rules.object.properties {
            if let Some(elem) = doc.get(name)
                && !rules.allow(&elem.value())?
            {
                broken.push((name, rules, elem));
            }
        }
        if broken.is_empty() {
            return Ok(());
        }
        let mut rule = self.rules.document();
        rule.put("operatorName", "properties");
        let mut list = rule.array("propertiesNotSatisfied");
        for (name, rules, elem) in broken {
            if list.len() > DETAILS_BYTES_MAX {
                break;
            }
            let mut property = list.document();
            property.put("propertyName", name.as_str());
            let source = below(source, "properties", name);
            put_annotations(source, &mut property);
            let mut details = Broken { rules: property.array("details") };
            details.all(rules, source, &elem.value())?;
        }
        Ok(())
    }

    fn patterns(&mut self, rules: &Rules, source: Doc<'_>, doc: Doc<'_>) -> Result<()> {
        let mut broken = Vec::new();
        for (regex, rules) in &rules.object.patterns {
            for elem in doc.ticked() {
                let elem = elem?;
                if regex.is_match(elem.key())? && !rules.allow(&elem.value())? {
                    broken.push((regex, rules, elem));
                }
            }
        }
        if broken.is_empty() {
            return Ok(());
        }
        let mut rule = self.rules.document();
        rule.put("operatorName", "patternProperties");
        let mut list = rule.array("details");
        for (regex, rules, elem) in broken {
            if list.len() > DETAILS_BYTES_MAX {
                break;
            }
            let mut property = list.document();
            property.put("propertyName", elem.key());
            property.put("regexMatched", regex.pattern());
            let source = below(source, "patternProperties", regex.pattern());
            let mut details = Broken { rules: property.array("details") };
            details.all(rules, source, &elem.value())?;
        }
        Ok(())
    }

    fn additional_properties(
        &mut self,
        rules: &Rules,
        keyword: Elem<'_>,
        doc: Doc<'_>,
    ) -> Result<()> {
        let mut extra = Vec::new();
        for elem in doc.ticked() {
            let elem = elem?;
            if !rules.object.names(elem.key())? {
                extra.push(elem);
            }
        }
        match &rules.object.additional {
            Some(Additional::Allowed(false)) if !extra.is_empty() => {
                let mut rule = self.rule(keyword);
                let mut names = rule.array("additionalProperties");
                extra.iter().for_each(|e| names.push(e.key()));
            }
            Some(Additional::Rules(rules)) => {
                for elem in extra {
                    if rules.allow(&elem.value())? {
                        continue;
                    }
                    let mut rule = self.rules.document();
                    rule.put("operatorName", keyword.key());
                    rule.put(
                        "reason",
                        "at least one additional property did not match the subschema",
                    );
                    rule.put("failingProperty", elem.key());
                    let mut details = Broken { rules: rule.array("details") };
                    let source = keyword.as_doc().unwrap_or(Doc::EMPTY);
                    return details.all(rules, source, &elem.value());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn dependencies(&mut self, rules: &Rules, source: Doc<'_>, doc: Doc<'_>) -> Result<()> {
        let mut failing = Vec::new();
        for (name, dependency) in &rules.object.dependencies {
            if doc.get(name).is_some() && !dependency.holds(doc)? {
                failing.push((name, dependency));
            }
        }
        if failing.is_empty() {
            return Ok(());
        }
        let mut rule = self.rules.document();
        rule.put("operatorName", "dependencies");
        let mut list = rule.array("failingDependencies");
        for (name, dependency) in failing {
            if list.len() > DETAILS_BYTES_MAX {
                break;
            }
            let mut entry = list.document();
            entry.put("conditionalProperty", name.as_str());
            match dependency {
                Dependency::Properties(names) => {
                    let mut missing = entry.array("missingProperties");
                    let absent = names.iter().filter(|n| doc.get(n).is_none());
                    absent.for_each(|n| missing.push(n.as_str()));
                }
                Dependency::Rules(rules) => {
                    let mut details = Broken { rules: entry.array("details") };
                    let source = below(source, "dependencies", name);
                    details.all(rules, source, &Value::from(doc))?;
                }
            }
        }
        Ok(())
    }

    fn array(
        &mut self,
        rules: &Rules,
        source: Doc<'_>,
        keyword: &str,
        list: Doc<'_>,
    ) -> Result<()> {
        let places = match &rules.array.items {
            Items::ByPosition(schemas) => schemas.len(),
            _ => usize::MAX,
        };
        for (index, elem) in list.iter().enumerate() {
            let beyond = index >= places;
            if beyond != (keyword == "additionalItems") {
                continue;
            }
            let (inner, source) = match (&rules.array.items, &rules.array.additional) {
                (Items::Each(rules), _) => (&**rules, under(source, "items")),
                (Items::ByPosition(schemas), _) if !beyond => match schemas.get(index) {
                    Some(rules) => (rules, below(source, "items", &index.to_string())),
                    None => continue,
                },
                (Items::ByPosition(_), Some(Additional::Rules(rules))) => {
                    (&**rules, under(source, "additionalItems"))
                }
                (Items::ByPosition(_), Some(Additional::Allowed(false))) => {
                    let Some(keyword) = source.get(keyword) else { return Ok(()) };
                    let mut rule = self.rule(keyword);
                    rule.put("reason", "found additional items");
                    let mut items = rule.array("additionalItems");
                    list.iter().skip(places).for_each(|e| items.push_elem(e));
                    return Ok(());
                }
                _ => continue,
            };
            if inner.allow(&elem.value())? {
                continue;
            }
            let mut rule = self.rules.document();
            rule.put("operatorName", keyword);
            rule.put("reason", "At least one item did not match the sub-schema");
            rule.put("itemIndex", index as i32);
            let mut details = Broken { rules: rule.array("details") };
            return details.all(inner, source, &elem.value());
        }
        Ok(())
    }

    fn combination(
        &mut self,
        rules: &Rules,
        source: Doc<'_>,
        keyword: &str,
        value: &Value<'_>,
    ) -> Result<()> {
        let schemas: &[Rules] = match keyword {
            "allOf" => &rules.all_of,
            "anyOf" => rules.any_of.as_deref().unwrap_or_default(),
            "oneOf" => rules.one_of.as_deref().unwrap_or_default(),
            _ => {
                if let Some(not) = &rules.not
                    && not.allow(value)?
                {
                    let mut rule = self.rules.document();
                    rule.put("operatorName", "not");
                    rule.put("reason", "child expression matched");
                }
                return Ok(());
            }
        };
        let mut allowing = Vec::new();
        for rules in schemas {
            allowing.push(rules.allow(value)?);
        }
        let count = allowing.iter().filter(|a| **a).count();
        let holds = match keyword {
            "allOf" => count == schemas.len(),
            "anyOf" => count > 0,
            _ => count == 1,
        };
        if holds {
            return Ok(());
        }
        let mut rule = self.rules.document();
        rule.put("operatorName", keyword);
        if keyword == "oneOf" && count > 1 {
            rule.put("reason", "more than one subschema matched");
            let mut indexes = rule.array("matchingSchemaIndexes");
            let matching = allowing.iter().enumerate().filter(|(_, allowed)| **allowed);
            matching.for_each(|(index, _)| indexes.push(index as i32));
            return Ok(());
        }
        let mut list = rule.array("schemasNotSatisfied");
        for (index, rules) in schemas.iter().enumerate() {
            if allowing.get(index) == Some(&true) || list.len() > DETAILS_BYTES_MAX {
                continue;
            }
            let mut entry = list.document();
            entry.put("index", index as i32);
            let source = below(source, keyword, &index.to_string());
            let mut details = Broken { rules: entry.array("details") };
            details.all(rules, source, value)?;
        }
        Ok(())
    }
}
