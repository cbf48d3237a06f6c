//! Detection of sequential reads.

use std::ops::Range;

use parking_lot::Mutex;

/// Number of sequential readers that are known at the same time.
const READERS: usize = 16;
/// Maximum distance of a read from the end of the previous one. Requests of one reader can arrive out of order.
const DISTANCE_MAX: u64 = 1 << 20;
/// Number of sequential bytes before the first read-ahead. Small files and metadata need none.
const UNAIDED_BYTES: u64 = 4 << 20;

/// Number of bytes that others read until a reader counts as new, or as many as all readers read in one turn. A walk returns
/// to a place after it has read others, and does not read on there for long.
const PAUSE_BYTES_MAX: u64 = 2 << 20;

/// Detects sequential reads of a device, and chooses the bytes to read ahead.
#[derive(Debug)]
pub(crate) struct SequentialReads {
    /// Maximum number of bytes ahead of a reader. A fast store needs its rate, multiplied by the time of two requests.
    window_max: u64,
    state: Mutex<ReadersState>,
}

#[derive(Debug, Default)]
struct ReadersState {
    /// The readers, the last active one first.
    readers: Vec<Reader>,
    /// Number of bytes that all readers have read.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    /// End of the last read.
    end: u64,
    /// Number of bytes read so far, without repeated ones.
    read: u64,
    /// End of the bytes that were read ahead.
    ahead: u64,
    /// Number of bytes of all readers at the last read.
    at_bytes: u64,
}

impl SequentialReads {
    pub(crate) fn new(window_max: u64) -> Self {
        Self { window_max, state: Mutex::default() }
    }

    /// Notes a read, and returns the bytes to read ahead. A read that does not wait has been requested by others, so it starts
    /// no read-ahead.
    pub(crate) fn note(&self, offset: u64, len: u64, is_waiting: bool) -> Option<Range<u64>> {
        let end = offset.saturating_add(len);
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_add(len);
        let ReadersState { readers, bytes } = &mut *state;
        let is_next = |reader: &Reader| reader.end.abs_diff(offset) <= DISTANCE_MAX;
        let Some(index) = readers.iter().position(is_next) else {
            readers.truncate(READERS - 1);
            readers.insert(0, Reader { end, read: len, ahead: end, at_bytes: *bytes });
            return None;
        };
        readers[..=index].rotate_right(1);
        let reader = &mut readers[0];
        if *bytes - reader.at_bytes > PAUSE_BYTES_MAX.max(len.saturating_mul(READERS as u64)) {
            reader.read = 0;
        }
        reader.at_bytes = *bytes;
        // Repeated reads do not count.
        reader.read = reader.read.saturating_add(end.saturating_sub(reader.end));
        reader.end = reader.end.max(end);
        reader.ahead = reader.ahead.max(reader.end);
        // At most as much as was read: the file may end here.
        let window = reader.read.min(self.window_max);
        let is_aided = !is_waiting && reader.ahead == reader.end;
        if is_aided || reader.read < UNAIDED_BYTES || reader.ahead - reader.end > window / 4 * 3 {
            return None;
        }
        let wanted = reader.ahead..reader.end.saturating_add(window);
        reader.ahead = wanted.end;
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 128 << 10;
    const WINDOW_MAX: u64 = 16 << 20;

    #[test]
    fn sequential_readers_stay_behind_what_was_read_ahead() {
        let reads = SequentialReads::new(WINDOW_MAX);
        let mut ahead = [0_u64, 1 << 40];
        for step in 0..1000 {
            for (reader, ahead) in ahead.iter_mut().enumerate() {
                let start = (reader as u64) << 40;
                // Each pair of requests arrives in the wrong order.
                let offset = start + (step ^ 1) * STEP;
                if let Some(wanted) = reads.note(offset, STEP, true) {
                    assert!(wanted.start >= *ahead, "nothing is read ahead twice");
                    assert!(wanted.end - offset <= WINDOW_MAX + 2 * STEP);
                    *ahead = wanted.end;
                }
                let is_ahead = *ahead > offset + STEP + UNAIDED_BYTES / 2;
                assert!(step < 40 || is_ahead, "step {step}: {ahead}, {offset}");
            }
        }
    }

    #[test]
    fn random_and_small_reads_cause_no_read_ahead() {
        let reads = SequentialReads::new(WINDOW_MAX);
        for step in 0..1000 {
            assert_eq!(reads.note(step * 7919 % 1000 * (4 << 20), 4096, true), None);
        }
        for file in 0..100 {
            for part in 0..2 {
                assert_eq!(reads.note((file * 16 + part) << 20, STEP / 2, true), None);
            }
        }
    }

    /// Directories lie next to each other, but are read in another order.
    #[test]
    fn a_walk_that_returns_to_a_place_causes_no_read_ahead() {
        let reads = SequentialReads::new(WINDOW_MAX);
        for directory in 0..300 {
            let (place, nth) = (directory % 3, directory / 3);
            for part in 0..12 {
                let offset = (place << 40) + (nth * 12 + part) * STEP;
                assert_eq!(reads.note(offset, STEP, true), None, "{directory}");
            }
        }
    }

    #[test]
    fn reads_that_others_requested_start_no_read_ahead() {
        let reads = SequentialReads::new(WINDOW_MAX);
        for step in 0..1000 {
            assert_eq!(reads.note(step * STEP, STEP, false), None, "{step}");
        }
        assert!(reads.note(1000 * STEP, STEP, true).is_some());
        let ahead = (1001..1200).filter(|step| reads.note(step * STEP, STEP, false).is_some());
        assert!(ahead.count() > 2, "a read-ahead goes on without waiting");
    }

    #[test]
    fn limits_of_offsets_are_respected() {
        let reads = SequentialReads::new(WINDOW_MAX);
        for _ in 0..4 {
            reads.note(u64::MAX, u64::MAX, true);
        }
    }
}
