//! Numbers the distinct values by the comparison order (`1` equals `1.0`): the keys of `$group`.

use super::hash::HashKey;
use kauri_base::{RandomSource, work};
use kauri_bson::Value;

/// A place in the table: empty if `number` is 0, else the value's number plus one.
#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u32,
    number: u32,
}

/// See the module's head. Open addressing, at most half full.
pub struct GroupTable {
    key: HashKey,
    slots: Vec<Slot>,
    values: Vec<Value<'static>>,
}

/// The slot for a new value.
pub struct Vacant {
    hash: u64,
}

impl GroupTable {
    /// An empty one.
    pub fn new(random: &dyn RandomSource) -> GroupTable {
        GroupTable { key: HashKey::new(random), slots: Vec::new(), values: Vec::new() }
    }

    /// The values by number.
    pub fn values(&self) -> &[Value<'static>] {
        &self.values
    }

    /// The value's number.
    #[inline]
    pub fn find(&self, value: &Value<'_>) -> Result<usize, Vacant> {
        let hash = self.key.hash_of(value);
        if self.slots.is_empty() {
            return Err(Vacant { hash });
        }
        let mask = self.slots.len() - 1;
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.number == 0 {
                return Err(Vacant { hash });
            }
            let number = slot.number as usize - 1;
            if slot.tag == tag && kauri_bson::equal(&self.values[number], value) {
                return Ok(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a value that was not found; gives its number, or none if there are too many.
    pub fn insert(&mut self, vacant: Vacant, value: Value<'static>) -> Option<usize> {
        if (self.values.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let number = u32::try_from(self.values.len() + 1).ok()?;
        place(&mut self.slots, Slot { tag: (vacant.hash >> 32) as u32, number }, vacant.hash);
        self.values.push(value);
        Some(number as usize - 1)
    }

    /// Takes the last value out. Until the table is cleared no value may be looked for.
    pub fn pop(&mut self) -> Option<Value<'static>> {
        self.values.pop()
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.values.clear();
        self.slots = Vec::new();
    }

    fn grow(&mut self) {
        let mut slots = vec![Slot::default(); (self.slots.len() * 2).max(64)];
        for slot in self.slots.iter().filter(|slot| slot.number != 0) {
            work::tick_infallible(1);
            let hash = self.key.hash_of(&self.values[slot.number as usize - 1]);
            place(&mut slots, *slot, hash);
        }
        self.slots = slots;
    }

    /// Bytes of the table itself for each value, at most.
    pub const SLOT_BYTES: usize = 4 * size_of::<Slot>();
}

fn place(slots: &mut [Slot], slot: Slot, hash: u64) {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at].number != 0 {
        at = (at + 1) & mask;
    }
    slots[at] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::clock::SeededRandom;
    use kauri_bson::doc;

    #[test]
    fn finds_equal_values_and_no_others() {
        let random = SeededRandom::new(7);
        let mut table = GroupTable::new(&random);
        for n in 0..5000 {
            let Err(vacant) = table.find(&Value::Int32(n)) else { panic!("{n} is there") };
            assert_eq!(table.insert(vacant, Value::Double(f64::from(n))), Some(n as usize));
        }
        for n in 0..5000i64 {
            assert_eq!(table.find(&Value::Int64(n)).ok(), Some(n as usize));
        }
        assert!(table.find(&Value::Null).is_err());
        assert!(table.find(&Value::from("1")).is_err());
        let Err(vacant) = table.find(&doc! { "a" => 1 }.into()) else { panic!("it is there") };
        table.insert(vacant, doc! { "a" => 1 }.into());
        assert_eq!(table.find(&doc! { "a" => 1.0 }.into()).ok(), Some(5000));
        assert!(table.find(&doc! { "b" => 1 }.into()).is_err());
    }

    #[test]
    fn tells_values_apart_that_hash_alike() {
        let (slots, values) = (Vec::new(), Vec::new());
        let mut table = GroupTable { key: HashKey::weak(), slots, values };
        let value = |n: i32| Value::from(doc! { "a" => n, "b" => "the same words at the end" });
        assert_eq!(table.key.hash_of(&value(1)), table.key.hash_of(&value(2)));
        for n in 0..100 {
            let Err(vacant) = table.find(&value(n)) else { panic!("{n} is there") };
            table.insert(vacant, value(n));
        }
        assert!((0..100).all(|n| table.find(&value(n)).ok() == Some(n as usize)));
    }
}
