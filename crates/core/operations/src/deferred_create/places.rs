//! A hash table from the hash of a name to the index of a record within a part. It uses open addressing and stores
//! indexes only, so that a new name touches one cache line. Keys are stored in the records. Entries are only removed
//! all at once.

/// Initial number of slots.
const SLOTS_LEAST: usize = 64;

/// Record indexes by key.
#[derive(Default)]
pub(super) struct Places {
    /// Record index plus one, or 0 for an empty slot. The length is a power of two or 0.
    slots: Vec<u32>,
    count: usize,
}

impl Places {
    /// Returns the slots that a key may be in, in the order of probing.
    fn probe(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len().wrapping_sub(1);
        // Keys of a part share their upper bits, so they are mixed.
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..self.slots.len()).map(move |step| first.wrapping_add(step) & mask)
    }

    /// Returns the first index with a matching key for which `is` returns true.
    pub(super) fn find(&self, key: u64, mut is: impl FnMut(usize) -> bool) -> Option<usize> {
        let used = self.probe(key).map(|slot| self.slots[slot]).take_while(|&slot| slot != 0);
        used.map(|slot| slot as usize - 1).find(|&place| is(place))
    }

    /// Adds an index. `key_of` returns the keys of existing indexes.
    pub(super) fn add(&mut self, key: u64, place: u32, key_of: impl Fn(usize) -> u64) {
        if (self.count + 1) * 2 > self.slots.len() {
            let slots = vec![0; (self.slots.len() * 2).max(SLOTS_LEAST)];
            let before = std::mem::replace(&mut self.slots, slots);
            for slot in before.into_iter().filter(|&slot| slot != 0) {
                self.put(key_of(slot as usize - 1), slot);
            }
        }
        self.put(key, place + 1);
        self.count += 1;
    }

    fn put(&mut self, key: u64, value: u32) {
        let free = self.probe(key).find(|&slot| self.slots[slot] == 0);
        if let Some(slot) = free {
            self.slots[slot] = value;
        }
    }

    /// Removes all entries and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn places_are_found_by_their_keys_until_all_are_forgotten() {
        let mut random = fastrand::Rng::with_seed(3);
        // Some keys occur twice.
        let keys: Vec<u64> = (0..5_000).map(|_| random.u64(..2_000) << 40).collect();
        let mut places = Places::default();
        assert_eq!(places.find(7, |_| true), None);
        for round in 0..2 {
            for (place, &key) in keys.iter().enumerate() {
                assert_eq!(places.find(key, |at| at == place), None, "{round}");
                places.add(key, place as u32, |at| keys[at]);
            }
            for (place, &key) in keys.iter().enumerate() {
                assert_eq!(places.find(key, |at| at == place), Some(place));
                assert!(places.find(key, |at| keys[at] == key).is_some_and(|at| at <= place));
            }
            places.clear();
        }
        assert_eq!(places.find(keys[0], |_| true), None);
    }
}
