//! The registry of operators: name, number of arguments, parser and evaluator of each.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::{
    accumulate, arithmetic, array, binding, bitwise, boolean, compare, conditional, convert, date,
    date_math, date_text, literal, misc, object, regex, set, sort, string, trigonometry, types,
};
use crate::parse::{Parser, parse_list};
use kauri_base::Result;
use kauri_bson::Value;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The number of arguments of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arity {
    Any,
    Exactly(usize),
    Between(usize, usize),
}

pub(crate) type ParseFn = fn(&mut Parser<'_>, &'static Op, &Value<'_>) -> Result<Node>;
pub(crate) type PrepareFn = fn(&mut Call) -> Result<()>;
pub(crate) type EvalFn = for<'t> fn(&'t Call, Env<'t>) -> Result<Value<'t>>;

/// An operator.
pub(crate) struct Op {
    pub name: &'static str,
    pub arity: Arity,
    pub parse: ParseFn,
    pub eval: EvalFn,
    /// Called once the arguments are folded.
    pub prepare: Option<PrepareFn>,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn op(name: &'static str, arity: Arity, eval: EvalFn) -> Op {
    Op { name, arity, parse: parse_list, eval, prepare: None }
}

const fn custom(name: &'static str, parse: ParseFn, eval: EvalFn) -> Op {
    Op { name, arity: Arity::Any, parse, eval, prepare: None }
}

const fn prepared(name: &'static str, parse: ParseFn, eval: EvalFn, prepare: PrepareFn) -> Op {
    Op { name, arity: Arity::Any, parse, eval, prepare: Some(prepare) }
}

/// For operators that are parsed into something other than a call.
const fn parsed(name: &'static str, parse: ParseFn) -> Op {
    Op { name, arity: Arity::Any, parse, eval: literal::literal, prepare: None }
}

use Arity::{Any, Between, Exactly};

static OPS: &[Op] = &[
    parsed("$literal", literal::parse_literal),
    parsed("$const", literal::parse_literal),
    parsed("$let", binding::parse_let),
    parsed("$map", binding::parse_map),
    parsed("$filter", binding::parse_filter),
    parsed("$reduce", binding::parse_reduce),
    op("$and", Any, boolean::and),
    op("$or", Any, boolean::or),
    op("$not", Exactly(1), boolean::not),
    op("$cmp", Exactly(2), compare::cmp),
    op("$eq", Exactly(2), compare::eq),
    op("$ne", Exactly(2), compare::ne),
    op("$gt", Exactly(2), compare::gt),
    op("$gte", Exactly(2), compare::gte),
    op("$lt", Exactly(2), compare::lt),
    op("$lte", Exactly(2), compare::lte),
    Op {
        name: "$cond",
        arity: Exactly(3),
        parse: conditional::parse_cond,
        eval: conditional::cond,
        prepare: None,
    },
    custom("$ifNull", conditional::parse_if_null, conditional::if_null),
    custom("$switch", conditional::parse_switch, conditional::switch),
    op("$abs", Exactly(1), arithmetic::abs),
    op("$add", Any, arithmetic::add),
    op("$ceil", Exactly(1), arithmetic::ceil),
    op("$divide", Exactly(2), arithmetic::divide),
    op("$exp", Exactly(1), arithmetic::exp),
    op("$floor", Exactly(1), arithmetic::floor),
    op("$ln", Exactly(1), arithmetic::ln),
    op("$log", Exactly(2), arithmetic::log),
    op("$log10", Exactly(1), arithmetic::log10),
    op("$mod", Exactly(2), arithmetic::modulo),
    op("$multiply", Any, arithmetic::multiply),
    op("$pow", Exactly(2), arithmetic::pow),
    op("$round", Between(1, 2), arithmetic::round),
    custom("$sigmoid", arithmetic::parse_sigmoid, arithmetic::sigmoid),
    op("$sqrt", Exactly(1), arithmetic::sqrt),
    op("$subtract", Exactly(2), arithmetic::subtract),
    op("$trunc", Between(1, 2), arithmetic::trunc),
    op("$arrayElemAt", Exactly(2), array::elem_at),
    op("$arrayToObject", Exactly(1), array::array_to_object),
    op("$concatArrays", Any, array::concat_arrays),
    op("$first", Exactly(1), array::first),
    Op {
        name: "$in",
        arity: Exactly(2),
        parse: parse_list,
        eval: array::contains,
        prepare: Some(array::prepare_contains),
    },
    op("$indexOfArray", Between(2, 4), array::index_of),
    op("$last", Exactly(1), array::last),
    op("$objectToArray", Exactly(1), array::object_to_array),
    op("$range", Between(2, 3), array::range),
    op("$reverseArray", Exactly(1), array::reverse),
    op("$size", Exactly(1), array::size),
    op("$slice", Between(2, 3), array::slice),
    custom("$sortArray", sort::parse_sort_array, sort::sort_array),
    custom("$zip", array::parse_zip, array::zip),
    op("$avg", Any, accumulate::avg),
    op("$max", Any, accumulate::max),
    op("$min", Any, accumulate::min),
    op("$sum", Any, accumulate::sum),
    op("$stdDevPop", Any, accumulate::std_dev_pop),
    op("$stdDevSamp", Any, accumulate::std_dev_samp),
    op("$mergeObjects", Any, accumulate::merge_objects),
    custom("$firstN", accumulate::parse_n, accumulate::n_of_array),
    custom("$lastN", accumulate::parse_n, accumulate::n_of_array),
    custom("$maxN", accumulate::parse_n, accumulate::n_of_array),
    custom("$minN", accumulate::parse_n, accumulate::n_of_array),
    custom("$median", accumulate::parse_percentile, accumulate::percentile),
    custom("$percentile", accumulate::parse_percentile, accumulate::percentile),
    prepared("$year", date::parse_part, date::year, date::prepare_part),
    prepared("$month", date::parse_part, date::month, date::prepare_part),
    prepared("$dayOfMonth", date::parse_part, date::day_of_month, date::prepare_part),
    prepared("$dayOfWeek", date::parse_part, date::day_of_week, date::prepare_part),
    prepared("$dayOfYear", date::parse_part, date::day_of_year, date::prepare_part),
    prepared("$hour", date::parse_part, date::hour, date::prepare_part),
    prepared("$minute", date::parse_part, date::minute, date::prepare_part),
    prepared("$second", date::parse_part, date::second, date::prepare_part),
    prepared("$millisecond", date::parse_part, date::millisecond, date::prepare_part),
    prepared("$week", date::parse_part, date::week, date::prepare_part),
    prepared("$isoDayOfWeek", date::parse_part, date::iso_day_of_week, date::prepare_part),
    prepared("$isoWeek", date::parse_part, date::iso_week, date::prepare_part),
    prepared("$isoWeekYear", date::parse_part, date::iso_week_year, date::prepare_part),
    prepared("$dateToParts", date::parse_to_parts, date::to_parts, date::prepare_to_parts),
    prepared("$dateFromParts", date::parse_from_parts, date::from_parts, date::prepare_from_parts),
    prepared(
        "$dateToString",
        date_text::parse_to_string,
        date_text::to_string,
        date_text::prepare_to_string,
    ),
    prepared(
        "$dateFromString",
        date_text::parse_from_string,
        date_text::from_string,
        date_text::prepare_from_string,
    ),
    prepared("$dateAdd", date_math::parse_add, date_math::add, date_math::prepare_add),
    prepared("$dateSubtract", date_math::parse_add, date_math::add, date_math::prepare_add),
    prepared("$dateDiff", date_math::parse_diff, date_math::diff, date_math::prepare_diff),
    prepared("$dateTrunc", date_math::parse_trunc, date_math::trunc, date_math::prepare_trunc),
    op("$allElementsTrue", Exactly(1), set::all_true),
    op("$anyElementTrue", Exactly(1), set::any_true),
    op("$setDifference", Exactly(2), set::difference),
    prepared("$setEquals", set::parse_equals, set::equals, set::prepare_equals),
    op("$setIntersection", Any, set::intersection),
    op("$setIsSubset", Exactly(2), set::is_subset),
    op("$setUnion", Any, set::union),
    prepared("$getField", object::parse_get, object::get_field, object::prepare_get),
    custom("$setField", object::parse_set, object::set_field),
    custom("$unsetField", object::parse_set, object::set_field),
    op("$bitAnd", Any, bitwise::and),
    op("$bitNot", Exactly(1), bitwise::not),
    op("$bitOr", Any, bitwise::or),
    op("$bitXor", Any, bitwise::xor),
    op("$binarySize", Exactly(1), misc::binary_size),
    op("$bsonSize", Exactly(1), misc::bson_size),
    custom("$rand", misc::parse_rand, misc::rand),
    custom("$meta", misc::parse_meta, misc::meta),
    op("$toHashedIndexKey", Exactly(1), misc::to_hashed_index_key),
    op("$tsSecond", Exactly(1), misc::ts_second),
    op("$tsIncrement", Exactly(1), misc::ts_increment),
    custom("$function", misc::parse_javascript, misc::none),
    custom("$convert", convert::parse_convert, convert::convert_call),
    custom("$toBool", convert::parse_short, convert::short),
    custom("$toDate", convert::parse_short, convert::short),
    custom("$toDecimal", convert::parse_short, convert::short),
    custom("$toDouble", convert::parse_short, convert::short),
    custom("$toInt", convert::parse_short, convert::short),
    custom("$toLong", convert::parse_short, convert::short),
    custom("$toObjectId", convert::parse_short, convert::short),
    custom("$toString", convert::parse_short, convert::short),
    custom("$toUUID", convert::parse_short, convert::short),
    op("$acos", Exactly(1), trigonometry::acos),
    op("$acosh", Exactly(1), trigonometry::acosh),
    op("$asin", Exactly(1), trigonometry::asin),
    op("$asinh", Exactly(1), trigonometry::asinh),
    op("$atan", Exactly(1), trigonometry::atan),
    op("$atanh", Exactly(1), trigonometry::atanh),
    op("$cos", Exactly(1), trigonometry::cos),
    op("$cosh", Exactly(1), trigonometry::cosh),
    op("$degreesToRadians", Exactly(1), trigonometry::degrees_to_radians),
    op("$radiansToDegrees", Exactly(1), trigonometry::radians_to_degrees),
    op("$sin", Exactly(1), trigonometry::sin),
    op("$sinh", Exactly(1), trigonometry::sinh),
    op("$tan", Exactly(1), trigonometry::tan),
    op("$tanh", Exactly(1), trigonometry::tanh),
    op("$atan2", Exactly(2), trigonometry::atan2),
    op("$type", Exactly(1), types::type_of),
    op("$isNumber", Exactly(1), types::is_number),
    op("$isArray", Exactly(1), types::is_array),
    op("$concat", Any, string::concat),
    op("$indexOfBytes", Between(2, 4), string::index_of_bytes),
    op("$indexOfCP", Between(2, 4), string::index_of_code_points),
    custom("$ltrim", string::parse_trim, string::trim),
    custom("$rtrim", string::parse_trim, string::trim),
    custom("$trim", string::parse_trim, string::trim),
    custom("$replaceOne", string::parse_replace, string::replace),
    custom("$replaceAll", string::parse_replace, string::replace),
    op("$split", Exactly(2), string::split),
    op("$strLenBytes", Exactly(1), string::length_bytes),
    op("$strLenCP", Exactly(1), string::length_code_points),
    op("$strcasecmp", Exactly(2), string::strcasecmp),
    op("$substr", Exactly(3), string::substr_bytes),
    op("$substrBytes", Exactly(3), string::substr_bytes),
    op("$substrCP", Exactly(3), string::substr_code_points),
    op("$toLower", Exactly(1), string::to_lower),
    op("$toUpper", Exactly(1), string::to_upper),
    prepared("$regexFind", regex::parse_regex, regex::find, regex::prepare),
    prepared("$regexFindAll", regex::parse_regex, regex::find_all, regex::prepare),
    prepared("$regexMatch", regex::parse_regex, regex::matches, regex::prepare),
];

/// The names of all operators.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPS.iter().map(|op| op.name)
}

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<&'static Op> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Op>> =
        LazyLock::new(|| OPS.iter().map(|op| (op.name, op)).collect());
    BY_NAME.get(name).copied()
}

/// Operators that fail with other codes when they are evaluated in a `$group`; folding a constant
/// is not that.
static OPS_IN_GROUP: &[Op] = &[
    op("$divide", Exactly(2), arithmetic::divide_in_group),
    op("$mod", Exactly(2), arithmetic::modulo_in_group),
];

/// The operator of this name in a `$group`'s key or an accumulator's argument.
pub(crate) fn find_in_group(name: &str) -> Option<&'static Op> {
    OPS_IN_GROUP.iter().find(|op| op.name == name).or_else(|| find(name))
}
