//! Checkpoints so large that several threads work on them.

use super::*;

/// Number of changed blocks, enough for three threads.
const CHANGED: u64 = 2000;

fn large_engine(log: Option<Recorder>) -> (Arc<MemoryDevice>, Engine) {
    let device = Arc::new(MemoryDevice::new((CHANGED + 1) * BLOCK as u64));
    let options = Options { block_size: BLOCK, cache_bytes: 8 << 20 };
    let log = log.map(|log| Box::new(log) as Box<dyn Log>);
    let engine = Engine::new(device.clone(), Arc::new(Sums::default()), log, options);
    engine.set_checkpoint_threads(NonZeroUsize::new(3));
    for block in 0..CHANGED {
        set(&engine, block, 1 + (block % 200) as u8);
    }
    (device, engine)
}

#[test]
fn every_block_is_sealed() {
    for log in [None, Some(Recorder::default())] {
        let (device, engine) = large_engine(log);
        engine.empty_log().unwrap();
        let mut data = [0; BLOCK];
        for block in 0..CHANGED {
            device.read_at(block * BLOCK as u64, &mut data).unwrap();
            assert_eq!(data[0], 1 + (block % 200) as u8);
            assert_eq!(sum(&data), u32::from_le_bytes(data[BLOCK - 4..].try_into().unwrap()));
        }
    }
}

/// Independent of the thread that finds it.
#[test]
fn the_first_invalid_block_is_reported_and_none_is_written() {
    for wrong in [[3, 1999], [900, 1700], [1998, 1999]] {
        let log = Recorder::default();
        let (device, engine) = large_engine(Some(log.clone()));
        wrong.iter().rev().for_each(|&block| set_wrong(&engine, block));
        assert_refused(engine.sync(), wrong[0]);
        assert!(log.written.lock().unwrap().is_empty());
        assert!((0..CHANGED).all(|block| on_device(&device, block) == 0));
    }
}

/// Blocks in the log are written back by several threads. Those of the last checkpoint stay in the log.
#[test]
fn every_block_is_written_back_except_the_last_changes() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = large_engine(Some(log.clone()));
    engine.checkpoint().unwrap();
    let last: Vec<u64> = (0..CHANGED).step_by(7).collect();
    last.iter().for_each(|&block| set(&engine, block, 250));
    // Write-back follows a checkpoint that fills the log.
    log.roomy.store(false, Ordering::Relaxed);
    engine.checkpoint().unwrap();
    for block in 0..CHANGED {
        let expected = if block % 7 == 0 { 0 } else { 1 + (block % 200) as u8 };
        assert_eq!(on_device(&device, block), expected, "block {block}");
    }
    engine.empty_log().unwrap();
    assert!(last.iter().all(|&block| on_device(&device, block) == 250));
}

#[test]
fn a_transaction_spreads_changes_over_threads() {
    let device = Arc::new(MemoryDevice::new(1 << 20));
    let options = Options { block_size: BLOCK, cache_bytes: 8 << 20 };
    let engine = Engine::new(device.clone(), Arc::new(Spreading), None, options);
    engine.set_checkpoint_threads(NonZeroUsize::new(3));
    engine.checkpoint().unwrap();
    assert!((0..100).all(|block| on_device(&device, block) == 77));
    assert_eq!(on_device(&device, 100), 0);
}

/// Changes blocks 0 to 99 when a checkpoint is closed.
struct Spreading;

impl BlockFormat for Spreading {
    fn verify(&self, _: Tag, _: u64, _: &[u8]) -> std::result::Result<(), Corruption> {
        Ok(())
    }

    fn seal(
        &self,
        _: Tag,
        _: u64,
        _: Changed,
        _: &mut [u8],
    ) -> std::result::Result<(), Corruption> {
        Ok(())
    }

    fn flush_deferred(&self, txn: &mut Txn<'_>) -> Result<()> {
        let parts: Vec<u64> = (0..10).collect();
        txn.spread(parts, |part, txn| {
            for block in part * 10..(part + 1) * 10 {
                let id = txn.buffer(block, TAG)?;
                txn.edit(id, 0..1)[0] = 77;
            }
            Ok(())
        })
    }
}
