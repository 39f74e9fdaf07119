//! Random definitions, writes, index builds, restarts of the follower and changes of roles: after each step the
//! follower has the leader's definitions and complete indexes.

use crate::common::*;
use crate::members::*;
use kauri_base::{CollectionId, ErrorCode, IndexId};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_catalog::build::BuildStep;
use kauri_catalog::{
    Capped, Collection, CollectionOptions, IndexBuild, InterruptedBuild, Rename, View,
};
use kauri_testkit::Dice;
use kauri_testkit::seeds::{each_seed, seeds};
use std::sync::Arc;

const STEPS: u64 = 250;

/// An index build of the leader that goes on.
struct Running {
    collection: CollectionId,
    ids: Vec<IndexId>,
    build: IndexBuild,
    /// The indexes are to be dropped.
    failed: bool,
}

struct Run {
    set: Set,
    dice: Dice,
    builds: Vec<Running>,
    interrupted: Vec<InterruptedBuild>,
    next_id: i64,
}

impl Run {
    fn new(set: Set, seed: u64) -> Self {
        Run { set, dice: Dice::new(seed), builds: Vec::new(), interrupted: Vec::new(), next_id: 0 }
    }

    /// One step; its name.
    fn step(&mut self) -> &'static str {
        match self.dice.below(100) {
            0..8 => self.create(),
            8..12 => self.view(),
            12..45 => self.write(),
            45..50 => self.change_options(),
            50..54 => self.change_index(),
            54..63 => self.add_indexes(),
            63..76 => self.advance_build(),
            76..80 => self.drop_index(),
            80..86 => self.rename(),
            86..89 => self.drop_collection(),
            89..90 => self.drop_database(),
            90..92 => self.freeze(),
            92..95 => self.restart(),
            95..97 => self.change_roles(),
            _ => self.resume(),
        }
    }

    fn name(&self) -> String {
        let database = ["db", "other"][self.dice.below(2) as usize];
        match self.dice.below(12) {
            0 => format!("{database}.system.profile"),
            n => format!("{database}.c{}", n % 5),
        }
    }

    fn some_collection(&self) -> Option<Arc<Collection>> {
        self.dice.pick(&self.set.leader().all_collections()).cloned()
    }

    fn create(&mut self) -> &'static str {
        let mut options = CollectionOptions { temp: self.dice.percent(10), ..Default::default() };
        if self.dice.percent(20) {
            options.capped = Some(Capped { bytes_max: 1 << 20, records_max: self.dice.below(9) });
        }
        let (leader, name) = (self.set.leader(), ns(&self.name()));
        let created = leader.create_collection(&mut leader.scope(), &name, options, None);
        assert!(matches!(code(created), ErrorCode::OK | ErrorCode::NamespaceExists));
        "create"
    }

    fn view(&mut self) -> &'static str {
        let (leader, name) = (self.set.leader(), ns(&self.name()));
        let options = doc! { "viewOn" => "c1", "n" => self.dice.below(5) as i64 };
        let (view_on, pipeline, usage) = ("c1".to_owned(), DocBuf::new(), Default::default());
        let view = View { ns: name.clone(), view_on, pipeline, options, usage };
        let is_view = leader.views_of(name.database()).iter().any(|view| view.ns == name);
        let done = match is_view {
            true => leader.change_view(&mut leader.scope(), view),
            false => leader.create_view(&mut leader.scope(), view),
        };
        assert!(matches!(code(done), ErrorCode::OK | ErrorCode::NamespaceExists));
        "view"
    }

    fn document(&self, id: i64) -> DocBuf {
        let n = |max: u64| self.dice.below(max) as i64;
        let b = match n(4) {
            0 => array![n(5), n(5)],
            1 => Value::from("text"),
            _ => Value::Missing,
        };
        DocBuf::build(|out| {
            out.put("_id", id);
            out.put("a", n(10));
            out.put("u", n(60));
            out.put_value("b", &b);
        })
    }

    fn write(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let (leader, name) = (self.set.leader(), collection.ns.as_str());
        let there = records(leader, &collection);
        let written = match (self.dice.below(5), self.dice.pick(&there)) {
            (0, Some((record, _))) => change(leader, name, *record, |_| None),
            (1, Some((record, old))) => {
                let new = self.document(number(old.as_doc(), "_id"));
                change(leader, name, *record, |_| Some(new.clone()))
            }
            _ => {
                self.next_id += 1;
                insert(leader, name, &self.document(self.next_id))
            }
        };
        let busy = ErrorCode::ConflictingOperationInProgress;
        let duplicate = ErrorCode::DuplicateKey;
        let expected = [Written::Done, Written::Refused(busy), Written::Refused(duplicate)];
        assert!(expected.contains(&written), "{written:?}");
        "write"
    }

    fn change_options(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let mut options = collection.options.clone();
        let bound = self.dice.below(5) as i64;
        let validator = doc! { "a" => doc! { "$gte" => bound } };
        options.set_validator(self.dice.percent(60).then_some(validator)).unwrap();
        let leader = self.set.leader();
        let _ = leader.change_options(&mut leader.scope(), &collection, options);
        "change options"
    }

    fn change_index(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let Some(index) = self.dice.pick(&collection.indexes) else { return "nothing" };
        if index.definition().is_id() {
            return "nothing";
        }
        let (hidden, seconds) = (self.dice.percent(50), self.dice.below(1_000) as i64);
        let spec = DocBuf::build(|out| {
            for elem in index.definition().spec.as_doc() {
                if !matches!(elem.key(), "hidden" | "expireAfterSeconds") {
                    out.put_elem(elem);
                }
            }
            out.put("hidden", hidden);
            out.put("expireAfterSeconds", seconds);
        });
        let leader = self.set.leader();
        let _ = leader.change_index(&mut leader.scope(), &collection, index, spec);
        "change an index"
    }

    fn spec(&self) -> DocBuf {
        let n = self.dice.below(1 << 40);
        let name = format!("i{n}");
        match n % 6 {
            0 => unique(doc! { "u" => 1 }, &name),
            1 => unique(doc! { "a" => 1, "u" => 1 }, &name),
            2 => spec(doc! { "b" => 1 }, &name),
            3 => spec(doc! { "b" => -1, "u" => 1 }, &name),
            4 => {
                let filter = doc! { "a" => doc! { "$gt" => 4 } };
                let given = doc! {
                    "key" => doc! { "u" => 1 }, "name" => &*name, "partialFilterExpression" => filter,
                };
                kauri_catalog::spec::normalise(given.as_doc(), false).unwrap()
            }
            _ => spec(doc! { "a" => 1 }, &name),
        }
    }

    fn add_indexes(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let specs: Vec<_> = (0..=self.dice.below(2)).map(|_| self.spec()).collect();
        let leader = self.set.leader();
        match leader.add_indexes(&mut leader.scope(), &collection, &specs) {
            Ok((ids, ticket)) => {
                leader.begun.lock().unwrap().extend(&ids);
                let build = IndexBuild::new(ids.clone(), ticket.seq);
                let collection = collection.id;
                self.builds.push(Running { collection, ids, build, failed: false });
            }
            Err(error) => assert_eq!(error.code(), ErrorCode::ConflictingOperationInProgress),
        }
        "add indexes"
    }

    fn advance_build(&mut self) -> &'static str {
        if self.builds.is_empty() {
            return "nothing";
        }
        let at = self.dice.below(self.builds.len() as u64) as usize;
        let mut running = self.builds.swap_remove(at);
        let leader = self.set.leader();
        let all = leader.all_collections();
        let Some(collection) = all.iter().find(|c| c.id == running.collection) else {
            return "nothing";
        };
        let scope = &mut leader.scope();
        let step = match running.failed {
            true => Ok(BuildStep::Done),
            false => running.build.step(collection, scope),
        };
        let ended = match step {
            Ok(BuildStep::Done) if running.failed => {
                leader.drop_indexes(scope, collection, &running.ids)
            }
            Ok(BuildStep::Done) => {
                let spare =
                    collection.indexes.iter().filter(|i| i.ready && !i.definition().is_id());
                let spare: Vec<_> = spare.map(|index| index.id).collect();
                let replaced = self.dice.pick(&spare).filter(|_| self.dice.percent(30));
                let replaced: Vec<_> = replaced.copied().into_iter().collect();
                leader.indexes_ready(scope, collection, &running.ids, &replaced)
            }
            Ok(_) => {
                self.builds.push(running);
                return "advance a build";
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::DuplicateKey);
                running.failed = true;
                leader.drop_indexes(scope, collection, &running.ids)
            }
        };
        if let Err(error) = ended {
            assert_eq!(error.code(), ErrorCode::ConflictingOperationInProgress);
            self.builds.push(running);
        }
        "advance a build"
    }

    fn drop_index(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let Some(index) = self.dice.pick(&collection.indexes) else { return "nothing" };
        if !index.definition().is_id() {
            let leader = self.set.leader();
            let _ = leader.drop_indexes(&mut leader.scope(), &collection, &[index.id]);
        }
        "drop an index"
    }

    fn rename(&mut self) -> &'static str {
        let Some(source) = self.some_collection() else { return "nothing" };
        let (leader, to) = (self.set.leader(), ns(&self.name()));
        let also = self.some_collection().filter(|c| c.ns != source.ns && c.ns != to);
        // The index on `_id` goes with the name.
        if !source.ns.has_id_index() || !to.has_id_index() {
            return "nothing";
        }
        let rename = Rename {
            drop_target: self.dice.percent(70),
            also_drop: also.as_ref().filter(|_| self.dice.percent(20)).map(|c| (&c.ns, c.id)),
            ..Rename::new(&source.ns, &to)
        };
        let _ = leader.rename_collection(&mut leader.scope(), &rename);
        "rename"
    }

    fn drop_collection(&mut self) -> &'static str {
        let leader = self.set.leader();
        let dropped = leader.drop_collection(&mut leader.scope(), &ns(&self.name()));
        assert!(matches!(code(dropped), ErrorCode::OK | ErrorCode::NamespaceNotFound));
        "drop a collection"
    }

    fn drop_database(&mut self) -> &'static str {
        let leader = self.set.leader();
        match self.dice.percent(50) {
            true => leader.drop_database(&mut leader.scope(), "other").unwrap(),
            false => leader.drop_views(&mut leader.scope(), "db").unwrap(),
        };
        "drop a database"
    }

    fn freeze(&mut self) -> &'static str {
        let Some(collection) = self.some_collection() else { return "nothing" };
        let leader = self.set.leader();
        match collection.frozen {
            true => leader.thaw(&mut leader.scope(), &collection).unwrap(),
            false => leader.freeze(&mut leader.scope(), &collection).unwrap(),
        };
        "freeze or thaw"
    }

    fn restart(&mut self) -> &'static str {
        let seed = self.dice.bits();
        let end = *self.dice.pick(&[End::Killed, End::Closed, End::Power(seed)]).unwrap();
        self.set.restart_follower(end);
        "restart the follower"
    }

    fn change_roles(&mut self) -> &'static str {
        self.set.change_roles();
        // Commands of the deposed leader go on until they find that it is one.
        let deposed = self.set.follower();
        for mut running in std::mem::take(&mut self.builds) {
            let all = deposed.all_collections();
            let found = all.iter().find(|c| c.id == running.collection);
            if let Some(collection) = found.filter(|_| self.dice.percent(50)) {
                let _ = running.build.step(collection, &mut deposed.scope());
                let refused = deposed.drop_indexes(&mut deposed.scope(), collection, &running.ids);
                assert!(refused.is_err());
            }
        }
        self.interrupted = self.set.leader().lead().unwrap();
        assert!(self.set.leader().all_collections().iter().all(|c| !c.frozen && !c.options.temp));
        "change roles"
    }

    fn resume(&mut self) -> &'static str {
        let Some(build) = self.interrupted.pop() else { return "nothing" };
        match self.set.leader().resume_build(build) {
            Ok(()) => {}
            // Its collection is frozen.
            Err(error) => assert_eq!(error.code(), ErrorCode::ConflictingOperationInProgress),
        }
        "resume a build"
    }
}

/// Runs this many seeds.
fn run(set: fn() -> Set, many: u64) {
    each_seed(seeds(many), |seed| {
        let mut run = Run::new(set(), seed);
        let mut steps = Vec::new();
        for _ in 0..STEPS {
            steps.push(run.step());
            if run.dice.percent(30) {
                continue;
            }
            let last = &steps[steps.len().saturating_sub(5)..];
            run.set.follow(&format!("KAURI_SEED={seed}, step {}: {last:?}", steps.len()));
        }
    });
}

#[test]
fn the_follower_has_what_the_leader_has() {
    run(Set::new, 100);
}

#[test]
fn the_follower_has_what_the_leader_has_on_logs() {
    run(Set::on_logs, 20);
}
