//! Records of a thread's use of locks and counters.
//!
//! The time of recording is measured separately and excluded from all other times. Only a part of each record, about
//! one reading of the clock, is not measured; `diskwright-bench scalability` determines and subtracts it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Kind of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Exclusive.
    Exclusive,
    /// Shared with other threads.
    Shared,
}

/// Use of one lock or counter by a thread.
#[derive(Clone, Debug)]
pub struct Use {
    /// Source file of the first use.
    pub file: &'static str,
    /// True for a counter, false for a lock.
    pub is_counter: bool,
    /// Number of exclusive holds, or of writes to the counter.
    pub exclusive: u64,
    /// Number of shared holds, or of reads of the counter.
    pub shared: u64,
    /// Total time of exclusive holds in nanoseconds.
    pub exclusive_ns: u64,
    /// Total time of shared holds in nanoseconds.
    pub shared_ns: u64,
    /// Number of records during exclusive holds.
    pub notes_inside: u64,
    /// Number of records during shared holds.
    pub notes_inside_shared: u64,
    /// Number of waits.
    pub waits: u64,
    /// Total wait time in nanoseconds.
    pub waited_ns: u64,
    /// Turns of the thread with a use, ascending, and whether its cache line was written in that turn.
    pub turns: Vec<(u32, bool)>,
}

/// Records of a thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadRecords {
    /// Use of each lock and counter, by address.
    pub uses: HashMap<usize, Use>,
    /// Number of records: two for each hold of a lock, one for each use of a counter.
    pub notes: u64,
    /// Total time of recording in nanoseconds.
    pub noting_ns: u64,
}

struct Holding {
    lock: usize,
    hold: Hold,
    since: u64,
    noting_ns: u64,
    notes: u64,
}

struct Recorder {
    base: Instant,
    turn: Option<u32>,
    held: Vec<Holding>,
    record: ThreadRecords,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Starts recording in this thread, in addition to `record`. With a turn, the uses of cache lines are recorded as well.
pub fn start(record: ThreadRecords, turn: Option<u32>) {
    let recorder = Recorder { base: Instant::now(), turn, held: Vec::new(), record };
    RECORDER.with(|slot| *slot.borrow_mut() = Some(recorder));
}

/// Stops recording in this thread and returns the record.
pub fn stop() -> ThreadRecords {
    RECORDER
        .with(|slot| slot.borrow_mut().take())
        .map(|recorder| recorder.record)
        .unwrap_or_default()
}

/// Calls `note` with the recorder of this thread, if it is recording.
fn with(note: impl FnOnce(&mut Recorder, u64)) {
    // The thread-local is gone while the thread ends.
    let _ = RECORDER.try_with(|slot| {
        let Ok(mut slot) = slot.try_borrow_mut() else { return };
        let Some(recorder) = &mut *slot else { return };
        let began = recorder.now();
        recorder.record.notes += 1;
        note(recorder, began);
    });
}

pub(super) fn acquired(
    lock: usize,
    hold: Hold,
    place: &'static Location<'static>,
    waited: Option<Duration>,
) {
    with(|recorder, began| {
        let used = recorder.used(lock, place, false, true);
        match hold {
            Hold::Exclusive => used.exclusive += 1,
            Hold::Shared => used.shared += 1,
        }
        if let Some(waited) = waited {
            used.waits += 1;
            used.waited_ns += nanos(waited);
        }
        let now = recorder.now();
        recorder.record.noting_ns += now - began;
        let ThreadRecords { noting_ns, notes, .. } = recorder.record;
        recorder.held.push(Holding { lock, hold, since: now, noting_ns, notes });
    });
}

pub(super) fn released(lock: usize) {
    with(|recorder, began| {
        // A lock taken before recording started is not in the list.
        if let Some(at) = recorder.held.iter().rposition(|held| held.lock == lock) {
            let held = recorder.held.remove(at);
            let ThreadRecords { uses, notes, noting_ns } = &mut recorder.record;
            // This record itself is not inside the hold.
            let inside = *notes - 1 - held.notes;
            let time = (began - held.since).saturating_sub(*noting_ns - held.noting_ns);
            if let Some(used) = uses.get_mut(&lock) {
                let (sum, notes) = match held.hold {
                    Hold::Exclusive => (&mut used.exclusive_ns, &mut used.notes_inside),
                    Hold::Shared => (&mut used.shared_ns, &mut used.notes_inside_shared),
                };
                *sum += time;
                *notes += inside;
            }
        }
        recorder.record.noting_ns += recorder.now() - began;
    });
}

pub(super) fn touched(counter: usize, place: &'static Location<'static>, is_write: bool) {
    with(|recorder, began| {
        let used = recorder.used(counter, place, true, is_write);
        if is_write {
            used.exclusive += 1;
        } else {
            used.shared += 1;
        }
        recorder.record.noting_ns += recorder.now() - began;
    });
}

impl Recorder {
    /// Returns the nanoseconds since recording started.
    fn now(&self) -> u64 {
        nanos(self.base.elapsed())
    }

    /// Returns the entry of a lock or counter that is being used.
    fn used(
        &mut self,
        address: usize,
        place: &'static Location<'static>,
        is_counter: bool,
        is_write: bool,
    ) -> &mut Use {
        let turn = self.turn;
        let used = self.record.uses.entry(address).or_insert_with(|| Use {
            file: place.file(),
            is_counter,
            exclusive: 0,
            shared: 0,
            exclusive_ns: 0,
            shared_ns: 0,
            notes_inside: 0,
            notes_inside_shared: 0,
            waits: 0,
            waited_ns: 0,
            turns: Vec::new(),
        });
        match (turn, used.turns.last_mut()) {
            (Some(turn), Some(last)) if last.0 == turn => last.1 |= is_write,
            (Some(turn), _) => used.turns.push((turn, is_write)),
            (None, _) => {}
        }
        used
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::atomic::AtomicU32;
    use super::super::{Mutex, RwLock};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn only(record: &ThreadRecords) -> &Use {
        assert_eq!(record.uses.len(), 1);
        record.uses.values().next().unwrap()
    }

    #[test]
    fn a_thread_notes_what_it_holds_and_how_long() {
        let lock = Mutex::new(1);
        *lock.lock() += 1;
        start(ThreadRecords::default(), Some(7));
        let guard = lock.lock();
        std::thread::sleep(Duration::from_millis(3));
        drop(guard);
        assert!(lock.try_lock().is_some());
        let record = stop();
        *lock.lock() += 1;
        let used = only(&record);
        assert!(used.file.ends_with("recording.rs"), "where it was asked for: {}", used.file);
        assert_eq!((used.exclusive, used.shared, used.waits), (2, 0, 0));
        assert!((3_000_000..1_000_000_000).contains(&used.exclusive_ns), "{}", used.exclusive_ns);
        assert_eq!(used.turns, [(7, true)]);
        assert_eq!(record.notes, 4);
    }

    #[test]
    fn nested_locks_are_recorded_separately() {
        let (outer, inner) = (Arc::new(RwLock::new(())), AtomicU32::new(0));
        start(ThreadRecords::default(), None);
        let guard = outer.write_arc();
        inner.fetch_add(1, Ordering::Relaxed);
        inner.load(Ordering::Relaxed);
        drop(super::super::ArcRwLockWriteGuard::downgrade(guard));
        drop(outer.read());
        let record = stop();
        let (locks, counters): (Vec<_>, Vec<_>) =
            record.uses.values().partition(|used| !used.is_counter);
        assert_eq!((locks[0].exclusive, locks[0].shared, locks[0].notes_inside), (1, 1, 2));
        assert_eq!((counters[0].exclusive, counters[0].shared), (1, 1));
    }

    #[test]
    fn waiting_is_counted_and_is_no_holding() {
        let lock = Arc::new(Mutex::new(()));
        let guard = lock.lock();
        let other = std::thread::spawn({
            let lock = lock.clone();
            move || {
                start(ThreadRecords::default(), None);
                drop(lock.lock());
                stop()
            }
        });
        // Long enough for the thread to reach the lock on any machine.
        std::thread::sleep(Duration::from_millis(300));
        drop(guard);
        let record = other.join().unwrap();
        let used = only(&record);
        assert_eq!((used.exclusive, used.waits), (1, 1));
        assert!(used.exclusive_ns < used.waited_ns);
    }
}
