//! The contract of the engine: all or nothing, consistent checkpoints, bounded memory.

extern crate diskwright_engine as engine;

mod large;
mod minor;

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use disk::{Access, BlockDevice, Fault, FaultyDevice, MemoryDevice};
use engine::{
    BlockFormat, Changed, Checkpoint, Corruption, Engine, Error, Fit, Log, Options, Result, Size,
    Tag, Txn,
};

const BLOCK: usize = 1024;
/// Value that the second byte of a block must not have, if it changed.
const WRONG: u8 = 0xbd;
const TAG: Tag = Tag { kind: 1, seed: 0, owner: 0 };

/// Blocks end with the sum of their other bytes; all-zero blocks are valid, too.
#[derive(Default)]
struct Sums {
    flushed: AtomicU64,
}

fn sum(data: &[u8]) -> u32 {
    data[..BLOCK - 4].iter().map(|&b| u32::from(b)).sum()
}

impl BlockFormat for Sums {
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> std::result::Result<(), Corruption> {
        let stored = u32::from_le_bytes(data[BLOCK - 4..].try_into().unwrap());
        if tag.kind == 1 && sum(data) != stored {
            return Err(Corruption::checksum("block", sum(data), stored).at_block(block));
        }
        Ok(())
    }

    fn seal(
        &self,
        tag: Tag,
        block: u64,
        changed: Changed,
        data: &mut [u8],
    ) -> std::result::Result<(), Corruption> {
        if changed.touches(1..2) && data[1] == WRONG {
            return Err(Corruption::new("block", "its second byte").at_block(block));
        }
        if tag.kind == 1 {
            let sum = sum(data);
            data[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }

    fn flush_deferred(&self, _: &mut Txn<'_>) -> Result<()> {
        self.flushed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// Records the contents of each checkpoint, and can run a callback while one is written.
#[derive(Clone, Default)]
struct Recorder {
    written: Arc<Mutex<Vec<Recorded>>>,
    /// Tag kind of each block written.
    kinds: Arc<Mutex<Vec<u8>>>,
    during_write: Arc<Mutex<Option<Hook>>>,
    advanced: Arc<Mutex<Vec<u64>>>,
    roomy: Arc<AtomicBool>,
    /// If set, checkpoints do not fit into the log.
    full: Arc<AtomicBool>,
    is_small: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Recorded {
    blocks: Vec<(u64, u64, u8)>,
    freed: Vec<u64>,
}

impl Log for Recorder {
    fn write(&self, checkpoint: &Checkpoint<'_>) -> Result<()> {
        if let Some(hook) = self.during_write.lock().unwrap().take() {
            hook();
        }
        let mut blocks = Vec::new();
        checkpoint.for_each(|image| {
            let data = image.data;
            assert_eq!(sum(data), u32::from_le_bytes(data[BLOCK - 4..].try_into().unwrap()));
            blocks.push((image.block, image.pieces, data[0]));
            self.kinds.lock().unwrap().push(image.tag.kind);
            Ok(())
        })?;
        let freed = checkpoint.freed().to_vec();
        self.written.lock().unwrap().push(Recorded { blocks, freed });
        Ok(())
    }

    fn advance_tail(&self, sequence: u64) -> Result<()> {
        self.advanced.lock().unwrap().push(sequence);
        Ok(())
    }

    fn blocks_max(&self) -> usize {
        if self.is_small { 100 } else { 1 << 20 }
    }

    fn fit(&self, _: Size) -> Fit {
        match self.roomy.load(Ordering::Relaxed) {
            _ if self.full.load(Ordering::Relaxed) => Fit::Not,
            true => Fit::WithAnother,
            false => Fit::Alone,
        }
    }
}

fn engine(log: Option<Recorder>) -> (Arc<MemoryDevice>, Arc<Engine>) {
    let device = Arc::new(MemoryDevice::new(1 << 20));
    let options = Options { block_size: BLOCK, cache_bytes: 256 << 10 };
    let log = log.map(|l| Box::new(l) as Box<dyn Log>);
    let engine = Engine::new(device.clone(), Arc::new(Sums::default()), log, options);
    engine.set_checkpoint_threads(NonZeroUsize::new(3));
    (device, Arc::new(engine))
}

fn set(engine: &Engine, block: u64, value: u8) {
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(block, TAG).unwrap();
    txn.edit(id, 0..1)[0] = value;
    txn.commit();
}

fn on_device(device: &MemoryDevice, block: u64) -> u8 {
    let mut byte = [0];
    device.read_at(block * BLOCK as u64, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_dropped_transaction_leaves_no_trace() {
    let (device, engine) = engine(None);
    set(&engine, 3, 7);
    let mut txn = engine.begin().unwrap();
    let a = txn.buffer(3, TAG).unwrap();
    txn.edit(a, 0..10).fill(1);
    txn.edit(a, 5..20).fill(2);
    let b = txn.create(4, TAG).unwrap();
    txn.edit(b, 0..4).fill(9);
    let a_again = txn.create(3, Tag { kind: 2, ..TAG }).unwrap();
    assert_eq!(a, a_again);
    txn.retag(a, Tag { kind: 3, ..TAG });
    drop(txn);
    let block = engine.read(3, TAG).unwrap();
    assert_eq!(block[..3], [7, 0, 0]);
    drop(block);
    assert_eq!(engine.read(4, TAG).unwrap()[0], 0);
    engine.checkpoint().unwrap();
    assert_eq!((on_device(&device, 3), on_device(&device, 4)), (7, 0));
}

#[test]
fn marks_go_with_a_change_that_does_not_keep_them() {
    let (_, engine) = engine(Some(Recorder::default()));
    let marks = || engine.read(3, TAG).unwrap().marks();
    let mark = |bits| engine.read(3, TAG).unwrap().mark(bits);
    // Readers add marks one after the other, and so does the transaction that changes the block.
    assert_eq!(marks(), 0);
    mark(1);
    mark(4);
    assert_eq!(marks(), 5);
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(3, TAG).unwrap();
    txn.edit_noted(id, 0..1)[0] = 7;
    txn.mark(id, 2);
    txn.commit();
    assert_eq!(marks(), 7);
    engine.checkpoint().unwrap();
    assert_eq!(marks(), 7, "a checkpoint changes nothing of them");

    set(&engine, 3, 8);
    assert_eq!(marks(), 0);
    // A rollback discards all marks.
    mark(1);
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(3, TAG).unwrap();
    txn.edit_noted(id, 0..1)[0] = 9;
    txn.mark(id, 2);
    drop(txn);
    assert_eq!(marks(), 0);
    // Forgetting the block has the same effect.
    mark(1);
    let mut txn = engine.begin().unwrap();
    txn.forget(3);
    txn.commit();
    let mut txn = engine.begin().unwrap();
    txn.create(3, TAG).unwrap();
    txn.commit();
    assert_eq!(marks(), 0);
}

#[test]
fn bytes_that_were_moved_go_back() {
    let (_, engine) = engine(None);
    let mut txn = engine.begin().unwrap();
    let id = txn.create(6, TAG).unwrap();
    let before: Vec<u8> = (0..BLOCK).map(|at| at as u8).collect();
    txn.edit(id, 0..BLOCK - 4).copy_from_slice(&before[..BLOCK - 4]);
    let total = sum(txn.data(id)).to_le_bytes();
    txn.edit(id, BLOCK - 4..BLOCK).copy_from_slice(&total);
    txn.commit();
    let before = engine.read(6, TAG).unwrap().to_vec();
    // Up and down, overlapping and disjoint, onto themselves, and an empty range.
    let moves = [(8..100, 16), (300..400, 290), (10..20, 500), (40..50, 40), (7..7, 3), (0..9, 9)];
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(6, TAG).unwrap();
    let mut expected = before.clone();
    for (source, target) in moves {
        txn.shift(id, source.clone(), target);
        expected.copy_within(source, target);
        assert_eq!(txn.data(id), expected);
        txn.edit(id, 12..18).fill(0xee);
        expected[12..18].fill(0xee);
    }
    drop(txn);
    assert_eq!(engine.read(6, TAG).unwrap().to_vec(), before);
}

#[test]
fn nothing_is_written_back_before_it_is_in_the_log() {
    let log = Recorder::default();
    let (device, engine) = engine(Some(log.clone()));
    set(&engine, 3, 7);
    let home = device.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || assert_eq!(on_device(&home, 3), 0)));
    engine.empty_log().unwrap();
    assert_eq!(on_device(&device, 3), 7);
    assert_eq!(log.written.lock().unwrap()[0].blocks, [(3, u64::MAX, 7)]);
}

#[test]
fn a_checkpoint_being_written_does_not_see_later_changes() {
    let log = Recorder::default();
    let (device, engine) = engine(Some(log.clone()));
    set(&engine, 3, 7);
    set(&engine, 5, 1);
    let later = engine.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || {
        set(&later, 3, 8);
        let mut txn = later.begin().unwrap();
        txn.forget(5);
        txn.commit();
    }));
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!((on_device(&device, 3), on_device(&device, 5)), (0, 0));
    engine.empty_log().unwrap();
    assert_eq!((on_device(&device, 3), on_device(&device, 5)), (8, 0));
    let written = log.written.lock().unwrap();
    let all = u64::MAX;
    assert_eq!(written[0], Recorded { blocks: vec![(3, all, 7), (5, all, 1)], freed: vec![] });
    assert_eq!(written[1], Recorded { blocks: vec![(3, all, 8)], freed: vec![5] });
}

#[test]
fn a_checkpoint_in_progress_keeps_the_old_block_types() {
    let log = Recorder::default();
    let (_, engine) = engine(Some(log.clone()));
    set(&engine, 3, 7);
    let later = engine.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || {
        let mut txn = later.begin().unwrap();
        let id = txn.buffer(3, TAG).unwrap();
        // Before the edit, as for a leaf that becomes a root.
        txn.retag(id, Tag { kind: 2, ..TAG });
        txn.edit(id, 0..1)[0] = 8;
        let end = BLOCK - 4..BLOCK;
        txn.edit(id, end).copy_from_slice(&8_u32.to_le_bytes());
        txn.commit();
    }));
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(*log.kinds.lock().unwrap(), [1, 2]);
}

#[test]
fn a_block_is_whole_in_the_log_before_parts_of_it_are() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (_, engine) = engine(Some(log.clone()));
    for value in 1..=3 {
        set(&engine, 3, value);
        engine.checkpoint().unwrap();
    }
    // The log has little room for this checkpoint, so older blocks are written back.
    log.roomy.store(false, Ordering::Relaxed);
    set(&engine, 3, 4);
    engine.checkpoint().unwrap();
    log.roomy.store(true, Ordering::Relaxed);
    set(&engine, 3, 5);
    engine.checkpoint().unwrap();
    engine.empty_log().unwrap();
    set(&engine, 3, 6);
    engine.checkpoint().unwrap();
    let written = log.written.lock().unwrap();
    let pieces: Vec<_> = written.iter().flat_map(|c| c.blocks.clone()).collect();
    let all = u64::MAX;
    assert_eq!(pieces, [(3, all, 1), (3, 1, 2), (3, 1, 3), (3, all, 4), (3, 1, 5), (3, all, 6)]);
}

#[test]
fn a_block_freed_and_used_again_is_not_reported_freed() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (_, engine) = engine(Some(log.clone()));
    for block in [5, 6] {
        set(&engine, block, 1);
    }
    engine.checkpoint().unwrap();
    set(&engine, 7, 1);
    for block in [5, 6, 7] {
        let mut txn = engine.begin().unwrap();
        txn.forget(block);
        txn.commit();
    }
    let mut txn = engine.begin().unwrap();
    let id = txn.create(5, TAG).unwrap();
    txn.edit(id, 0..1)[0] = 2;
    txn.commit();
    engine.checkpoint().unwrap();
    // The log never had an image of block 7, so it needs no revoke.
    let expected = Recorded { blocks: vec![(5, u64::MAX, 2)], freed: vec![6] };
    assert_eq!(log.written.lock().unwrap()[1], expected);
}

#[test]
fn a_block_forgotten_unread_is_not_read_again() {
    let (_, engine) = engine(None);
    let mut txn = engine.begin().unwrap();
    txn.forget(5);
    let again = txn.buffer(5, TAG);
    assert!(matches!(again, Err(Error::Corrupt(c)) if c.block() == Some(5)));
}

#[test]
fn blocks_wait_in_the_log_until_it_runs_short() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = engine(Some(log.clone()));
    set(&engine, 3, 1);
    set(&engine, 4, 1);
    engine.checkpoint().unwrap();
    set(&engine, 3, 2);
    engine.checkpoint().unwrap();
    assert_eq!((on_device(&device, 3), on_device(&device, 4)), (0, 0));
    assert!(log.advanced.lock().unwrap().is_empty());
    // Blocks of the last checkpoint stay in the log. Block 4 is forgotten, and must not be written back.
    set(&engine, 5, 1);
    let mut txn = engine.begin().unwrap();
    txn.forget(4);
    txn.commit();
    log.roomy.store(false, Ordering::Relaxed);
    engine.checkpoint().unwrap();
    assert_eq!([3, 4, 5].map(|block| on_device(&device, block)), [2, 0, 0]);
    assert_eq!(*log.advanced.lock().unwrap(), [3]);
}

#[test]
fn a_block_changed_during_write_back_is_written_in_its_old_state() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = engine(Some(log.clone()));
    set(&engine, 3, 1);
    engine.checkpoint().unwrap();
    set(&engine, 4, 1);
    engine.checkpoint().unwrap();
    set(&engine, 5, 1);
    log.roomy.store(false, Ordering::Relaxed);
    let later = engine.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || {
        set(&later, 3, 2);
        let mut txn = later.begin().unwrap();
        txn.forget(4);
        txn.commit();
    }));
    engine.checkpoint().unwrap();
    assert_eq!([3, 4, 5].map(|block| on_device(&device, block)), [1, 1, 0]);
    assert_eq!(*log.advanced.lock().unwrap(), [3]);
    engine.empty_log().unwrap();
    assert_eq!([3, 4, 5].map(|block| on_device(&device, block)), [2, 1, 1]);
}

#[test]
fn a_small_log_is_emptied_before_what_does_not_fit_beside_it() {
    let log = Recorder { is_small: true, ..Recorder::default() };
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = engine(Some(log.clone()));
    for block in 3..=7 {
        set(&engine, block, 1);
    }
    // One block changes while the last checkpoint is written, one after it, and two are forgotten.
    let later = engine.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || {
        set(&later, 3, 2);
        let mut txn = later.begin().unwrap();
        txn.forget(6);
        txn.commit();
    }));
    engine.checkpoint().unwrap();
    set(&engine, 4, 2);
    let mut txn = engine.begin().unwrap();
    txn.forget(7);
    txn.commit();
    log.full.store(true, Ordering::Relaxed);
    let (home, advanced, later) = (device.clone(), log.advanced.clone(), engine.clone());
    *log.during_write.lock().unwrap() = Some(Box::new(move || {
        assert_eq!([3, 4, 5, 6, 7].map(|block| on_device(&home, block)), [1; 5]);
        assert_eq!(*advanced.lock().unwrap(), [2]);
        set(&later, 5, 3);
    }));
    engine.checkpoint().unwrap();
    let all = u64::MAX;
    let expected = Recorded { blocks: vec![(3, all, 2), (4, all, 2)], freed: vec![6, 7] };
    assert_eq!(log.written.lock().unwrap()[1], expected);
    engine.checkpoint().unwrap();
    assert_eq!([3, 4, 5].map(|block| on_device(&device, block)), [2, 2, 1]);
    engine.empty_log().unwrap();
    assert_eq!([3, 4, 5].map(|block| on_device(&device, block)), [2, 2, 3]);
}

/// A device that runs a callback when a block is about to be written.
struct Hooked {
    inner: MemoryDevice,
    before_write: Mutex<Option<(u64, Hook)>>,
}

impl BlockDevice for Hooked {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let hook =
            self.before_write.lock().unwrap().take_if(|(block, _)| *block * BLOCK as u64 == offset);
        if let Some((_, hook)) = hook {
            hook();
        }
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads enough blocks to evict all that are not referenced.
fn fill_cache(engine: &Engine) {
    for _ in 0..3 {
        for block in 64..1000 {
            engine.read(block, TAG).unwrap();
        }
    }
}

/// A block that is gathered for write-back is neither dirty nor on the device yet.
#[test]
fn a_block_in_write_back_is_not_read_in_its_old_state() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let inner = MemoryDevice::new(1 << 20);
    let device = Arc::new(Hooked { inner, before_write: Mutex::default() });
    let options = Options { block_size: BLOCK, cache_bytes: 64 << 10 };
    let log = Box::new(log) as Box<dyn Log>;
    let engine = Engine::new(device.clone(), Arc::new(Sums::default()), Some(log), options);
    let engine = Arc::new(engine);
    set(&engine, 3, 1);
    // Adjoining, so it is written in the same write.
    set(&engine, 4, 1);
    let reader = engine.clone();
    let found = Arc::new(Mutex::new(None));
    let result = found.clone();
    let look = move || {
        fill_cache(&reader);
        *result.lock().unwrap() = Some(reader.read(3, TAG).unwrap()[0]);
    };
    *device.before_write.lock().unwrap() = Some((3, Box::new(look)));
    engine.empty_log().unwrap();
    assert_eq!(*found.lock().unwrap(), Some(1));
}

#[test]
fn blocks_that_failed_to_write_remain_readable() {
    for log in [None, Some(Recorder::default())] {
        let (device, engine) = faulty(log);
        set(&engine, 3, 1);
        device.set(Access::Write, Fault::From(1));
        assert_device_error(engine.empty_log());
        fill_cache(&engine);
        assert_eq!(engine.read(3, TAG).unwrap()[0], 1);
    }
}

/// Creates an engine over a device with injected failures.
fn faulty(log: Option<Recorder>) -> (Arc<FaultyDevice>, Engine) {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(1 << 20))));
    let options = Options { block_size: BLOCK, cache_bytes: 256 << 10 };
    let log = log.map(|l| Box::new(l) as Box<dyn Log>);
    (device.clone(), Engine::new(device, Arc::new(Sums::default()), log, options))
}

fn assert_device_error<T>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Device(_))));
}

#[test]
fn contents_that_could_not_be_written_end_changes_at_once() {
    let log = Recorder::default();
    let (device, engine) = faulty(Some(log.clone()));
    set(&engine, 3, 1);
    for write in [false, true] {
        device.set(Access::Write, Fault::Nth(1));
        let failed = match write {
            true => engine.device().write_at(0, &[1]),
            false => engine.device().zero_range(0, 1),
        };
        assert!(failed.is_err());
    }
    assert_device_error(engine.begin());
    assert_device_error(engine.check_alive());
    // Earlier changes are not lost because of that, but every caller gets an error.
    assert_device_error(engine.checkpoint());
    assert_eq!(log.written.lock().unwrap()[0].blocks, [(3, u64::MAX, 1)]);
    assert_device_error(engine.sync());
    assert_device_error(engine.empty_log());
    assert_eq!(engine.read(3, TAG).unwrap()[0], 1);
}

#[test]
fn nothing_is_written_after_a_flush_that_failed() {
    for log in [None, Some(Recorder::default())] {
        let (device, engine) = faulty(log);
        set(&engine, 3, 1);
        device.set(Access::Flush, Fault::Nth(1));
        assert!(engine.device().flush().is_err());
        device.set(Access::Write, Fault::Never);
        assert_device_error(engine.begin());
        assert_device_error(engine.checkpoint());
        assert_device_error(engine.empty_log());
        assert!(engine.device().write_at(0, &[1]).is_err());
        assert!(engine.device().flush().is_err());
        assert_eq!((device.count(Access::Write), device.count(Access::Flush)), (0, 1));
    }
}

fn set_wrong(engine: &Engine, block: u64) {
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(block, TAG).unwrap();
    txn.edit(id, 1..2)[0] = WRONG;
    txn.commit();
}

fn assert_refused<T>(result: Result<T>, block: u64) {
    match result {
        Err(Error::Corrupt(fault)) => assert_eq!(fault.block(), Some(block)),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("block {block} was not refused"),
    }
}

/// A checkpoint with an invalid block writes nothing, and nothing is written after it. Every caller gets the number of
/// the invalid block.
#[test]
fn an_invalid_block_stops_all_writes() {
    for log in [None, Some(Recorder::default())] {
        for wrong in [2, 5] {
            let (device, engine) = faulty(log.clone());
            for block in 1..=6 {
                set(&engine, block, 1);
            }
            set_wrong(&engine, wrong);
            assert_refused(engine.sync(), wrong);
            assert_refused(engine.begin(), wrong);
            assert_refused(engine.check_alive(), wrong);
            assert_refused(engine.checkpoint(), wrong);
            assert_refused(engine.empty_log(), wrong);
            assert!(engine.device().write_at(0, &[1]).is_err());
            assert_eq!((device.count(Access::Write), device.count(Access::Flush)), (0, 0));
            assert!(log.as_ref().is_none_or(|log| log.written.lock().unwrap().is_empty()));
        }
    }
}

/// Errors in unchanged parts of a block are ignored.
#[test]
fn only_what_changed_is_held_against_a_block() {
    let (device, engine) = engine(None);
    let mut block = [0; BLOCK];
    block[1] = WRONG;
    let total = sum(&block);
    block[BLOCK - 4..].copy_from_slice(&total.to_le_bytes());
    device.write_at(3 * BLOCK as u64, &block).unwrap();
    let mut txn = engine.begin().unwrap();
    let id = txn.buffer(3, TAG).unwrap();
    txn.edit(id, 100..101)[0] = 1;
    txn.commit();
    engine.sync().unwrap();
    let mut found = [0; BLOCK];
    device.read_at(3 * BLOCK as u64, &mut found).unwrap();
    assert_eq!((found[1], found[100]), (WRONG, 1));
    set_wrong(&engine, 3);
    assert_refused(engine.sync(), 3);
}

#[test]
fn an_early_fault_stops_changes_without_loss() {
    let (device, engine) = engine(Some(Recorder::default()));
    set(&engine, 3, 7);
    engine.refuse_changes(&Corruption::new("block", "a bad plan").at_block(9));
    assert_refused(engine.begin(), 9);
    assert_refused(engine.empty_log(), 9);
    assert_eq!(on_device(&device, 3), 7);
}

#[test]
fn an_emptied_log_is_completely_written_back() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = engine(Some(log.clone()));
    set(&engine, 3, 1);
    engine.checkpoint().unwrap();
    set(&engine, 4, 1);
    engine.empty_log().unwrap();
    assert_eq!((on_device(&device, 3), on_device(&device, 4)), (1, 1));
    assert_eq!(*log.advanced.lock().unwrap(), [3]);
}

#[test]
fn damage_is_found_on_read_and_named() {
    let (device, engine) = engine(None);
    device.write_at(9 * BLOCK as u64, &[1]).unwrap();
    let Err(Error::Corrupt(c)) = engine.read(9, TAG) else { panic!("damage not found") };
    assert_eq!(c.block(), Some(9));
    // With a kind without a checksum the same block is valid, but not with the first kind again.
    let plain = Tag { kind: 2, ..TAG };
    assert!(engine.read(9, plain).is_ok());
    assert!(engine.read(9, TAG).is_err());
    assert!(matches!(engine.read(1 << 40, TAG), Err(Error::Device(_))));
    assert!(engine.read(u64::MAX, TAG).is_err());
}

#[test]
fn more_blocks_than_memory_all_arrive() {
    let (device, engine) = engine(None);
    for round in 1..=2 {
        for block in 0..1024 {
            set(&engine, block, (block as u8).wrapping_mul(round));
        }
    }
    engine.checkpoint().unwrap();
    for block in 0..1024 {
        assert_eq!(on_device(&device, block), (block as u8).wrapping_mul(2), "block {block}");
    }
}

#[test]
fn threads_that_share_blocks_lose_no_update() {
    for log in [None, Some(Recorder::default())] {
        let (device, engine) = engine(log);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let engine = &engine;
                scope.spawn(move || {
                    for i in 0..2000_u64 {
                        // Buffers are acquired in ascending order to avoid deadlocks.
                        let mut txn = engine.begin().unwrap();
                        let a = txn.buffer(i % 40, TAG).unwrap();
                        let b = txn.buffer(40 + i % 97, TAG).unwrap();
                        for id in [a, b] {
                            let bytes = txn.edit(id, 8..16);
                            let n = u64::from_le_bytes(bytes.try_into().unwrap()) + 1;
                            bytes.copy_from_slice(&n.to_le_bytes());
                        }
                        if (i + thread) % 3 > 0 {
                            txn.commit();
                        } else {
                            drop(txn);
                        }
                        if i % 500 == 0 {
                            engine.checkpoint().unwrap();
                        }
                    }
                });
            }
        });
        engine.empty_log().unwrap();
        let total = |blocks: std::ops::Range<u64>| -> u64 {
            let mut bytes = [0; 8];
            blocks
                .map(|b| {
                    device.read_at(b * BLOCK as u64 + 8, &mut bytes).unwrap();
                    u64::from_le_bytes(bytes)
                })
                .sum()
        };
        let committed: u64 =
            (0..8).map(|t| (0..2000).filter(|i| (i + t) % 3 > 0).count() as u64).sum();
        assert_eq!((total(0..40), total(40..137)), (committed, committed));
    }
}
