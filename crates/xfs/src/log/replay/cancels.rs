//! Buffers that were given up: what was logged of them before does not count, because their blocks may hold
//! something else since.

use std::collections::HashMap;

/// How often buffers are still to be given up, by place and length.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    counts: HashMap<(u64, u32), u32>,
}

impl Cancels {
    /// Notes that a buffer is given up somewhere in the log.
    pub(super) fn add(&mut self, daddr: u64, blocks: u32) {
        *self.counts.entry((daddr, blocks)).or_default() += 1;
    }

    /// Whether a buffer is given up later.
    pub(super) fn has(&self, daddr: u64, blocks: u32) -> bool {
        self.counts.contains_key(&(daddr, blocks))
    }

    /// Passes one of the places in the log where a buffer is given up.
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
    fn a_buffer_counts_again_behind_the_last_place_where_it_was_given_up() {
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
