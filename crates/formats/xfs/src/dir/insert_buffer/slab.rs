//! Memory of an insert buffer: slots of many leaves in one allocation. Slots are accessed at random and rarely. Slots
//! scattered over the whole address space would cause misses of page tables as well.

/// Number of slots in one allocation.
const SLOTS_PER_PIECE: usize = 256;
pub(super) const LINE_WORDS: usize = 8;

/// One cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [u64; LINE_WORDS]);

/// The number of a slot, which contains the buffer of one leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// Memory for slots of one size.
pub(super) struct Slab {
    /// Lines per slot.
    lines: usize,
    pieces: Vec<Box<[Line]>>,
    /// Free slots that were used before.
    free: Vec<Slot>,
    /// Number of slots ever used.
    used: u32,
}

impl Slab {
    pub(super) const fn new(lines: usize) -> Self {
        Self { lines, pieces: Vec::new(), free: Vec::new(), used: 0 }
    }

    /// Allocates a zeroed slot.
    pub(super) fn take(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.get_mut(slot).fill(Line::default());
            return slot;
        }
        if self.used as usize == self.pieces.len() * SLOTS_PER_PIECE {
            self.pieces.push(vec![Line::default(); SLOTS_PER_PIECE * self.lines].into());
        }
        self.used += 1;
        Slot(self.used - 1)
    }

    /// Frees a slot. Its number must not be used afterwards.
    pub(super) fn give(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    pub(super) fn get(&self, slot: Slot) -> &[Line] {
        let (piece, first) = self.position(slot);
        &self.pieces[piece][first..first + self.lines]
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [Line] {
        let (piece, first) = self.position(slot);
        &mut self.pieces[piece][first..first + self.lines]
    }

    const fn position(&self, slot: Slot) -> (usize, usize) {
        let slot = slot.0 as usize;
        (slot / SLOTS_PER_PIECE, slot % SLOTS_PER_PIECE * self.lines)
    }

    /// Returns the bytes of memory in use.
    pub(super) const fn bytes(&self) -> usize {
        self.pieces.len() * SLOTS_PER_PIECE * self.lines * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_come_back_as_zeros() {
        let mut slab = Slab::new(3);
        let slots: Vec<_> = (0..SLOTS_PER_PIECE + 5).map(|_| slab.take()).collect();
        for (number, &slot) in slots.iter().enumerate() {
            slab.get_mut(slot).iter_mut().for_each(|line| line.0.fill(number as u64));
        }
        for (number, &slot) in slots.iter().enumerate() {
            assert!(slab.get(slot).iter().all(|line| line.0 == [number as u64; LINE_WORDS]));
        }
        let bytes = slab.bytes();
        slab.give(slots[7]);
        assert_eq!(slab.take(), slots[7]);
        assert!(slab.get(slots[7]).iter().all(|line| line.0 == [0; LINE_WORDS]));
        assert_eq!(slab.bytes(), bytes);
    }
}
