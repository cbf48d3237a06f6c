//! Damaged logs: either a precise error and no writes, or the same result as with the kernel.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::{require, scratch};
use vfs::Error;
use xfs::format::log::{BLOCK_SIZE, ParsedRecord, seal_record};
use xfs::{OpenOptions, Xfs, log_contents, log_end, recover_log};

use crate::log_recovery::support::{
    Load, MIB, Stop, dirty, in_memory, log_place, superblock, sync,
};

/// Returns whether a device equals a fork of it.
fn holds(device: &MemoryDevice, before: &MemoryDevice) -> bool {
    let (mut is_same, mut old) = (true, Vec::new());
    let each = |offset, new: &[u8]| {
        old.resize(new.len(), 0);
        before.read_at(offset, &mut old)?;
        is_same &= old == new;
        Ok(())
    };
    device.for_each_part_unlike(before, each).unwrap();
    is_same
}

fn made() -> MemoryDevice {
    let home = scratch();
    let image = dirty(home.path(), "-l size=3500b", 64 * MIB, Stop::Flushed, |root| {
        let mut load = Load::new(7);
        load.run(root, 100);
        sync(root);
        // Many records, so that the first of them cannot have been torn.
        for _ in 0..20 {
            load.run(root, 10);
            sync(root);
        }
    });
    in_memory(&image)
}

/// Replays the log of a device. After an error the device must be unchanged.
fn recover(device: &MemoryDevice, what: &str) -> Option<Error> {
    let before = device.fork();
    let error = recover_log(device, &superblock(device)).err()?;
    assert!(holds(device, &before), "{what}: {error}, but it was changed");
    Some(error)
}

#[test]
fn damage_far_from_the_end_is_reported() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Mount("xfs"));
    let device = made();
    let sb = superblock(&device);
    let (log, end) = (log_place(&sb), log_end(&device, &sb).unwrap().unwrap());
    let tail = end.tail().unwrap();
    // A record header, its fields, and contents.
    for (at, what) in [(0, "magic"), (12, "length"), (16, "place"), (40, "count"), (1000, "body")] {
        let damaged = device.fork();
        let offset = log.start + u64::from(tail.block) * BLOCK_SIZE as u64 + at;
        let mut byte = [0];
        damaged.read_at(offset, &mut byte).unwrap();
        damaged.write_at(offset, &[byte[0] ^ 0x40]).unwrap();
        let error = recover(&damaged, what);
        // This close to the head, the kernel treats the record as overwritten.
        let is_near = end.head <= tail.block && tail.block - end.head < 4096;
        assert!(error.is_some() || is_near, "{what}");
        if let Some(error) = error {
            assert!(matches!(error, Error::Corrupt(_)), "{what}: {error}");
            assert!(error.to_string().contains("log"), "{what}: {error}");
        }
    }
}

/// Returns the valid records, with their byte offsets in the image.
fn records(device: &MemoryDevice) -> Vec<(u64, ParsedRecord)> {
    let sb = superblock(device);
    let (log, mut all) = (log_place(&sb), Vec::new());
    log_contents(device, &sb, |record| {
        let at = log.start + u64::from(record.record.lsn.block) * BLOCK_SIZE as u64;
        let fits = at + u64::from(record.record.blocks()) * BLOCK_SIZE as u64 <= log.end;
        if fits {
            all.push((at, record.record));
        }
        Ok(())
    })
    .unwrap();
    assert!(all.len() > 3);
    all
}

/// Records with invalid items and valid checksums.
#[test]
fn arbitrary_records_cause_no_panic_and_no_write_after_an_error() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Mount("xfs"));
    let device = made();
    let records = records(&device);
    let mut random = fastrand::Rng::with_seed(11);
    let mut errors = 0;
    let rounds = testkit::effort(100, 100, 20_000);
    for round in 0..rounds {
        let damaged = device.fork();
        let (at, record) = records[random.usize(..records.len())];
        let mut bytes = vec![0; record.blocks() as usize * BLOCK_SIZE];
        damaged.read_at(at, &mut bytes).unwrap();
        let headers = record.header_blocks as usize * BLOCK_SIZE;
        for _ in 0..random.usize(1..4) {
            // The start of a record matters most.
            let reach = random.choice([100, 1000, bytes.len() - headers]).unwrap();
            let place = headers + random.usize(..reach.min(bytes.len() - headers));
            if place % BLOCK_SIZE >= 4 {
                let any = random.u8(..);
                bytes[place] = random.choice([0, 1, 0x7f, 0xff, any]).unwrap();
            }
        }
        seal_record(&mut bytes, record.header_blocks as usize);
        damaged.write_at(at, &bytes).unwrap();
        let error = recover(&damaged, &format!("round {round}"));
        errors += usize::from(error.is_some());
        // The replayed contents may be invalid, which may or may not be detected later.
        if let Ok(fs) = Xfs::open_writable(Arc::new(damaged), &OpenOptions::default()) {
            drop(fs.close());
        }
    }
    assert!(errors > rounds / 15, "only {errors} of {rounds} were found");
}
