//! Shared objects, derived from each thread's records: locks and counters, exclusive hold times, and movements of cache
//! lines between processors.

use std::collections::{BTreeMap, HashMap};

use engine::lock_counts::recording::ThreadRecords;

use super::model::Demands;

/// Time to move a cache line between processors of a large machine, in nanoseconds.
pub(super) const MOVE_NS: f64 = 100.0;
/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Name of the lock held while a checkpoint is written.
const WRITER: &str = "writer of checkpoints";

/// Names by source file: of its locks and of its counters.
const NAMES: [(&str, &str, &str); 19] = [
    ("engine/src/cache.rs", "shard of the cache", "list of dirty shards"),
    ("engine/src/checkpoint.rs", WRITER, "checkpoint that is needed"),
    ("engine/src/checkpoint_lock.rs", "checkpoint lock", "stripes in use"),
    ("engine/src/engine.rs", "block", "running checkpoint"),
    ("engine/src/txn.rs", "block", "dirty blocks"),
    ("operations/src/locks.rs", "inode", ""),
    ("operations/src/opens.rs", "open inodes", ""),
    ("operations/src/groups/mod.rs", "group", ""),
    ("operations/src/groups/guard.rs", "lists of groups", ""),
    ("ext4/src/alloc/groups.rs", "", "what a group shows"),
    ("ext4/src/alloc/reserved.rs", "kept inodes", "kept inodes"),
    ("ext4/src/waiting/gate.rs", "", "gate of a directory"),
    ("ext4/src/waiting/mod.rs", "files that wait", "files that wait"),
    ("ext4/src/log/journal.rs", "log", ""),
    ("xfs/src/alloc/ags.rs", "", "what a group shows"),
    ("xfs/src/dir/store.rs", "directory states", "insert buffers"),
    ("xfs/src/inode/gone.rs", "chunks that were given back", "chunks that were given back"),
    ("xfs/src/log/xfs_log.rs", "log", ""),
    ("xfs/src/file/hints.rs", "", "place of new data"),
];

/// Returns the name of an object used in a source file.
pub(super) fn name_of(file: &'static str, is_counter: bool) -> &'static str {
    let known = NAMES.iter().find(|(end, ..)| file.ends_with(end));
    let name = known.map_or("", |(_, lock, counter)| if is_counter { counter } else { lock });
    if name.is_empty() { file } else { name }
}

/// All uses of one lock or counter.
#[derive(Default)]
struct Thing {
    name: &'static str,
    is_counter: bool,
    workers: u32,
    exclusive: u64,
    shared: u64,
    exclusive_ns: f64,
    shared_ns: f64,
}

/// Movements of a cache line between processors.
#[derive(Clone, Copy, Default)]
struct Moves {
    /// Share of the turns that write it.
    writes: f64,
    /// Number of turns that only read it.
    reads: u64,
}

/// Objects of one kind, as used by one operation.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectUse {
    pub(super) name: &'static str,
    /// Number of exclusive holds or writes.
    pub(super) exclusive: f64,
    /// Number of shared holds.
    pub(super) shared: f64,
    /// Duration of an exclusive hold in nanoseconds.
    pub(super) held_ns: f64,
    /// Number of cache lines moved from another processor.
    pub(super) moves: f64,
}

/// Usage of one operation.
#[derive(Default)]
pub(super) struct OperationUsage {
    /// By kind, sorted by name.
    pub(super) kinds: Vec<ObjectUse>,
    /// Number of cache lines of locks and counters that it writes.
    pub(super) lines: f64,
    pub(super) demands: Demands,
    /// The object with the highest demand that serves one thread at a time: name and nanoseconds.
    pub(super) busiest: (&'static str, f64),
}

impl OperationUsage {
    /// Computes the usage of one of `operations` operations, each of which takes `operation_ns` by itself. Recorded
    /// times are multiplied by `scale`; each lacks `unseen_ns` per record.
    pub(super) fn of(
        records: &[ThreadRecords],
        (operations, operation_ns): (u64, f64),
        (scale, unseen_ns): (f64, f64),
    ) -> Self {
        let operations = operations.max(1) as f64;
        let things = things(records, unseen_ns);
        let (moves, lines) = moves(records);
        let mut usage = Self { lines: lines as f64 / operations, ..Self::default() };
        let mut kinds: BTreeMap<&str, ObjectUse> = BTreeMap::new();
        let (mut elsewhere, mut held_by_shared) = (0.0, 0.0);
        for (address, thing) in &things {
            let moves = moves.get(&(address / LINE)).copied().unwrap_or_default();
            let moved = thing.moved(moves.writes) / operations;
            let held = thing.exclusive_ns * scale / operations;
            let kind = kinds.entry(thing.name).or_default();
            kind.name = thing.name;
            kind.exclusive += thing.exclusive as f64 / operations;
            kind.shared += if thing.is_counter { 0.0 } else { thing.shared as f64 / operations };
            kind.held_ns += held;
            kind.moves += moved;
            let need = held + moved * MOVE_NS;
            if thing.workers < 2 {
                elsewhere += moved * MOVE_NS;
                continue;
            }
            held_by_shared += held;
            usage.demands.shared_ns.push(need);
            if need > usage.busiest.1 {
                usage.busiest = (thing.name, need);
            }
        }
        let reads: u64 = moves.values().map(|moves| moves.reads).sum();
        elsewhere += reads as f64 / operations * MOVE_NS;
        usage.demands.own_ns = (operation_ns - held_by_shared).max(0.0) + elsewhere;
        usage.kinds = kinds.into_values().map(ObjectUse::with_mean).collect();
        usage
    }

    /// Returns whether each operation waits for a checkpoint. Concurrent waiters share one, which a queue does not
    /// model.
    pub(super) fn writes_checkpoints(&self) -> bool {
        self.kinds.iter().any(|kind| kind.name == WRITER && kind.exclusive > 0.5)
    }

    /// Returns the number of locks taken.
    pub(super) fn locks(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.exclusive + kind.shared).sum()
    }

    /// Returns the number of cache lines moved from another processor.
    pub(super) fn moves(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.moves).sum()
    }

    /// Returns the kind of lock with the longest hold time, if there is one.
    pub(super) fn longest(&self) -> Option<&ObjectUse> {
        self.kinds.iter().max_by(|one, other| one.held_ns.total_cmp(&other.held_ns))
    }
}

impl ObjectUse {
    /// Replaces the total hold time by the mean.
    fn with_mean(mut self) -> Self {
        if self.exclusive > 0.0 {
            self.held_ns /= self.exclusive;
        }
        self
    }
}

impl Thing {
    /// Returns the number of movements of its cache line. `share` is the share of uses that find the line on another
    /// processor. A lock that is held longer than a movement takes counts twice: another processor takes the line in
    /// the meantime, so it moves again for the release.
    fn moved(&self, share: f64) -> f64 {
        let times = |uses: u64, ns: f64| {
            let is_long = !self.is_counter && ns > uses as f64 * MOVE_NS;
            uses as f64 * if is_long { 2.0 } else { 1.0 }
        };
        let shared = if self.is_counter { 0.0 } else { times(self.shared, self.shared_ns) };
        share * (times(self.exclusive, self.exclusive_ns) + shared)
    }
}

fn things(records: &[ThreadRecords], unseen_ns: f64) -> HashMap<usize, Thing> {
    let mut things: HashMap<usize, Thing> = HashMap::new();
    for record in records {
        for (&address, used) in &record.uses {
            let thing = things.entry(address).or_default();
            if thing.workers == 0 {
                thing.name = name_of(used.file, used.is_counter);
                thing.is_counter = used.is_counter;
            }
            let seen = |ns: u64, uses: u64, notes: u64| {
                // The hold time includes the end of its first record and the beginning of the second.
                (ns as f64 - (uses + notes) as f64 * unseen_ns).max(0.0)
            };
            thing.workers += 1;
            thing.exclusive += used.exclusive;
            thing.shared += used.shared;
            thing.exclusive_ns += seen(used.exclusive_ns, used.exclusive, used.notes_inside);
            thing.shared_ns += seen(used.shared_ns, used.shared, used.notes_inside_shared);
        }
    }
    things
}

/// Returns the movements of each line, and the number of lines written in all turns.
fn moves(records: &[ThreadRecords]) -> (HashMap<usize, Moves>, usize) {
    let mut touches: HashMap<usize, BTreeMap<u32, (usize, bool)>> = HashMap::new();
    for (worker, record) in records.iter().enumerate() {
        for (address, used) in &record.uses {
            let line = touches.entry(address / LINE).or_default();
            for &(turn, is_write) in &used.turns {
                line.entry(turn).or_insert((worker, false)).1 |= is_write;
            }
        }
    }
    let mut written = 0;
    let moves = touches.into_iter().map(|(line, turns)| {
        written += turns.values().filter(|(_, is_write)| *is_write).count();
        (line, moves_of(turns.into_values()))
    });
    (moves.collect(), written)
}

/// Returns the movements of a line used by these workers in turn, some of which wrote it.
fn moves_of(turns: impl Iterator<Item = (usize, bool)>) -> Moves {
    let (mut writes, mut moved, mut reads) = (0_u64, 0_u64, 0);
    let mut last = None;
    // Workers with a valid copy of the line.
    let mut holders: Vec<usize> = Vec::new();
    for (worker, is_write) in turns {
        let has_it = holders.contains(&worker);
        if is_write {
            writes += 1;
            moved += u64::from(last.is_some_and(|last| last != worker));
            holders.clear();
        } else if last.is_some() && !has_it {
            reads += 1;
        }
        if is_write || !has_it {
            holders.push(worker);
        }
        last = Some(worker);
    }
    Moves { writes: if writes == 0 { 0.0 } else { moved as f64 / writes as f64 }, reads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::lock_counts::recording::Use;

    fn record(address: usize, turns: &[(u32, bool)], held_ns: u64) -> ThreadRecords {
        let used = Use {
            file: "crates/core/engine/src/cache.rs",
            is_counter: false,
            exclusive: turns.len() as u64,
            shared: 0,
            exclusive_ns: held_ns,
            shared_ns: 0,
            notes_inside: 0,
            notes_inside_shared: 0,
            waits: 0,
            waited_ns: 0,
            turns: turns.to_vec(),
        };
        ThreadRecords { uses: [(address, used)].into(), ..ThreadRecords::default() }
    }

    #[test]
    fn a_line_moves_if_another_thread_used_it() {
        let moves = |turns: &[(usize, bool)]| {
            let moves = moves_of(turns.iter().copied());
            (moves.writes, moves.reads)
        };
        assert_eq!(moves(&[(0, true), (0, true), (0, true)]), (0.0, 0));
        assert_eq!(moves(&[(0, true), (1, true), (0, true), (0, true)]), (0.5, 0));
        assert_eq!(moves(&[(0, true), (1, false), (1, false), (2, false)]), (0.0, 2));
        assert_eq!(moves(&[(0, true), (1, false), (0, true), (1, false)]), (0.5, 2));
        assert_eq!(moves(&[]), (0.0, 0));
    }

    #[test]
    fn a_lock_of_all_threads_is_a_queue_and_one_of_a_thread_is_not() {
        let all: Vec<_> = (0..4).map(|w| record(6400, &[(w, true), (w + 4, true)], 40)).collect();
        let usage = OperationUsage::of(&all, (8, 1000.0), (1.0, 0.0));
        assert_eq!(usage.busiest.0, "shard of the cache");
        assert_eq!(usage.demands.shared_ns.len(), 1);
        // Held for 20 ns; seven of eight uses find the line elsewhere.
        assert!((usage.busiest.1 - (20.0 + MOVE_NS * 7.0 / 8.0)).abs() < 1e-9);
        assert!((usage.demands.own_ns - 980.0).abs() < 1e-9);
        assert_eq!((usage.locks(), usage.lines), (1.0, 1.0));

        let own: Vec<_> = (0..4)
            .map(|w| record(6400 * (w as usize + 1), &[(w, true), (w + 4, true)], 40))
            .collect();
        let usage = OperationUsage::of(&own, (8, 1000.0), (1.0, 0.0));
        assert!(usage.demands.shared_ns.is_empty());
        assert_eq!((usage.demands.own_ns, usage.moves()), (1000.0, 0.0));
        assert_eq!(usage.longest().map(|kind| kind.held_ns), Some(20.0));
    }

    #[test]
    fn neighbours_in_a_line_disturb_each_other() {
        let near: Vec<_> = (0..2)
            .map(|w| record(6400 + 8 * w as usize, &[(w, true), (w + 2, true)], 40))
            .collect();
        let usage = OperationUsage::of(&near, (4, 1000.0), (1.0, 0.0));
        assert!(usage.demands.shared_ns.is_empty(), "no lock is of two");
        assert!((usage.moves() - 0.75).abs() < 1e-9, "{}", usage.moves());
        assert!((usage.demands.own_ns - 1075.0).abs() < 1e-9);
    }

    #[test]
    fn unnamed_locks_are_named_after_their_source_file() {
        assert_eq!(name_of("crates/core/operations/src/locks.rs", false), "inode");
        assert_eq!(name_of("crates/x/src/new.rs", false), "crates/x/src/new.rs");
        assert_eq!(
            name_of("crates/core/operations/src/locks.rs", true),
            "crates/core/operations/src/locks.rs"
        );
    }
}
