use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A group that counts free blocks.
struct CountedGroup {
    /// Free blocks that are not busy.
    usable: AtomicU32,
}

/// Counts busy blocks, including those of open operations.
#[derive(Default)]
struct BusyCount {
    running: u32,
    closed: u32,
    kept: u32,
}

fn count(freed: &[Range<u32>]) -> u32 {
    freed.iter().map(|run| run.end - run.start).sum()
}

impl Busy for BusyCount {
    fn add(&mut self, freed: &Range<u32>) {
        self.running += freed.end - freed.start;
    }

    fn take_back(&mut self, freed: &[Range<u32>]) {
        self.running -= count(freed);
    }

    fn keep(&mut self, freed: &[Range<u32>]) {
        self.kept += count(freed);
    }

    fn close(&mut self) {
        self.closed += std::mem::take(&mut self.running);
    }

    fn release(&mut self) {
        self.closed = 0;
    }
}

impl Group for CountedGroup {
    type Number = u32;
    type State = u32;
    type Busy = BusyCount;

    fn index(number: u32) -> usize {
        number as usize
    }

    fn publish(&self, free: &u32, busy: &BusyCount) {
        self.usable.store(free - busy.running - busy.closed, Ordering::Relaxed);
    }

    fn is_changed(before: &u32, after: &u32) -> bool {
        before != after
    }
}

fn groups(count: u32) -> Groups<CountedGroup> {
    Groups::new(
        (0..count).map(|_| (CountedGroup { usable: AtomicU32::new(0) }, 100, BusyCount::default())),
    )
}

fn usable(groups: &Groups<CountedGroup>, number: u32) -> u32 {
    groups.group(number).usable.load(Ordering::Relaxed)
}

/// Frees blocks of a group.
fn free(held: &mut HeldGroups<'_, CountedGroup>, number: u32, run: Range<u32>) {
    let at = held.hold(number).unwrap();
    *held[at] += run.end - run.start;
    held[at].add_busy(run);
}

/// Returns the dirty groups and marks them as clean.
fn flush(groups: &Groups<CountedGroup>) -> Vec<(u32, u32)> {
    let mut written = Vec::new();
    let mut write = |number, _: &CountedGroup, state: &mut u32| {
        written.push((number, *state));
        Ok::<_, ()>(())
    };
    let was_dirty = groups.flush_dirty(&mut write).unwrap();
    assert_eq!(was_dirty, !written.is_empty());
    written
}

#[test]
fn dropped_reservations_change_nothing() {
    let groups = groups(2);
    let mut held = HeldGroups::new(&groups);
    free(&mut held, 1, 10..20);
    assert_eq!(held.find(1).unwrap().busy_set().running, 10);
    drop(held);
    assert_eq!((groups.state(1), usable(&groups, 1)), (100, 100));
    assert!(!groups.has_busy());
    assert!(flush(&groups).is_empty());
    assert_eq!(groups.hold(1).busy_set().running, 0);
}

#[test]
fn committed_changes_are_busy_until_their_checkpoint_is_durable() {
    let groups = groups(3);
    for (number, run) in [(2, 10..20), (0, 5..6), (2, 30..31)] {
        let mut held = HeldGroups::new(&groups);
        free(&mut held, number, run);
        held.hold(number).unwrap();
        held.keep_all();
        assert!(held.find(number).is_none(), "kept and still held");
    }
    let mut held = HeldGroups::new(&groups);
    held.hold(1).unwrap();
    held.keep_all();
    assert_eq!((groups.state(2), usable(&groups, 2)), (111, 100));
    assert_eq!(groups.busy_running.lock().len(), 2, "each group is listed once");
    assert_eq!(flush(&groups), [(0, 101), (2, 111)], "each once, in ascending order");
    assert!(flush(&groups).is_empty());

    groups.close_busy();
    assert!(groups.has_busy());
    assert_eq!(usable(&groups, 2), 100);
    // Blocks freed in the next checkpoint wait for that one.
    let mut held = HeldGroups::new(&groups);
    free(&mut held, 2, 40..42);
    held.keep_all();
    groups.release_busy();
    assert_eq!((usable(&groups, 0), usable(&groups, 2)), (101, 111));
    assert!(groups.has_busy());
    groups.close_busy();
    groups.release_busy();
    assert_eq!((usable(&groups, 2), groups.has_busy()), (113, false));
    assert_eq!(groups.hold(2).busy_set().kept, 13);
}

#[test]
fn a_group_out_of_order_is_only_tried() {
    let groups = groups(4);
    let mut held = HeldGroups::new(&groups);
    assert_eq!(held.hold(2).unwrap(), 0);
    assert_eq!(held.hold(0).unwrap(), 1, "nobody has it");
    assert_eq!(held.hold(2).unwrap(), 0, "held already");
    assert!(held.needed().is_none());
    let other = groups.hold(1);
    assert!(held.try_hold(1).is_none());
    assert!(held.needed().is_none(), "only tried");
    assert!(held.hold(1).unwrap_err().failure().is_none(), "started again");
    assert_eq!(held.needed().unwrap()[..], [2, 0, 1]);
    drop(other);
    assert_eq!(held.try_hold(1), Some(2));
    assert_eq!(held[2].number(), 1);
}
