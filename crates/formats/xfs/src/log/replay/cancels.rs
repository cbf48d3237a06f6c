//! Cancelled buffers. Items of a buffer logged before its cancel must not be replayed, because its blocks may have
//! other contents since.

use std::collections::HashMap;

/// Number of remaining cancels, by location and length of the buffer.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    counts: HashMap<(u64, u32), u32>,
}

impl Cancels {
    /// Counts a cancel found anywhere in the log.
    pub(super) fn add(&mut self, daddr: u64, blocks: u32) {
        *self.counts.entry((daddr, blocks)).or_default() += 1;
    }

    /// Returns whether a buffer is cancelled later in the log.
    pub(super) fn has(&self, daddr: u64, blocks: u32) -> bool {
        self.counts.contains_key(&(daddr, blocks))
    }

    /// Called when the replay passes a cancel.
    pub(super) fn pass(&mut self, daddr: u64, blocks: u32) {
        if let Some(count) = self.counts.get_mut(&(daddr, blocks)) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&(daddr, blocks));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_counts_after_its_last_cancellation() {
        let mut cancels = Cancels::default();
        cancels.add(8, 8);
        cancels.add(8, 8);
        assert!(cancels.has(8, 8) && !cancels.has(8, 16));
        cancels.pass(8, 8);
        assert!(cancels.has(8, 8));
        cancels.pass(8, 8);
        cancels.pass(8, 8);
        assert!(!cancels.has(8, 8));
    }
}
