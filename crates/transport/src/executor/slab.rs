//! A slab whose keys are never confused with keys of earlier values in the same slot.
//!
//! A key is an index and the generation of its slot. The generation grows when the slot is emptied, so a late event
//! or wake for a removed value finds nothing.

pub(crate) type Key = u64;

struct Place<T> {
    generation: u32,
    value: Option<T>,
}

pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Reserves a key; the value follows with [`Slab::put`].
    pub fn reserve(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, value: None });
            (self.places.len() - 1) as u32
        });
        let generation = self.places.get(index as usize).map_or(0, |place| place.generation);
        u64::from(generation) << 32 | u64::from(index)
    }

    fn place(&mut self, key: Key) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(key as u32 as usize)?;
        (place.generation == (key >> 32) as u32).then_some(place)
    }

    /// Puts the value of a reserved key in, or back after [`Slab::take`].
    pub fn put(&mut self, key: Key, value: T) {
        if let Some(place) = self.place(key) {
            place.value = Some(value);
        }
    }

    /// Takes the value out; the key stays reserved.
    pub fn take(&mut self, key: Key) -> Option<T> {
        self.place(key)?.value.take()
    }

    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key as u32 as usize)?;
        if place.generation == (key >> 32) as u32 { place.value.as_ref() } else { None }
    }

    /// Ends the key's life.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.place(key)?;
        place.generation = place.generation.wrapping_add(1);
        let value = place.value.take();
        self.free.push(key as u32);
        value
    }

    /// Takes all values out, ending their keys' lives.
    pub fn drain(&mut self) -> Vec<T> {
        let mut values = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Some(value) = place.value.take() {
                place.generation = place.generation.wrapping_add(1);
                self.free.push(index as u32);
                values.push(value);
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.reserve();
        slab.put(first, 'a');
        assert_eq!(slab.get(first), Some(&'a'));
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.reserve();
        slab.put(second, 'b');
        assert_eq!(first as u32, second as u32, "the place is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.take(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&'b'));
    }

    #[test]
    fn a_taken_value_keeps_its_place() {
        let mut slab = Slab::new();
        let key = slab.reserve();
        slab.put(key, 1);
        assert_eq!(slab.take(key), Some(1));
        let other = slab.reserve();
        assert_ne!(key as u32, other as u32);
        slab.put(key, 2);
        assert_eq!(slab.drain(), vec![2]);
        assert_eq!(slab.get(key), None);
    }
}
