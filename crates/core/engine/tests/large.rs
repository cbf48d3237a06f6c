//! Checkpoints so large that several threads seal their blocks.

use super::*;

/// Number of changed blocks, enough for three threads.
const CHANGED: u64 = 2000;

fn large_engine(log: Option<Recorder>) -> (Arc<MemoryDevice>, Engine) {
    let device = Arc::new(MemoryDevice::new((CHANGED + 1) * BLOCK as u64));
    let options = Options { block_size: BLOCK, cache_bytes: 8 << 20 };
    let log = log.map(|log| Box::new(log) as Box<dyn Log>);
    let engine = Engine::new(device.clone(), Arc::new(Sums::default()), log, options);
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
