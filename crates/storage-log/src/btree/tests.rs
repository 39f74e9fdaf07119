//! Compares the tree with a `BTreeMap`, with keys of every shape.

use super::{BTree, Likely};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage::{Direction, IndexScan};
use std::collections::BTreeMap;

type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

/// Keys of one shape.
type Shape = fn(&SeededRandom) -> Vec<u8>;

fn below(random: &SeededRandom, n: u64) -> u64 {
    random.next_u64() % n
}

fn letters(random: &SeededRandom, len: u64) -> Vec<u8> {
    (0..len).map(|_| b"\x00a\xff"[below(random, 3) as usize]).collect()
}

const SHAPES: [(&str, Shape); 8] = [
    ("short, many equal or prefixes", |r| letters(r, below(r, 6))),
    ("object ids", |r| [&[0x64], &below(r, 1 << 40).to_be_bytes()[..], &[1, 2, 3, 4]].concat()),
    ("numbers", |r| below(r, 3000).to_be_bytes().to_vec()),
    ("one key", |_| b"the same".to_vec()),
    ("long common prefix", |r| [vec![7; 400], letters(r, 5)].concat()),
    ("of mixed length", |r| {
        let len = 1 << below(r, 11);
        letters(r, below(r, len) + 1)
    }),
    ("too long for a page", |r| [vec![9; 900], letters(r, 4), vec![9; 900]].concat()),
    ("sharing nothing, next to much", |r| match below(r, 3) {
        0 => vec![below(r, 256) as u8; 1 + below(r, 600) as usize],
        _ => [vec![0x80; 450], below(r, 500).to_be_bytes().to_vec()].concat(),
    }),
];

fn scan(
    tree: &BTree,
    direction: Direction,
    low: &[u8],
    high: &[u8],
) -> Vec<((Vec<u8>, u64), Vec<u8>)> {
    let mut scan = IndexScan::new(direction, low.to_vec(), high.to_vec());
    let mut found = Vec::new();
    loop {
        while let Some(entry) = scan.next_buffered() {
            found.push(((entry.key.to_vec(), entry.record.0), entry.type_bits.to_vec()));
        }
        if scan.ended() {
            return found;
        }
        tree.fill(&mut scan);
    }
}

fn compare(tree: &BTree, model: &Model, low: &[u8], high: &[u8]) {
    let inside = |key: &[u8]| key >= low && (high.is_empty() || key < high);
    let mut expected: Vec<_> = model
        .iter()
        .filter(|((key, _), _)| inside(key))
        .map(|(entry, bits)| (entry.clone(), bits.clone()))
        .collect();
    assert!(scan(tree, Direction::Forward, low, high) == expected, "forward");
    expected.reverse();
    assert!(scan(tree, Direction::Backward, low, high) == expected, "backward");
}

fn check(tree: &BTree, model: &Model) {
    tree.read().check();
    assert_eq!(tree.entries(), model.len() as u64);
    compare(tree, model, b"", b"");
}

struct Run {
    random: SeededRandom,
    shape: Shape,
    tree: BTree,
    model: Model,
}

impl Run {
    fn insert(&mut self, key: Vec<u8>) {
        let record = match below(&self.random, 3) {
            0 => below(&self.random, 5) + 1,
            1 => below(&self.random, 1 << 20),
            _ => self.random.next_u64(),
        };
        let bits = match below(&self.random, 8) {
            0 => vec![1; below(&self.random, 40) as usize],
            1 => vec![2],
            _ => vec![],
        };
        self.tree.insert(&key, RecordId(record), &bits);
        self.model.insert((key, record), bits);
    }

    fn remove_some(&mut self) {
        let key = (self.shape)(&self.random);
        let from = (key, 0);
        let entry = self.model.range(from..).next().or_else(|| self.model.iter().next_back());
        let Some((key, record)) = entry.map(|(entry, _)| entry.clone()) else { return };
        assert!(self.tree.remove(&key, RecordId(record)));
        self.model.remove(&(key, record));
    }

    fn look_up(&self, key: Vec<u8>) {
        let expected = |skip| {
            let from = (key.clone(), 0);
            let entries = self.model.range(from..).take_while(|((k, _), _)| *k == key);
            entries.map(|((_, record), _)| RecordId(*record)).nth(skip)
        };
        assert_eq!(self.tree.first(&key, |_| {}), expected(0), "{key:02x?}");
        let mut skip = 2;
        let third = self.tree.find_other(&key, |_| {
            skip -= 1;
            skip < 0
        });
        assert_eq!(third, expected(2), "{key:02x?}");
        let absent = RecordId(u64::MAX / 3);
        assert!(!self.tree.remove(&key, absent));
    }
}

#[test]
fn agrees_with_a_model() {
    for (number, (name, shape)) in SHAPES.into_iter().enumerate() {
        println!("keys: {name}");
        let random = SeededRandom::new(number as u64);
        let mut run = Run { random, shape, tree: BTree::new(), model: Model::new() };
        // Grows, shrinks to almost nothing, grows again, and so on.
        for phase in 0..6 {
            let inserts = if phase % 2 == 0 { 9 } else { 2 };
            for step in 0..3000 {
                let key = shape(&run.random);
                match below(&run.random, 10) < inserts {
                    true => run.insert(key),
                    false => run.remove_some(),
                }
                if step % 20 == 0 {
                    run.look_up(shape(&run.random));
                }
                if step % 500 == 0 {
                    run.tree.read().check();
                    compare(&run.tree, &run.model, &shape(&run.random), &shape(&run.random));
                }
            }
            check(&run.tree, &run.model);
        }
        while !run.model.is_empty() {
            run.remove_some();
        }
        check(&run.tree, &run.model);
        let left = run.tree.bytes();
        assert!(left < 300_000, "{name}: {left} bytes for nothing");
    }
}

#[test]
fn in_order_and_against_it() {
    for backward in [false, true] {
        for len in [8, 13, 200] {
            let (tree, mut model) = (BTree::new(), Model::new());
            for i in 0..20_000_u64 {
                let number = if backward { u64::MAX / 2 - i } else { i };
                let mut key = vec![0x64; len - 8];
                key.extend_from_slice(&number.to_be_bytes());
                tree.insert(&key, RecordId(i + 1), b"");
                model.insert((key, i + 1), vec![]);
            }
            check(&tree, &model);
            let per_entry = tree.bytes() as f64 / 20_000.0;
            assert!(per_entry < 22.0, "{len} bytes: {per_entry} B an entry");
            // A queue: what goes in at one end is taken out at the other.
            for (key, record) in model.keys().take(19_900) {
                assert!(tree.remove(key, RecordId(*record)));
            }
            let model: Model = model.into_iter().skip(19_900).collect();
            check(&tree, &model);
            assert!(tree.bytes() < 64 * 1024, "{}", tree.bytes());
        }
    }
}

/// Mostly in order, while the end is taken away, written again and passed by.
#[test]
fn the_end_moves() {
    for len in [8, 13, 700] {
        let random = SeededRandom::new(len as u64);
        let (tree, mut model) = (BTree::new(), Model::new());
        let mut number = 1_u64 << 40;
        for step in 0..30_000 {
            let key_of = |number: u64| {
                let mut key = vec![0x64; len - 8];
                key.extend_from_slice(&number.to_be_bytes());
                key
            };
            let mut put = |key: Vec<u8>, record: u64, bits: &[u8]| {
                tree.insert(&key, RecordId(record), bits);
                model.insert((key, record), bits.to_vec());
            };
            match below(&random, 100) {
                0..70 => {
                    number += 1 + below(&random, 3) * below(&random, 100_000);
                    assert_eq!(tree.first(&key_of(number), |_| {}), None);
                    assert_eq!(tree.find_other(&key_of(number), |_| true), None);
                    put(key_of(number), 7, b"");
                }
                70..75 => put(key_of(number - below(&random, 1 << 20)), 9, b""),
                75..80 => put(key_of(number), 1 + below(&random, 12), b"x"),
                // Now and then much of it, so that leaves go.
                _ => {
                    let count = if below(&random, 500) == 0 { 2000 } else { 1 };
                    for _ in 0..count {
                        let Some(((key, record), _)) = model.pop_last() else { break };
                        assert!(tree.remove(&key, RecordId(record)));
                        assert_eq!(tree.find_other(&key, |id| id.0 == record), None);
                    }
                }
            }
            // Not taken for one behind all.
            if let Some(((last, _), _)) = model.last_key_value() {
                let first = model.range((last.clone(), 0)..).next();
                let first = first.map(|((_, record), _)| RecordId(*record));
                assert_eq!(tree.find_other(last, |_| true), first);
            }
            if step % 3000 == 0 {
                check(&tree, &model);
            }
        }
        check(&tree, &model);
    }
}

/// What is looked for is among a few records that are told of before, where records ascend with keys: from
/// the start, after a few changes, and built of items. Where they don't, nothing is said.
#[test]
fn records_that_ascend_with_keys_are_told_before() {
    const KEYS: u64 = 5000;
    let told = |tree: &BTree, number: u64| {
        let mut told = 0..0;
        let found = tree.first(&number.to_be_bytes(), |likely| {
            told = match likely {
                Likely::One(record) => record..record + 1,
                Likely::Among(records) => records,
                Likely::Guess(_) => return,
            };
        });
        (found, told)
    };
    let count_told = |tree: &BTree, record_of: &dyn Fn(u64) -> u64| {
        let is_told = |number: &u64| {
            let (found, told) = told(tree, *number);
            assert_eq!(found, Some(RecordId(record_of(*number))));
            assert!(told.end - told.start <= 80, "few: {told:?}");
            told.contains(&record_of(*number))
        };
        (0..KEYS).filter(is_told).count() as u64
    };
    let ascending = |number: u64| 7 + number;
    let random = SeededRandom::new(1);
    let scattered: Vec<u64> = (0..KEYS).map(|_| 1 + below(&random, 1 << 40)).collect();
    let scattered = |number: u64| scattered[number as usize];
    let inserted = |record_of: &dyn Fn(u64) -> u64| {
        let tree = BTree::new();
        for number in 0..KEYS {
            tree.insert(&number.to_be_bytes(), RecordId(record_of(number)), b"");
        }
        tree
    };
    let tree = inserted(&ascending);
    assert!(count_told(&tree, &ascending) > KEYS * 9 / 10);
    for number in (150..KEYS).step_by(300) {
        assert!(tree.remove(&number.to_be_bytes(), RecordId(ascending(number))));
        tree.insert(&number.to_be_bytes(), RecordId(1), b"");
        let moved = |n: u64| if n % 300 == 150 && n <= number { 1 } else { ascending(n) };
        assert!(count_told(&tree, &moved) > KEYS * 8 / 10, "{number}");
    }
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    let entries = keys.iter().zip(0..).map(|(key, n)| (&key[..], RecordId(ascending(n)), &b""[..]));
    assert!(count_told(&BTree::from_sorted(entries), &ascending) > KEYS * 9 / 10);
    assert_eq!(count_told(&inserted(&scattered), &scattered), 0);
    assert_eq!(told(&tree, KEYS).0, None);
}

/// What is looked for is told of exactly by leaves where keys are numbers without gaps, whatever one step of them is in
/// bytes, or ObjectIds of one maker within a second. Where steps grow or are no power of two, or records don't keep
/// up, no record is told rightly.
#[test]
fn records_of_numbers_without_gaps_are_told_exactly() {
    const KEYS: u64 = 5000;
    let told = |keys: &dyn Fn(u64) -> Vec<u8>, record_of: &dyn Fn(u64) -> u64| {
        let tree = BTree::new();
        for number in 0..KEYS {
            tree.insert(&keys(number), RecordId(record_of(number)), b"");
        }
        let (mut right, mut wrong) = (0, 0);
        for number in 0..KEYS {
            let mut one = None;
            let likely = |likely| {
                if let Likely::One(record) = likely {
                    one = Some(record);
                }
            };
            let found = tree.read().first(&keys(number), None, likely);
            assert_eq!(found, Some(record_of(number)));
            right += u64::from(one == Some(record_of(number)));
            wrong += u64::from(one.is_some_and(|one| one != record_of(number)));
        }
        (right, wrong)
    };
    let ascending = |number: u64| 7 + number;
    let mostly = |(right, wrong): (u64, u64)| right > KEYS * 9 / 10 && wrong < KEYS / 50;
    let object_id = |number: u64| [&b"12345678a"[..], &number.to_be_bytes()[5..]].concat();
    assert!(mostly(told(&|n| (2 * n).to_be_bytes().to_vec(), &ascending)));
    assert!(mostly(told(&|n| ((70_000 + n) << 1).to_be_bytes()[4..].to_vec(), &ascending)));
    assert!(mostly(told(&object_id, &ascending)));
    let squares = |n: u64| (n * n).to_be_bytes().to_vec();
    let skipping = |n: u64| 7 + n + n / 100;
    assert_eq!(told(&squares, &ascending).0, 0);
    assert_eq!(told(&|n| n.to_be_bytes().to_vec(), &skipping).0, 0);
    assert_eq!(told(&|n| (5 * n / 2).to_be_bytes().to_vec(), &ascending), (0, 0));
}

/// Where keys have been found to tell their records, a record is told before the tree is searched; what is found is
/// what is there, whatever was guessed.
#[test]
fn a_record_is_told_before_the_tree_is_searched() {
    const KEYS: u64 = 5000;
    let told = |record_of: &dyn Fn(u64) -> u64| {
        let tree = BTree::new();
        for number in 0..KEYS {
            tree.insert(&(2 * number).to_be_bytes(), RecordId(record_of(number)), b"");
        }
        let mut right = 0;
        for number in (0..KEYS).map(|n| n * 7 % KEYS) {
            let mut told = None;
            let key = (2 * number).to_be_bytes();
            let found = tree.first(&key, |likely| {
                if let Likely::Guess(record) = likely {
                    assert!(tree.tree.try_write().is_ok());
                    told = Some(record);
                }
            });
            assert_eq!(found, Some(RecordId(record_of(number))));
            right += u64::from(told == Some(record_of(number)));
        }
        right
    };
    assert!(told(&|n| 7 + n) > KEYS * 9 / 10);
    // In short runs.
    told(&|n| 7 + n + n / 10);
    assert_eq!(told(&|n| 7 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 30)), 0);
}

/// Numbers with even gaps are found whatever comes between them and goes.
#[test]
fn numbers_are_found_after_changes_among_them() {
    const KEYS: u64 = 2000;
    let tree = BTree::new();
    for number in 0..KEYS {
        tree.insert(&(2 * number).to_be_bytes(), RecordId(7 + number), b"");
    }
    let all_found = |changed: u64, record_of: &dyn Fn(u64) -> Option<u64>| {
        for number in 0..2 * KEYS {
            let found = tree.first(&number.to_be_bytes(), |_| {});
            assert_eq!(found, record_of(number).map(RecordId), "{number} after {changed}");
        }
    };
    let of_even = |n: u64| n.is_multiple_of(2).then_some(7 + n / 2);
    for changed in (15..2 * KEYS).step_by(50) {
        tree.insert(&changed.to_be_bytes(), RecordId(1), b"");
        all_found(changed, &|n| of_even(n).or_else(|| (n % 50 == 15 && n <= changed).then_some(1)));
    }
    for changed in (15..2 * KEYS).step_by(50) {
        assert!(tree.remove(&changed.to_be_bytes(), RecordId(1)));
        assert!(tree.remove(&(changed + 1).to_be_bytes(), RecordId(7 + changed.div_ceil(2))));
        all_found(changed, &|n| match n % 50 {
            15 => (n > changed).then_some(1),
            16 => of_even(n).filter(|_| n > changed + 1),
            _ => of_even(n),
        });
    }
}

/// Of entries with one key the first is found, also where it is told to be the second: between equal keys here and
/// there, all others lie as numbers without gaps do.
#[test]
fn the_first_of_equal_keys_is_found_among_numbers() {
    let tree = BTree::new();
    let key_of = |number: u64| if number % 10 == 5 { number + 1 } else { number }.to_be_bytes();
    for number in 0..5000 {
        tree.insert(&key_of(number), RecordId(7 + number), b"");
    }
    let mut told = 0;
    for number in 0..5000 {
        let first = if number % 10 == 6 { number - 1 } else { number };
        let found = tree.first(&key_of(number), |likely| {
            told += u64::from(matches!(likely, Likely::One(record) if record != 7 + first));
        });
        assert_eq!(found, Some(RecordId(7 + first)));
    }
    assert!(told > 300, "{told}");
}

#[test]
fn bulk_loading_equals_inserting() {
    for (number, (name, shape)) in SHAPES.into_iter().enumerate() {
        println!("keys: {name}");
        let random = SeededRandom::new(100 + number as u64);
        for count in [0, 1, 2, 3, 50, 200, 5000] {
            let model: Model = (0..count)
                .map(|i| ((shape(&random), i + 1), vec![1; below(&random, 3) as usize]))
                .collect();
            let entries = model.iter().map(|((k, r), b)| (&k[..], RecordId(*r), &b[..]));
            let tree = BTree::from_sorted(entries);
            check(&tree, &model);
            // And it goes on from there.
            let mut run = Run { random: SeededRandom::new(count), shape, tree, model };
            for _ in 0..500 {
                run.remove_some();
                run.insert(shape(&run.random));
            }
            check(&run.tree, &run.model);
        }
    }
}

#[test]
fn bulk_loading_out_of_order() {
    let random = SeededRandom::new(5);
    let keys: Vec<_> = (0..2000).map(|_| letters(&random, 8)).collect();
    let entries =
        || keys.iter().zip(1..).map(|(key, record)| (&key[..], RecordId(record), &b"t"[..]));
    let model: Model = entries().map(|(k, r, b)| ((k.to_vec(), r.0), b.to_vec())).collect();
    check(&BTree::from_sorted(entries()), &model);
    let twice = keys.iter().map(|_| (&b"same"[..], RecordId(1), &b""[..]));
    assert_eq!(BTree::from_sorted(twice).entries(), 1);
}

#[test]
fn keys_of_16_mb() {
    let tree = BTree::new();
    let mut keys: Vec<Vec<u8>> = (0..4).map(|i| vec![b'x'; (16 << 20) - i]).collect();
    keys.extend((0..4).map(|i| [vec![b'x'; 16 << 20], vec![i; 10]].concat()));
    keys.extend((0..500_u64).map(|i| i.to_be_bytes().to_vec()));
    for (i, key) in keys.iter().enumerate() {
        tree.insert(key, RecordId(i as u64), b"bits");
    }
    tree.read().check();
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(tree.first(key, |_| {}), Some(RecordId(i as u64)));
    }
    assert_eq!(scan(&tree, Direction::Backward, b"x", b"").len(), 8);
    for (i, key) in keys.iter().enumerate() {
        assert!(tree.remove(key, RecordId(i as u64)));
    }
    tree.read().check();
    assert_eq!(tree.entries(), 0);
    assert!(tree.bytes() < 100_000, "{} bytes for nothing", tree.bytes());
}

#[test]
fn type_bits_of_every_length() {
    let (tree, mut model) = (BTree::new(), Model::new());
    let random = SeededRandom::new(3);
    for round in 0..4000 {
        let key = below(&random, 100).to_be_bytes().to_vec();
        let bits = vec![round as u8; [0, 1, 2, 300, 5000][below(&random, 5) as usize]];
        tree.insert(&key, RecordId(1), &bits);
        model.insert((key, 1), bits);
    }
    check(&tree, &model);
}

#[test]
fn an_empty_index_is_small() {
    assert!(BTree::new().bytes() < 1024, "{}", BTree::new().bytes());
    let tree = BTree::new();
    for i in 0..10_u64 {
        tree.insert(&i.to_be_bytes(), RecordId(i), b"");
    }
    assert!(tree.bytes() < 2048, "{}", tree.bytes());
}

/// Entries are looked for first where others of their records' group were found, so that no descent is needed; what
/// the tree has become since decides, not the place: leaves split, were given up, and have become other nodes;
/// keys got earlier records, and entries before them in other leaves.
#[test]
fn entries_are_found_where_their_neighbours_were() {
    const KEYS: u64 = 20_000;
    let key = |number: u64| (4 * number).to_be_bytes();
    let random = SeededRandom::new(5);
    let tree = BTree::new();
    let mut model = Model::new();
    let add = |model: &mut Model, key: &[u8], record: u64| {
        tree.insert(key, RecordId(record), b"");
        model.insert((key.to_vec(), record), vec![]);
    };
    let look_up = |model: &Model, number: u64| {
        for key in [4 * number, 4 * number + 1].map(u64::to_be_bytes) {
            let first = model.range((key.to_vec(), 0)..).next().filter(|((k, _), _)| *k == key);
            let first = first.map(|((_, record), _)| RecordId(*record));
            assert_eq!(tree.first(&key, |_| {}), first, "{number}");
        }
    };
    (1..=KEYS).for_each(|number| add(&mut model, &key(number), number));
    for phase in 0..4 {
        (0..8 * KEYS).for_each(|_| look_up(&model, 1 + below(&random, KEYS)));
        let known = |number: &u64| tree.read().is_at_its_place(&key(*number), *number);
        let known = (1..=KEYS).filter(known).count() as u64;
        println!("phase {phase}: {known} of {KEYS} known");
        assert!(known > KEYS * [95, 60, 10, 10][phase] / 100, "phase {phase}: {known}");
        for _ in 0..KEYS {
            let number = 1 + below(&random, KEYS);
            match phase {
                // Leaves are split between neighbours.
                0 => add(&mut model, &(4 * number + 1).to_be_bytes(), below(&random, 1 << 50)),
                // Some keys get many records, earlier ones too, so that they fill leaves of their own.
                1 => add(&mut model, &key(number / 64 * 64), below(&random, 1 << 16)),
                // Runs of entries go, with their leaves; the nodes are used for what comes behind.
                _ if below(&random, 60) > 0 => {}
                _ => {
                    for number in number..number + 40 {
                        let from = (key(number).to_vec(), 0);
                        let Some(((key, record), _)) = model.range(from..).next() else { break };
                        let (key, record) = (key.clone(), *record);
                        assert!(tree.remove(&key, RecordId(record)));
                        model.remove(&(key, record));
                    }
                    let behind = KEYS + below(&random, KEYS * 1000);
                    (0..30).for_each(|n| add(&mut model, &key(behind * 30 + n), behind + n));
                }
            }
        }
        check(&tree, &model);
        (1..=KEYS).for_each(|number| look_up(&model, number));
    }
}

/// The first of a key's entries may be in a leaf before the one where its neighbours are, which begins with others
/// of the key.
#[test]
fn the_first_of_a_key_is_not_taken_from_a_later_leaf() {
    const KEY: u64 = 992;
    for others in (20..600).step_by(20) {
        let tree = BTree::new();
        (1..=2000u64).for_each(|n| tree.insert(&n.to_be_bytes(), RecordId(n), b""));
        let look_up = |number: u64| {
            let found = tree.first(&number.to_be_bytes(), |_| {});
            assert_eq!(found, Some(RecordId(number)), "{others} others");
        };
        (1..=2000).chain(1..=2000).for_each(look_up);
        (0..others).for_each(|n| tree.insert(&KEY.to_be_bytes(), RecordId(1 << 30 | n), b""));
        (KEY + 1..=2000).for_each(look_up);
        look_up(KEY);
    }
}

/// Where neighbours' entries lie apart, as of many clients whose numbers one counter gives out, few are looked for in
/// vain where one of them was found.
#[test]
fn neighbours_that_lie_apart_are_not_looked_for_in_vain() {
    const KEYS: u64 = 20_000;
    let key = |number: u64| [&[(number % 64) as u8][..], &number.to_be_bytes()].concat();
    let (random, tree) = (SeededRandom::new(6), BTree::new());
    (1..=KEYS).for_each(|number| tree.insert(&key(number), RecordId(number), b""));
    let mut in_vain = 0;
    for turn in 0..10 * KEYS {
        let number = 1 + below(&random, KEYS);
        let is_measured = turn >= 8 * KEYS && tree.read().places.look_up(number).is_some();
        in_vain += u64::from(is_measured && !tree.read().is_at_its_place(&key(number), number));
        assert_eq!(tree.first(&key(number), |_| {}), Some(RecordId(number)));
    }
    println!("{in_vain} of {} in vain", 2 * KEYS);
    assert!(in_vain < 2 * KEYS / 5, "{in_vain}");
    // They are guessed all the same.
    let mut guesses = 0;
    (1..=KEYS).for_each(|number| {
        let likely = |likely| guesses += u64::from(matches!(likely, Likely::Guess(_)));
        tree.first(&key(number), likely);
    });
    assert!(guesses > KEYS * 9 / 10, "{guesses}");
}
