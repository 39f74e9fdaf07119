//! Stages with many fields: the analysis of their fields takes linear work.

use kauri_base::probe::assert_linear;
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_catalog::Namespace;
use kauri_expr::VariableScope;
use kauri_query::pipeline::{ParseCx, Place, parse};

fn many(count: u32, of: impl Fn(u32) -> Value<'static>) -> DocBuf {
    DocBuf::build(|out| {
        (0..count).for_each(|at| out.put_value(&format!("f{at}"), &of(at)));
    })
}

#[test]
fn the_field_analysis_of_stages_is_linear() {
    let ns = Namespace::parse("test.c").unwrap();
    let cx = ParseCx::new(&ns, VariableScope::new(), Place::Command);
    let path = |at: u32| Value::from(format!("$p{at}"));
    let sum = |at: u32| Value::from(doc! { "$sum" => path(at) });
    let check = |name: &str, of: &dyn Fn(u32) -> DocBuf| {
        assert_linear(name, 1000, |size| {
            let stage = DocBuf::build(|out| out.put(name, of(size)));
            let parsed = parse::parse(array![stage].as_array().unwrap_or(Doc::EMPTY), &cx)?;
            parsed.stages.iter().for_each(|stage| drop(stage.field_use()));
            Ok(())
        });
    };
    check("$group", &|size| {
        DocBuf::build(|out| {
            out.put("_id", Value::Null);
            out.put_all(many(size, sum).as_doc());
        })
    });
    check("$addFields", &|size| many(size, path));
    check("$project", &|size| many(size, path));
    check("$bucketAuto", &|size| {
        doc! { "groupBy" => "$a", "buckets" => 3, "output" => many(size, sum) }
    });
}
