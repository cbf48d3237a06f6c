//! Logs written by this crate.

use std::path::Path;

use engine::{Fit, Log, Size};
use ext4::format::jbd2::MAGIC;
use ext4::log::{Journal, recover};
use testkit::{KernelMount, MountOptions, debugfs, e2fsck, require};

use crate::journal::support::{
    CONFIGS, Config, DATA_BLOCKS, JournalImage, e2fsck_replay, needs_recovery, read_block,
};

fn fit(journal: &Journal, images: usize, freed: usize) -> Fit {
    journal.fit(Size { images, freed })
}

/// Logs three checkpoints: blocks changed once and twice, one that must be escaped, one revoked. Returns the expected
/// contents of the file's blocks after a replay.
fn log_some(image: &JournalImage, journal: &Journal) -> Vec<Vec<u8>> {
    let b = &image.blocks;
    let mut escaped = image.pattern(2);
    escaped[..4].copy_from_slice(&MAGIC.to_be_bytes());
    let first = [(b[0], image.pattern(1)), (b[1], escaped.clone()), (b[2], image.pattern(3))];
    image.append(journal, 1, &[], &first);
    image.append(journal, 2, &[b[2]], &[(b[0], image.pattern(4))]);
    let many: Vec<_> = (3..DATA_BLOCKS).map(|i| (b[i], image.pattern(100 + i as u64))).collect();
    image.append(journal, 7, &[], &many);
    let mut expected = vec![image.pattern(4), escaped, image.original(2)];
    expected.extend(many.into_iter().map(|(_, bytes)| bytes));
    expected
}

fn check(image: &JournalImage, path: &Path, expected: &[Vec<u8>]) {
    for (index, bytes) in expected.iter().enumerate() {
        let found = read_block(path, image.blocks[index], image.block_size);
        assert!(found == *bytes, "block {index} of the file: {:x?}", &found[..16]);
    }
    assert!(!needs_recovery(path));
    e2fsck(path);
}

/// Replays the log of an image with e2fsck, the kernel and this crate.
fn judge(image: &JournalImage, expected: &[Vec<u8>], transactions: u32) {
    let by_e2fsck = image.copy("by-e2fsck");
    e2fsck_replay(&by_e2fsck);
    check(image, &by_e2fsck, expected);
    let by_kernel = image.copy("by-kernel");
    KernelMount::new(&by_kernel, &MountOptions::read_write("ext4")).unmount();
    check(image, &by_kernel, expected);
    let report = recover(&*image.device()).unwrap();
    assert_eq!(report.transactions, transactions);
    check(image, &image.path, expected);
    // A second recovery has nothing to do.
    assert_eq!(recover(&*image.device()).unwrap().transactions, 0);
    check(image, &image.path, expected);
    KernelMount::new(&image.path, &MountOptions::read_write("ext4")).unmount();
    e2fsck(&image.path);
}

#[test]
fn others_replay_what_we_log() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    for config in &CONFIGS {
        let image = JournalImage::new(config);
        let journal = image.journal();
        let expected = log_some(&image, &journal);
        let dump = debugfs(&image.path, "logdump -a");
        assert_eq!(dump.matches("(commit block)").count(), 3, "{dump}");
        assert!(!dump.to_lowercase().contains("checksum"), "{dump}");
        drop(journal);
        judge(&image, &expected, 3);
    }
}

#[test]
fn a_transaction_without_its_commit_block_never_happened() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let image = JournalImage::new(&CONFIGS[1]);
    let journal = image.journal();
    let b = &image.blocks;
    image.append(&journal, 1, &[], &[(b[0], image.pattern(1))]);
    let failed = journal.append(2, &[], |image_of| {
        // More than fits into the buffer, so that part of it is in the log.
        for round in 0..1500 {
            image_of(b[round % DATA_BLOCKS], &image.pattern(9))?;
        }
        Err(std::io::Error::other("stop here").into())
    });
    assert!(failed.is_err());
    judge(&image, &[image.pattern(1), image.original(1)], 1);
}

#[test]
fn the_log_goes_around_and_its_tail_with_it() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    for config in [&CONFIGS[1], &CONFIGS[4], &CONFIGS[5]] {
        let image = JournalImage::new(config);
        let journal = image.journal();
        let device = image.device();
        let mut latest: Vec<Vec<u8>> = (0..DATA_BLOCKS).map(|i| image.original(i)).collect();
        let mut random = fastrand::Rng::with_seed(5);
        let mut was_short = false;
        let rounds = if image.block_size == 1024 { 400 } else { 130 };
        for sequence in 1..=rounds {
            let count = random.usize(1..DATA_BLOCKS);
            let first = random.usize(..DATA_BLOCKS - count);
            let images: Vec<_> = (first..first + count)
                .map(|i| (image.blocks[i], image.pattern(sequence * 1000 + i as u64)))
                .collect();
            let is_short = fit(&journal, images.len(), 0) != Fit::WithAnother;
            image.append(&journal, sequence, &[], &images);
            for (index, (_, bytes)) in (first..).zip(images) {
                latest[index] = bytes;
            }
            if is_short {
                was_short = true;
                // All except the last checkpoint are written back, with the latest state of their blocks.
                for (block, bytes) in image.blocks.iter().zip(&latest) {
                    device.write_at(block * image.block_size as u64, bytes).unwrap();
                }
                device.flush().unwrap();
                journal.advance_tail(sequence).unwrap();
                assert_eq!(fit(&journal, 0, 0), Fit::WithAnother);
            }
        }
        assert!(was_short);
        drop(journal);
        let by_e2fsck = image.copy("by-e2fsck");
        e2fsck_replay(&by_e2fsck);
        check(&image, &by_e2fsck, &latest);
        let report = recover(&*image.device()).unwrap();
        assert!(report.transactions >= 2, "{report:?}");
        check(&image, &image.path, &latest);
    }
}

#[test]
fn the_largest_checkpoint_takes_no_more_than_its_share() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    for config in &CONFIGS {
        let image = JournalImage::new(config);
        let journal = image.journal();
        let blocks = journal.blocks_max();
        let log_blocks = (4 << 20) / image.block_size;
        assert!(blocks > log_blocks / 5, "{blocks}");
        for sequence in 1..=2 {
            let freed: Vec<u64> = (1000..).take(if sequence == 1 { 5 } else { 0 }).collect();
            // The last one is written back to make room for the next, before or after it.
            let expected = if sequence == 1 { Fit::WithAnother } else { Fit::Alone };
            assert_eq!(fit(&journal, blocks - freed.len(), freed.len()), expected, "{blocks}");
            let bytes = image.pattern(1);
            journal
                .append(sequence, &freed, |each| {
                    (0..blocks - freed.len())
                        .try_for_each(|i| each(image.blocks[i % DATA_BLOCKS], &bytes))
                })
                .unwrap();
        }
        let all = vec![image.pattern(1); DATA_BLOCKS];
        judge(&image, &all, 2);
    }
}

#[test]
fn a_closed_journal_is_empty_and_can_continue() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let image = JournalImage::new(&Config { fs_type: "ext4", block_size: 1024, features: "" });
    for round in 0..3 {
        let journal = image.journal();
        image.append(&journal, 1, &[], &[(image.blocks[0], image.pattern(round))]);
        let device = image.device();
        device.write_at(image.blocks[0] * 1024, &image.pattern(round)).unwrap();
        journal.close().unwrap();
        assert!(debugfs(&image.path, "logdump").contains("Journal starts at block 0"));
        let report = recover(&*device).unwrap();
        assert_eq!(report.blocks_replayed, 0);
        check(&image, &image.path, &[image.pattern(round)]);
    }
    // The older logs occupy the blocks of the new one, but do not continue it.
    let journal = image.journal();
    image.append(&journal, 1, &[], &[(image.blocks[1], image.pattern(50))]);
    judge(&image, &[image.pattern(2), image.pattern(50)], 1);
}

#[test]
fn a_log_that_is_not_empty_is_not_opened() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = JournalImage::new(&CONFIGS[0]);
    let journal = image.journal();
    image.append(&journal, 1, &[], &[(image.blocks[0], image.pattern(1))]);
    let device = image.device();
    let sb = crate::journal::support::superblock(&*device);
    let map = ext4::log::JournalMap::read(&*device, &sb).unwrap().unwrap();
    let again = Journal::open(device, map, &sb, None).map(|_| ());
    assert!(matches!(again, Err(vfs::Error::Unsupported(_))), "{again:?}");
}
