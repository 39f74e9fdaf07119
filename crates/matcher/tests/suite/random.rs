//! Random filters over random documents. The matcher agrees with a naive reference, and all ways to evaluate a
//! filter agree with each other.

use crate::reference::{self, generate::Generator};
use bson::{Bson, Document};
use kauri_bson::{Doc, DocBuf};
use kauri_matcher::{MatchCx, MatchDetails, MatchExpr, Matcher, ParseCx, Place, is_subset_of};

const SEED: u64 = 0x6d61_7463_6865_7221;

/// The seed: a fixed one, or the one in `KAURI_SEED`.
fn seed() -> u64 {
    std::env::var("KAURI_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(SEED)
}

fn raw(doc: &Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).unwrap();
    DocBuf::from_vec(bytes).unwrap()
}

fn parse(filter: Doc<'_>) -> MatchExpr {
    MatchExpr::parse(filter, &ParseCx::new(Place::Find)).unwrap_or_else(|e| {
        panic!("{filter:?} does not parse: {e:?}");
    })
}

#[test]
fn agrees_with_the_reference() {
    let seed = seed();
    let generator = Generator::new(seed);
    let cx = MatchCx::new();
    let (mut matched, mut cases) = (0, 0);
    for round in 0..12_000 {
        let docs: [Document; 4] = std::array::from_fn(|_| generator.document());
        let filter = generator.filter(2);
        let buffer = raw(&filter);
        let tree = parse(buffer.as_doc());
        let optimized = tree.clone().optimize();
        let printed = tree.to_bson();
        let forms = [
            ("the optimised tree", Matcher::new(optimized.clone())),
            ("the printed tree", Matcher::new(parse(printed.as_doc()))),
            ("the printed optimised tree", Matcher::new(parse(optimized.to_bson().as_doc()))),
            ("the one-pass matcher", Matcher::new(tree.clone())),
        ];
        for doc in docs {
            let bytes = raw(&doc);
            let expected = reference::matches(&filter, &doc);
            let context = || format!("seed {seed}, round {round}: {filter} over {doc}");
            let found = tree.matches(bytes.as_doc(), &cx).unwrap();
            assert_eq!(found, expected, "{}", context());
            for (name, matcher) in &forms {
                let found = matcher.matches(bytes.as_doc(), &cx).unwrap();
                assert_eq!(found, expected, "{name}, {}", context());
            }
            matched += u32::from(expected);
            cases += 1;
        }
    }
    // Cases with uniform results would prove nothing.
    assert!(cases == 48_000 && (7_000..41_000).contains(&matched), "{matched} of {cases} match");
}

#[test]
fn reports_the_matched_position() {
    let seed = seed() ^ 1;
    let generator = Generator::new(seed);
    let cx = MatchCx::new();
    let mut positions = 0;
    for round in 0..26_000 {
        let doc = generator.document();
        let filter = generator.single();
        let negated = filter.values().filter_map(Bson::as_document).flat_map(Document::iter).any(
            |(name, arg)| {
                matches!(name.as_str(), "$ne" | "$nin" | "$not" | "$all")
                    || name == "$exists" && *arg == Bson::Boolean(false)
            },
        );
        if negated {
            continue;
        }
        let tree = parse(raw(&filter).as_doc());
        let mut details = MatchDetails::new();
        let matches = tree.matches_with_details(raw(&doc).as_doc(), &cx, &mut details).unwrap();
        let expected = reference::position(&filter, &doc);
        let found = details.elem_match_key().map(|k| k as usize);
        assert_eq!(matches, reference::matches(&filter, &doc));
        assert_eq!(found, expected, "seed {seed}, round {round}: {filter} over {doc}");
        positions += u32::from(found.is_some());
    }
    assert!(positions > 500, "{positions}");
}

#[test]
fn a_subset_matches_no_more() {
    let seed = seed() ^ 2;
    let generator = Generator::new(seed);
    let cx = MatchCx::new();
    let mut subsets = 0;
    for round in 0..60_000 {
        let (narrow, wide) = (generator.filter(1), generator.single());
        let narrow_tree = parse(raw(&narrow).as_doc()).optimize();
        let wide_tree = parse(raw(&wide).as_doc()).optimize();
        if !is_subset_of(&narrow_tree, &wide_tree) {
            continue;
        }
        subsets += 1;
        for _ in 0..20 {
            let doc = generator.document();
            if reference::matches(&narrow, &doc) {
                let context = || format!("seed {seed}, round {round}: {narrow}, {wide}, {doc}");
                assert!(wide_tree.matches(raw(&doc).as_doc(), &cx).unwrap(), "{}", context());
            }
        }
    }
    assert!(subsets > 300, "{subsets}");
}
