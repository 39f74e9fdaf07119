//! Rejected and accepted requests, with MongoDB's codes and messages.

use crate::common::{TestServer, at, first_batch, number, show, text, write_errors};
use kauri_bson::{DocBuf, Value, array, doc};

#[test]
fn an_upsert_has_no_expression_in_its_filter() {
    const TEXT: &str = "$expr is not allowed in the query predicate for an upsert";
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1 }]);
    let expr = |value: i32| doc! { "$expr" => doc! { "$eq" => array!["$a", value] } };
    let filters = [expr(1), expr(2), doc! { "$and" => array![doc! { "_id" => 1 }, expr(1)] }];
    let set = doc! { "$set" => doc! { "b" => 1 } };
    for filter in &filters {
        for upsert in [true, false] {
            let statement = doc! { "q" => filter, "u" => &set, "upsert" => upsert };
            let update = doc! { "update" => "c", "updates" => array![statement] };
            let modify = doc! { "findAndModify" => "c", "query" => filter, "update" => &set, "upsert" => upsert };
            let operation = doc! { "update" => 0, "filter" => filter, "updateMods" => &set,
            "upsert" => upsert };
            let bulk = doc! { "bulkWrite" => 1, "ops" => array![operation],
            "nsInfo" => array![doc! { "ns" => "test.c" }] };
            let code = if upsert { 224 } else { 0 };
            let reply = client.ok(update.clone());
            let errors = if upsert { vec![(0, code)] } else { vec![] };
            assert_eq!(write_errors(&reply), errors, "{}", show(&reply));
            let reply = client.admin().ok(bulk);
            assert_eq!(number(&reply, "nErrors"), i64::from(upsert), "{}", show(&reply));
            for command in [&modify, &doc! { "explain" => &modify }, &doc! { "explain" => &update }]
            {
                let reply = client.run(command);
                assert_eq!(crate::common::code_of(&reply), code, "{}", show(&reply));
                if upsert {
                    assert_eq!(text(&reply, "errmsg"), TEXT);
                }
            }
        }
    }
    assert_eq!(client.all_ids("c"), [1]);
}

#[test]
fn commands_that_a_standalone_lacks_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    for name in ["replSetGetStatus", "replSetGetConfig", "replSetStepDown", "replSetFreeze"] {
        let reply = client.admin().run(&doc! { name => 1 });
        assert_eq!(number(&reply, "code"), 76, "{}", show(&reply));
        assert_eq!(text(&reply, "codeName"), "NoReplicationEnabled");
        assert_eq!(text(&reply, "errmsg"), "not running with --replSet");
        assert_eq!(client.fails(doc! { name => 1 }), 13);
    }
    assert_eq!(client.admin().fails(doc! { "replSetInitiate" => doc! {} }), 76);
    for name in ["createSearchIndexes", "updateSearchIndex", "dropSearchIndex", "listSearchIndexes"]
    {
        let reply = client.run(&doc! { name => "c" });
        assert_eq!(number(&reply, "code"), 31082, "{}", show(&reply));
        assert_eq!(text(&reply, "codeName"), "SearchNotEnabled");
        assert!(text(&reply, "errmsg").starts_with("Using Atlas Search Database Commands and"));
    }
}

#[test]
fn hello_answers_hello_ok() {
    let test = TestServer::start();
    let client = test.client();
    for name in ["hello", "isMaster", "ismaster"] {
        let reply = client.ok(doc! { name => 1, "helloOk" => true });
        assert_eq!(reply.as_doc().value("helloOk"), Value::Bool(true), "{}", show(&reply));
        for command in [doc! { name => 1 }, doc! { name => 1, "helloOk" => false }] {
            assert!(client.ok(command).as_doc().get("helloOk").is_none());
        }
    }
}

#[test]
fn the_explanation_of_an_aggregate_has_no_write_concern() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let aggregate = doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => doc! {} };
    client.ok(doc! { "explain" => &aggregate });
    let with = |extra: DocBuf| {
        DocBuf::build(|out| {
            out.put_all(aggregate.as_doc());
            out.put_all(extra.as_doc());
        })
    };
    let concern = doc! { "writeConcern" => doc! { "w" => 1 } };
    client.ok(with(concern.clone()));
    let explained = doc! { "explain" => with(concern) };
    let flagged = with(doc! { "writeConcern" => doc! { "w" => 1 }, "explain" => true });
    for command in [explained, flagged] {
        let reply = client.run(&command);
        assert_eq!(number(&reply, "code"), 9, "{}", show(&reply));
        assert!(text(&reply, "errmsg").ends_with("'writeConcern' option"), "{}", show(&reply));
    }
}

#[test]
fn an_index_key_comes_without_a_record_id() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 5 }]);
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    let find = |return_key: bool, record_id: bool| {
        let reply = client.ok(doc! { "find" => "c", "filter" => doc! { "a" => 5 },
        "returnKey" => return_key, "showRecordId" => record_id });
        first_batch(&reply).pop().unwrap()
    };
    assert_eq!(find(true, true), doc! { "a" => 5 });
    assert_eq!(find(true, false), doc! { "a" => 5 });
    assert!(find(false, true).as_doc().get("$recordId").is_some());
}

#[test]
fn create_keeps_auto_index_id_and_refuses_a_collection_without_it() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "with", "autoIndexId" => true });
    client.ok(doc! { "create" => "plain" });
    let options = |name: &str| {
        let list = client.ok(doc! { "listCollections" => 1, "filter" => doc! { "name" => name } });
        at(&first_batch(&list).pop().unwrap(), "options")
    };
    assert_eq!(options("with"), doc! { "autoIndexId" => true });
    assert_eq!(options("plain"), doc! {});
    assert_eq!(client.fails(doc! { "create" => "without", "autoIndexId" => false }), 50001);
}

#[test]
fn a_full_capped_collection_refuses_the_keys_of_the_document_that_would_go() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c", "capped" => true, "size" => 100_000, "max" => 3 });
    let index = doc! { "key" => doc! { "u" => 1 }, "name" => "u_1", "unique" => true };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    for id in 0..3 {
        client.insert("c", [doc! { "_id" => id, "u" => 10 * id }]);
    }
    let insert = |doc: DocBuf| {
        let reply = client.ok(doc! { "insert" => "c", "documents" => array![doc] });
        write_errors(&reply)
    };
    assert_eq!(insert(doc! { "_id" => 0, "u" => 100 }), [(0, 11000)]);
    assert_eq!(insert(doc! { "_id" => 100, "u" => 0 }), [(0, 11000)]);
    let statement = doc! { "q" => doc! { "x" => 1 }, "u" => doc! { "_id" => 0, "x" => 1 },
    "upsert" => true };
    let reply = client.ok(doc! { "update" => "c", "updates" => array![statement] });
    assert_eq!(write_errors(&reply), [(0, 11000)]);
    assert_eq!(client.all_ids("c"), [0, 1, 2]);
    assert_eq!(insert(doc! { "_id" => 3, "u" => 30 }), []);
    assert_eq!(insert(doc! { "_id" => 0, "u" => 0 }), []);
    assert_eq!(client.all_ids("c"), [0, 2, 3]);
    client.validate("c");
}

#[test]
fn a_filter_that_needs_a_scan_is_refused_under_notablescan() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1, "b" => 1 }]);
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    let set = |on: bool| client.admin().ok(doc! { "setParameter" => 1, "notablescan" => on });
    let by_b = doc! { "b" => 1 };
    let stage = doc! { "$match" => &by_b };
    let statement = doc! { "q" => &by_b, "u" => doc! { "$set" => doc! { "c" => 1 } } };
    let scans = [
        doc! { "find" => "c", "filter" => &by_b },
        doc! { "count" => "c", "query" => &by_b },
        doc! { "distinct" => "c", "key" => "b", "query" => &by_b },
        doc! { "aggregate" => "c", "pipeline" => array![&stage], "cursor" => doc! {} },
        doc! { "findAndModify" => "c", "query" => &by_b, "remove" => true },
        doc! { "find" => "c", "filter" => &by_b, "hint" => doc! { "$natural" => 1 } },
    ];
    client.ok(doc! { "create" => "view", "viewOn" => "c", "pipeline" => array![&stage] });
    let aggregate = |stage: DocBuf| {
        doc! { "aggregate" => "c", "pipeline" => array![stage], "cursor" => doc! {} }
    };
    let lookup = |field: &str| {
        doc! { "$lookup" => doc! {
            "from" => "c", "localField" => "_id", "foreignField" => field, "as" => "x",
        } }
    };
    let graph = |field: &str| {
        doc! { "$graphLookup" => doc! {
            "from" => "c", "startWith" => "$b", "connectFromField" => "b",
            "connectToField" => field, "as" => "x",
        } }
    };
    let union = |filter: &DocBuf| {
        let stages = array![doc! { "$match" => filter }];
        doc! { "$unionWith" => doc! { "coll" => "c", "pipeline" => stages } }
    };
    let correlated = |path: &str| {
        let filter = doc! { "$expr" => doc! { "$eq" => array![path, "$$x"] } };
        doc! { "$lookup" => doc! {
            "from" => "c", "let" => doc! { "x" => "$a" }, "as" => "x",
            "pipeline" => array![doc! { "$match" => filter }],
        } }
    };
    // Pipelines planned during execution are rejected in the same way.
    let within = [lookup("b"), graph("b"), union(&by_b), correlated("$b")].map(aggregate);
    let of_views = ["find", "count"].map(|name| doc! { name => "view" });
    let by_a = union(&doc! { "a" => 1 });
    let indexed = [lookup("a"), lookup("_id"), graph("a"), by_a, correlated("$a")].map(aggregate);
    let other = [
        doc! { "find" => "c" },
        doc! { "find" => "c", "filter" => doc! { "a" => 1, "b" => 1 } },
        doc! { "find" => "c", "filter" => doc! { "_id" => 1 } },
        doc! { "find" => "none", "filter" => &by_b },
        doc! { "count" => "c" },
    ];
    set(true);
    for command in within.iter().chain(&of_views) {
        let reply = client.run(command);
        assert_eq!(number(&reply, "code"), 291, "{} -> {}", show(command), show(&reply));
    }
    for command in indexed {
        client.ok(command);
    }
    for command in &scans[..5] {
        let reply = client.run(command);
        assert_eq!(number(&reply, "code"), 291, "{} -> {}", show(command), show(&reply));
        let expected = "No indexed plans available, and running with 'notablescan'";
        assert_eq!(text(&reply, "errmsg"), expected);
    }
    let reply = client.run(&scans[5]);
    assert_eq!(number(&reply, "code"), 291);
    assert!(text(&reply, "errmsg").contains("hint $natural is not allowed"));
    let update = doc! { "update" => "c", "updates" => array![statement] };
    assert_eq!(write_errors(&client.ok(update.clone())), [(0, 291)]);
    for command in other {
        client.ok(command);
    }
    set(false);
    for command in scans.into_iter().filter(|c| c.as_doc().get("remove").is_none()) {
        client.ok(command);
    }
    assert_eq!(write_errors(&client.ok(update)), []);
}

#[test]
fn a_pipeline_update_that_matches_nothing_evaluates_nothing() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let sum = doc! { "$add" => array!["s", 1] };
    let never = doc! { "$cond" => array![false, &sum, 7] };
    let update = |id: i32, value: &DocBuf| {
        let stage = doc! { "$set" => doc! { "a" => value } };
        let statement = doc! { "q" => doc! { "_id" => id }, "u" => array![stage] };
        client.ok(doc! { "update" => "c", "updates" => array![statement] })
    };
    let reply = update(2, &sum);
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (0, vec![]));
    let reply = update(1, &sum);
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (0, vec![(0, 14)]));
    let reply = update(1, &never);
    assert_eq!((number(&reply, "nModified"), write_errors(&reply)), (1, vec![]));
    let stage = doc! { "$set" => doc! { "a" => &sum } };
    let modify = doc! { "findAndModify" => "c", "query" => doc! { "_id" => 2 },
    "update" => array![&stage] };
    client.ok(modify);
    // Elsewhere the constant fails before any document is matched.
    let pipeline = doc! { "aggregate" => "none", "pipeline" => array![stage], "cursor" => doc! {} };
    assert_eq!(client.fails(pipeline), 14);
}

#[test]
fn a_pipeline_update_of_an_unknown_stage_or_operator_fails_its_command() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let good = doc! { "q" => doc! { "_id" => 1 }, "u" => doc! { "$set" => doc! { "a" => 1 } } };
    let update = |stage: DocBuf| {
        let wrong = doc! { "q" => doc! {}, "u" => array![stage] };
        doc! { "update" => "c", "updates" => array![&good, wrong] }
    };
    let operator = doc! { "$set" => doc! { "a" => doc! { "$wrong" => 1 } } };
    assert_eq!(client.fails(update(doc! { "$wrong" => 1 })), 40324);
    assert_eq!(client.fails(update(operator)), 168);
    let found = client.ok(doc! { "find" => "c" });
    assert_eq!(first_batch(&found), [doc! { "_id" => 1 }], "nothing ran");
    // A known stage that updates do not allow fails its statement.
    let reply = client.ok(update(doc! { "$match" => doc! {} }));
    assert_eq!(number(&reply, "n"), 1);
    assert_eq!(write_errors(&reply), [(1, 72)]);
}

#[test]
fn errors_of_running_plans_name_the_command() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..3).map(|id| doc! { "_id" => id, "z" => 1 - id / 2 }));
    let quotient = doc! { "$divide" => array![1, "$z"] };
    let message = |command: &DocBuf| {
        let reply = client.run(command);
        assert_eq!(number(&reply, "code"), 2, "{}", show(&reply));
        text(&reply, "errmsg")
    };
    let stage = doc! { "$project" => doc! { "q" => &quotient } };
    let aggregate = |cursor: DocBuf| {
        doc! { "aggregate" => "c", "pipeline" => array![&stage], "cursor" => cursor }
    };
    let find = doc! { "find" => "c", "projection" => doc! { "q" => &quotient } };
    let aggregated = message(&aggregate(doc! {}));
    let expected = "PlanExecutor error during aggregation :: caused by :: can't $divide by zero";
    assert_eq!(aggregated, expected);
    let expected =
        "Executor error during find command: test.c :: caused by :: can't $divide by zero";
    assert_eq!(message(&find), expected);
    let opened = client.ok(aggregate(doc! { "batchSize" => 1 }));
    let more = doc! { "getMore" => crate::common::cursor_id(&opened), "collection" => "c" };
    let expected = "Executor error during getMore :: caused by :: can't $divide by zero";
    assert_eq!(message(&more), expected);
    let out = doc! { "$out" => "target" };
    let writing =
        doc! { "aggregate" => "c", "pipeline" => array![&stage, out], "cursor" => doc! {} };
    assert_eq!(message(&writing), aggregated);
}

#[test]
fn errors_of_running_writes_name_the_command() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "s" => "x", "z" => 0 }]);
    client.ok(doc! { "create" => "view", "viewOn" => "c", "pipeline" => array![] });
    let message = |command: DocBuf| text(&client.run(&command), "errmsg");
    let change = |update: DocBuf| doc! { "findAndModify" => "c", "update" => update };
    let immutable = doc! { "$set" => doc! { "_id" => 2 } };
    let prefix = "Plan executor error during findAndModify :: caused by :: ";
    assert!(message(change(immutable.clone())).starts_with(prefix));
    let upsert = doc! {
        "findAndModify" => "c", "query" => doc! { "_id" => 7 }, "update" => immutable.clone(),
        "upsert" => true,
    };
    assert!(message(upsert).starts_with(prefix));
    // An invalid command has no plan that could run.
    let wrong = doc! { "$inc" => doc! { "a" => "x" } };
    assert!(!message(change(wrong)).contains("caused by"));
    let hint = doc! { "findAndModify" => "c", "remove" => true, "hint" => "none" };
    assert!(!message(hint).contains("Plan executor"));
    let on_view = doc! { "findAndModify" => "view", "remove" => true };
    assert_eq!(message(on_view), "Namespace test.view is a view, not a collection");
    // An update in MongoDB 8.0 has no such prefix.
    let statement = doc! { "q" => doc! {}, "u" => immutable };
    let reply = client.ok(doc! { "update" => "c", "updates" => array![statement] });
    assert_eq!(write_errors(&reply), [(0, 66)]);
    assert!(!show(&reply).contains("Plan executor"), "{}", show(&reply));
    let failing = doc! { "$expr" => doc! { "$divide" => array![1, "$z"] } };
    let distinct = |name: &'static str| {
        doc! { "distinct" => name, "key" => "a", "query" => failing.clone() }
    };
    let count = |name: &'static str| doc! { "count" => name, "query" => failing.clone() };
    let cause = " :: caused by :: can't $divide by zero";
    let of = |what: &str| format!("{what}{cause}");
    assert_eq!(message(distinct("c")), of("Executor error during distinct command"));
    assert_eq!(message(distinct("view")), of("PlanExecutor error during aggregation"));
    assert_eq!(message(count("c")), "can't $divide by zero");
    assert_eq!(message(count("view")), of("PlanExecutor error during aggregation"));
}

#[test]
fn array_positions_may_have_leading_zeros() {
    let test = TestServer::start();
    let client = test.client();
    let update = |change: DocBuf| {
        client.run(&doc! { "drop" => "c" });
        client.insert("c", [doc! { "_id" => 1, "x" => array![10, 20, 30, 40, 50] }]);
        let statement = doc! { "q" => doc! { "_id" => 1 }, "u" => change };
        let reply = client.ok(doc! { "update" => "c", "updates" => array![statement] });
        assert_eq!(write_errors(&reply), [], "{}", show(&reply));
        first_batch(&client.ok(doc! { "find" => "c" }))
            .pop()
            .unwrap()
            .as_doc()
            .value("x")
            .into_owned()
    };
    let set = |path: &str| update(doc! { "$set" => doc! { path => 1 } });
    assert_eq!(set("x.0000"), array![1, 20, 30, 40, 50]);
    assert_eq!(set("x.0000004"), array![10, 20, 30, 40, 1]);
    let incremented = update(doc! { "$inc" => doc! { "x.0000004" => 1 } });
    assert_eq!(incremented, array![10, 20, 30, 40, 51]);
    let unset = update(doc! { "$unset" => doc! { "x.00" => 1 } });
    assert_eq!(unset, array![Value::Null, 20, 30, 40, 50]);
}

#[test]
fn explain_names_the_planning_of_branches_and_the_limit_of_a_sort() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..9).map(|id| doc! { "_id" => id, "a" => id, "b" => -id }));
    for field in ["a", "b"] {
        let index = doc! { "key" => doc! { field => 1 }, "name" => field };
        client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    }
    let winner = |command: DocBuf| {
        let reply = client.ok(doc! { "explain" => command, "verbosity" => "executionStats" });
        let stats = at(&at(&reply, "executionStats"), "executionStages");
        let plan = at(&at(&reply, "queryPlanner"), "winningPlan");
        assert_eq!(text(&plan, "stage"), text(&stats, "stage"));
        stats
    };
    let stages = |mut stage: DocBuf| {
        let mut names = vec![text(&stage, "stage")];
        while stage.as_doc().get("inputStage").is_some() {
            stage = at(&stage, "inputStage");
            names.push(text(&stage, "stage"));
        }
        names
    };
    let either = |x: &str, y: &str| doc! { "$or" => array![doc! { x => 1 }, doc! { y => -2 }] };
    let plan = winner(doc! { "find" => "c", "filter" => either("a", "b") });
    assert_eq!(number(&plan, "nReturned"), 2);
    assert_eq!(stages(plan), ["SUBPLAN", "FETCH", "OR"]);
    let plan = winner(doc! { "find" => "c", "filter" => either("x", "y") });
    assert_eq!(stages(plan), ["SUBPLAN", "COLLSCAN"]);
    let statement = doc! { "q" => either("a", "b"), "limit" => 0 };
    let plan = winner(doc! { "delete" => "c", "deletes" => array![statement] });
    assert_eq!(stages(plan), ["DELETE", "SUBPLAN", "FETCH", "OR"]);
    let both = doc! { "a" => 1, "$or" => array![doc! { "b" => 1 }, doc! { "x" => 2 }] };
    let plan = winner(doc! { "find" => "c", "filter" => both });
    assert_ne!(stages(plan)[0], "SUBPLAN");
    let hinted = doc! { "find" => "c", "filter" => either("a", "b"), "hint" => doc! { "a" => 1 } };
    assert_ne!(stages(winner(hinted))[0], "SUBPLAN");
    let sorted = |skip: i32| {
        winner(doc! { "find" => "c", "sort" => doc! { "x" => 1 }, "limit" => 3, "skip" => skip })
    };
    let plan = sorted(0);
    assert_eq!((number(&plan, "nReturned"), number(&plan, "limitAmount")), (3, 3));
    assert_eq!(stages(plan), ["SORT", "COLLSCAN"]);
    let plan = sorted(2);
    assert_eq!(number(&plan, "nReturned"), 3);
    assert_eq!(number(&at(&plan, "inputStage"), "limitAmount"), 5);
    assert_eq!(stages(plan), ["SKIP", "SORT", "COLLSCAN"]);
    let plan = winner(doc! { "find" => "c", "sort" => doc! { "a" => 1 }, "limit" => 3 });
    assert_eq!(stages(plan)[0], "LIMIT");
}

#[test]
fn views_are_documents_of_system_views() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let objects = || number(&client.ok(doc! { "dbStats" => 1 }), "objects");
    assert_eq!(objects(), 1);
    let find = |filter: DocBuf| {
        first_batch(&client.ok(doc! { "find" => "system.views", "filter" => filter }))
    };
    assert_eq!(find(doc! {}), []);
    let stages = array![doc! { "$match" => doc! { "a" => 1 } }];
    client.ok(doc! { "create" => "w", "viewOn" => "c" });
    client.ok(doc! { "create" => "v", "viewOn" => "c", "pipeline" => stages.clone() });
    client.on("other").ok(doc! { "create" => "v", "viewOn" => "c" });
    let v = doc! { "_id" => "test.v", "viewOn" => "c", "pipeline" => stages };
    let w = doc! { "_id" => "test.w", "viewOn" => "c", "pipeline" => array![] };
    assert_eq!(find(doc! {}), [v.clone(), w.clone()]);
    assert_eq!(find(doc! { "_id" => "test.w" }), std::slice::from_ref(&w));
    assert_eq!(number(&client.ok(doc! { "count" => "system.views" }), "n"), 2);
    let skip = array![doc! { "$skip" => 1 }];
    let pipeline = doc! { "aggregate" => "system.views", "pipeline" => skip, "cursor" => doc! {} };
    assert_eq!(first_batch(&client.ok(pipeline)), [w]);
    let distinct = doc! { "distinct" => "system.views", "key" => "_id" };
    assert_eq!(client.ok(distinct).as_doc().value("values"), array!["test.v", "test.w"]);
    assert_eq!(objects(), 3);
    client.ok(doc! { "drop" => "w" });
    assert_eq!(find(doc! {}), [v]);
    assert_eq!(objects(), 2);
}

#[test]
fn a_failed_validation_names_the_failed_operators() {
    let test = TestServer::start();
    let client = test.client();
    let details = |validator: DocBuf, document: DocBuf| {
        client.run(&doc! { "drop" => "c" });
        client.ok(doc! { "create" => "c", "validator" => validator });
        let reply = client.ok(doc! { "insert" => "c", "documents" => array![document] });
        assert_eq!(write_errors(&reply), [(0, 121)]);
        let Value::Array(errors) = reply.as_doc().value("writeErrors") else { panic!("no errors") };
        let info = at(&at(&errors.into_buf(), "0"), "errInfo");
        assert_eq!(number(&info, "failingDocumentId"), 1);
        at(&info, "details")
    };
    let more = doc! { "a" => doc! { "$gt" => 5 } };
    let expected = doc! { "operatorName" => "$gt", "specifiedAs" => &more,
    "reason" => "comparison failed", "consideredValue" => 3 };
    assert_eq!(details(more, doc! { "_id" => 1, "a" => 3 }), expected);
    let expr = doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] } };
    let found = details(expr.clone(), doc! { "_id" => 1, "a" => 1, "b" => 2 });
    let expected = doc! { "operatorName" => "$expr", "specifiedAs" => &expr,
    "reason" => "expression did not match", "expressionResult" => false };
    assert_eq!(found, expected);
    let text_property = doc! { "bsonType" => "string", "description" => "must be a string" };
    let schema =
        doc! { "required" => array!["name"], "properties" => doc! { "t" => text_property } };
    let found = details(doc! { "$jsonSchema" => schema }, doc! { "_id" => 1, "t" => 5 });
    let shown = show(&found);
    assert_eq!(text(&found, "operatorName"), "$jsonSchema");
    for part in [
        "schemaRulesNotSatisfied",
        "propertiesNotSatisfied",
        "propertyName: \"t\"",
        "description: \"must be a string\"",
        "missingProperties: [ \"name\" ]",
        "consideredType: \"int\"",
        "reason: \"type did not match\"",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    // An update reports the failure in the same way.
    client.ok(doc! { "collMod" => "c", "validator" => doc! { "a" => doc! { "$gt" => 5 } } });
    client.insert("c", [doc! { "_id" => 1, "a" => 9 }]);
    let modify = doc! { "findAndModify" => "c", "query" => doc! { "_id" => 1 },
    "update" => doc! { "$set" => doc! { "a" => 4 } } };
    let reply = client.run(&modify);
    assert_eq!(number(&reply, "code"), 121);
    assert_eq!(number(&at(&at(&reply, "errInfo"), "details"), "consideredValue"), 4);
}
