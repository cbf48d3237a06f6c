//! Parses single structures of ext4: the superblock of a journal device, the MMP block, and blocks of quota files. Errors
//! are fine; panics and wrong values are bugs.
#![no_main]

use ext4::format::journal_device::{JournalDevice, is_journal_device};
use ext4::format::mmp::{RawMmp, update_interval};
use ext4::format::quota;
use ext4::format::superblock::RawSuperblock;
use libfuzzer_sys::fuzz_target;
use zerocopy::{FromZeros, IntoBytes};

/// Copies bytes into the start of a structure.
fn filled<T: FromZeros + IntoBytes + zerocopy::FromBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let count = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..count].copy_from_slice(&bytes[..count]);
    value
}

fn journal_device(seal: bool, len: u64, bytes: &[u8]) {
    let mut raw: RawSuperblock = filled(bytes);
    if seal {
        raw.seal();
    }
    let is_one = is_journal_device(&raw);
    let Ok(device) = JournalDevice::parse(raw, len) else { return };
    assert!(is_one, "only journal devices are parsed");
    let size = u64::from(device.block_size());
    assert!(u64::from(device.journal_block()) * size < len, "the journal is on the device");
    let _ = device.new_journal();
}

fn mmp(seed: Option<u32>, bytes: &[u8]) {
    let mut raw: RawMmp = filled(bytes);
    let _ = RawMmp::parse(bytes, seed);
    raw.seal(seed);
    if let Ok(raw) = RawMmp::parse(raw.as_bytes(), seed) {
        for interval in [0, 5, u16::MAX] {
            let interval = update_interval(interval);
            assert!((1..=3601).contains(&raw.wait_seconds(interval)), "the wait is bounded");
        }
    }
}

fn quota_block(blocks: u64, bytes: &[u8]) {
    let mut block = [0; 1024];
    let count = bytes.len().min(block.len());
    block[..count].copy_from_slice(&bytes[..count]);
    let _ = quota::verify_structure(&block, blocks);
    for kind in quota::QuotaKind::ALL {
        if let Ok(info) = quota::parse_info(&block, kind, blocks << 10) {
            assert!(u64::from(info.blocks.get()) <= blocks, "the file contains its blocks");
        }
    }
    let _ = quota::leaf_header(&block);
    let entries = (0..64).filter_map(|index| quota::entry_at(&block, index));
    let _ = entries.filter(|entry| entry.has_limits() && !entry.is_none()).count();
    assert_eq!(quota::references(&block).count(), 256);
}

// The first byte chooses the structure, the second one a size or a seed.
fuzz_target!(|input: &[u8]| {
    let [kind, size, bytes @ ..] = input else { return };
    match kind % 3 {
        0 => journal_device(size & 1 == 1, 1 << (size % 50), bytes),
        1 => mmp((size & 1 == 1).then_some((*size).into()), bytes),
        _ => quota_block(1 << (size % 40), bytes),
    }
});
