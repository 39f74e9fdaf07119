//! Tables of expressions: an expression, a document, the result or the error code. `fuzz` adds random
//! expressions.

mod accumulators;
mod arithmetic;
mod arrays;
mod bounds;
mod dates;
mod fuzz;
mod hostile;
mod not_utf8;
mod shell;
mod structure;
mod texts;
mod types;

use kauri_base::clock::SeededRandom;
use kauri_bson::Value;
use kauri_expr::{EvalCx, Expression, ParseCx};

/// The expected result of a case: a value in the shell's notation, or an error's code.
pub enum Expect {
    Value(&'static str),
    Code(i32),
}

impl From<&'static str> for Expect {
    fn from(text: &'static str) -> Expect {
        Expect::Value(text)
    }
}

impl From<i32> for Expect {
    fn from(code: i32) -> Expect {
        Expect::Code(code)
    }
}

/// `case!("{$add: ['$a', 1]}", "{a: 2}" => "3")`; the default document is empty.
#[macro_export]
macro_rules! cases {
    ($($spec:literal $(, $doc:literal)? => $expect:expr;)*) => {{
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut doc = "{}";
            $(doc = $doc;)?
            $crate::check($spec, doc, $crate::Expect::from($expect));
        )*
    }};
}

/// Evaluates and compares: types and representation are significant, NaN equals NaN.
pub fn check(spec: &str, doc: &str, expect: Expect) {
    let random = SeededRandom::new(1);
    let cx = EvalCx { now_ms: 1_700_000_000_123, random: Some(&random), ..EvalCx::default() };
    let (spec_value, doc) = (shell::value(spec), shell::document(doc));
    let parsed = Expression::parse(&spec_value, &ParseCx::default());
    let result = match &parsed {
        Ok(expression) => expression.eval(&cx, doc.as_doc()).map(Value::into_owned),
        Err(error) => Err(error.clone()),
    };
    match (result, expect) {
        (Ok(found), Expect::Value(text)) => {
            let expected = shell::value(text);
            // Debug output distinguishes types, signs of zeros and digits of decimals.
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{spec} of {doc:?}");
        }
        (Err(error), Expect::Code(code)) => {
            assert_eq!(error.code().number(), code, "{spec} of {doc:?}: {error:?}");
        }
        (found, Expect::Value(text)) => panic!("{spec} of {doc:?}: {found:?} for {text}"),
        (found, Expect::Code(code)) => panic!("{spec} of {doc:?}: {found:?} for error {code}"),
    }
}
