//! `sync_data` makes transactions durable that are not minor.

use super::*;

/// A transaction whose changes are not needed to read contents.
fn touch(engine: &Engine, block: u64, value: u8) {
    let mut txn = engine.begin().unwrap();
    txn.set_minor();
    let id = txn.buffer(block, TAG).unwrap();
    txn.edit(id, 0..1)[0] = value;
    txn.commit();
}

#[test]
fn minor_changes_wait_for_others_or_for_a_full_sync() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (_, engine) = engine(Some(log.clone()));
    let written = || log.written.lock().unwrap().len();
    touch(&engine, 3, 7);
    engine.sync_data().unwrap();
    assert_eq!(written(), 0);
    set(&engine, 4, 1);
    touch(&engine, 5, 2);
    engine.sync_data().unwrap();
    assert_eq!(written(), 1);
    let all = u64::MAX;
    let blocks = vec![(3, all, 7), (4, all, 1), (5, all, 2)];
    assert_eq!(log.written.lock().unwrap()[0], Recorded { blocks, freed: vec![] });
    touch(&engine, 3, 8);
    engine.sync_data().unwrap();
    assert_eq!(written(), 1);
    engine.sync().unwrap();
    assert_eq!(written(), 2);
}

#[test]
fn changes_during_a_checkpoint_need_another_checkpoint() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (_, engine) = engine(Some(log.clone()));
    set(&engine, 3, 7);
    let later = engine.clone();
    *log.during_write.lock().unwrap() = Some(Box::new(move || set(&later, 4, 8)));
    engine.sync_data().unwrap();
    assert_eq!(log.written.lock().unwrap().len(), 1);
    engine.sync_data().unwrap();
    assert_eq!(log.written.lock().unwrap().len(), 2);
    engine.sync_data().unwrap();
    assert_eq!(log.written.lock().unwrap().len(), 2);
}

#[test]
fn a_datasync_is_one_flush_and_fails_as_that_does() {
    let log = Recorder::default();
    log.roomy.store(true, Ordering::Relaxed);
    let (device, engine) = faulty(Some(log));
    touch(&engine, 3, 7);
    device.set(Access::Flush, Fault::Never);
    for flushes in 1..4 {
        engine.sync_data().unwrap();
        assert_eq!((device.count(Access::Write), device.count(Access::Flush)), (0, flushes));
    }
    device.set(Access::Flush, Fault::Nth(1));
    assert_device_error(engine.sync_data());
    assert_device_error(engine.sync_data());
    assert_device_error(engine.begin());
}

#[test]
fn without_a_log_datasync_writes_everything() {
    let (device, engine) = engine(None);
    touch(&engine, 3, 7);
    engine.sync_data().unwrap();
    assert_eq!(on_device(&device, 3), 7);
}
