//! Damaged journals: the error must name the damage and its position, and nothing may be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{BlockDevice, MemoryDevice, OverlayDevice};
use ext4::format::features::Compat;
use ext4::format::jbd2::{MAGIC, RawJournalSuperblock, SUPERBLOCK_SIZE};
use ext4::format::superblock::{RawSuperblock, STATE_ERROR};
use ext4::log::{JournalMap, RecoveryReport, recover};
use testkit::require;
use vfs::Error;
use zerocopy::{FromBytes, IntoBytes};

use crate::journal::support::{Config, JournalImage, edit_superblock, superblock};

const CHECKED: Config = Config { fs_type: "ext4", block_size: 1024, features: "" };
const UNCHECKED: Config =
    Config { fs_type: "ext4", block_size: 1024, features: "^metadata_csum,^64bit" };

/// A device that counts writes.
struct Watched {
    inner: OverlayDevice,
    writes: AtomicUsize,
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// An image whose log contains three transactions in journal blocks 1 to 12: descriptor, three images, commit;
/// descriptor, image, revoke of the third image, commit; descriptor, image, commit.
struct Victim {
    image: JournalImage,
    below: Arc<MemoryDevice>,
    map: JournalMap,
}

impl Victim {
    fn new(config: &Config) -> Self {
        let image = JournalImage::new(config);
        let journal = image.journal();
        let b = &image.blocks;
        let first: Vec<_> = (0..3).map(|i| (b[i], image.pattern(i as u64))).collect();
        image.append(&journal, 1, &[], &first);
        image.append(&journal, 2, &[b[2]], &[(b[0], image.pattern(10))]);
        image.append(&journal, 3, &[], &[(b[3], image.pattern(11))]);
        let below = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image.path).unwrap()));
        let map = JournalMap::read(&*below, &superblock(&*below)).unwrap().unwrap();
        Self { image, below, map }
    }

    /// Returns a copy to damage.
    fn copy(&self) -> Watched {
        Watched { inner: OverlayDevice::new(self.below.clone()), writes: AtomicUsize::new(0) }
    }

    /// Returns the byte offset in the image for a byte of a journal block.
    fn offset(&self, block: u32, byte: u64) -> u64 {
        self.map.place_of(block).unwrap().0 + byte
    }

    /// Returns a copy with other bytes in a journal block.
    fn with(&self, block: u32, byte: u64, bytes: &[u8]) -> Watched {
        let device = self.copy();
        device.inner.write_at(self.offset(block, byte), bytes).unwrap();
        device
    }

    /// Returns a copy with one flipped bit in a journal block.
    fn flip(&self, block: u32, byte: u64) -> Watched {
        let device = self.copy();
        let mut bytes = [0];
        device.read_at(self.offset(block, byte), &mut bytes).unwrap();
        self.with(block, byte, &[bytes[0] ^ 0x10])
    }

    fn with_journal_superblock(&self, edit: impl FnOnce(&mut RawJournalSuperblock)) -> Watched {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        self.below.read_at(self.offset(0, 0), &mut bytes).unwrap();
        let mut raw = RawJournalSuperblock::read_from_bytes(&bytes).unwrap();
        edit(&mut raw);
        raw.seal();
        self.with(0, 0, raw.as_bytes())
    }

    fn with_superblock(&self, edit: impl FnOnce(&mut RawSuperblock)) -> Watched {
        let device = self.copy();
        let mut bytes = vec![0; 2048];
        device.read_at(0, &mut bytes).unwrap();
        edit_superblock(&mut bytes, edit);
        device.inner.write_at(0, &bytes).unwrap();
        device
    }

    fn is_replayed(&self, device: &Watched) -> bool {
        let mut bytes = vec![0; self.image.block_size];
        device.read_at(self.image.blocks[3] * 1024, &mut bytes).unwrap();
        bytes == self.image.pattern(11)
    }
}

/// Returns the damage that recovery finds. Asserts that nothing was written.
#[track_caller]
fn damage(device: &Watched) -> String {
    match recover(device) {
        Err(Error::Corrupt(damage)) => {
            assert_eq!(device.writes.load(Ordering::Relaxed), 0, "{damage}");
            damage.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_damage(device: &Watched, structure: &str, place: &str) {
    let found = damage(device);
    assert!(found.starts_with(&format!("damaged {structure}")), "{found}");
    assert!(found.contains(place), "{found}");
}

#[test]
fn the_victim_can_be_recovered() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    for config in [&CHECKED, &UNCHECKED] {
        let victim = Victim::new(config);
        let device = victim.copy();
        let RecoveryReport { transactions, blocks_replayed, blocks_revoked, .. } =
            recover(&device).unwrap();
        assert_eq!((transactions, blocks_replayed, blocks_revoked), (3, 4, 1));
        assert!(victim.is_replayed(&device));
    }
}

#[test]
fn each_damaged_block_of_the_log_is_named() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let cases = [
        (1, 30, "journal descriptor block", "journal block 1, transaction 2"),
        (1, 1000, "journal descriptor block", "journal block 1, transaction 2"),
        (2, 700, "journaled block", "journal block 2, transaction 2"),
        (5, 0x12, "journal commit block", "journal block 5, transaction 2"),
        (8, 20, "journal revoke block", "journal block 8, transaction 3"),
        (9, 0x3b, "journal commit block", "journal block 9, transaction 3"),
        (10, 12, "journal descriptor block", "journal block 10, transaction 4"),
        (11, 0, "journaled block", "journal block 11, transaction 4"),
    ];
    for (block, byte, structure, place) in cases {
        assert_damage(&victim.flip(block, byte), structure, place);
    }
    // A revoked image is not used, so it may contain anything.
    let _ = recover(&victim.flip(4, 5)).unwrap();
}

#[test]
fn blocks_outside_a_complete_transaction_end_the_log() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    for config in [&CHECKED, &UNCHECKED] {
        let victim = Victim::new(config);
        for (block, byte, transactions) in
            [(1, 0, 0), (1, 7, 0), (5, 11, 0), (6, 3, 1), (9, 6, 1), (12, 0, 2), (10, 8, 2)]
        {
            let device = victim.flip(block, byte);
            assert_eq!(recover(&device).unwrap().transactions, transactions, "block {block}");
            assert!(!victim.is_replayed(&device));
        }
    }
}

#[test]
fn leftovers_of_an_earlier_time_end_the_log() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let device = victim.flip(10, 12);
    // Committed in 1970, which is before the previous transaction, whose checksums are right.
    device.inner.write_at(victim.offset(12, 0x30), &[0; 8]).unwrap();
    assert_eq!(recover(&device).unwrap().transactions, 2);
}

#[test]
fn an_invalid_journal_superblock_is_refused() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let name = "journal superblock";
    assert_damage(&victim.flip(0, 0), name, "magic number");
    assert_damage(&victim.flip(0, 0x18), name, "checksum");
    type Edit = fn(&mut RawJournalSuperblock);
    let cases: [(Edit, &str); 8] = [
        (|raw| raw.blocksize = 4096.into(), "block size"),
        (|raw| raw.maxlen = 4097.into(), "maxlen"),
        (|raw| raw.maxlen = 1023.into(), "maxlen"),
        (|raw| raw.first = 0.into(), "first"),
        (|raw| raw.first = 3500.into(), "first"),
        (|raw| raw.start = 4096.into(), "start"),
        (|raw| raw.feature_compat = 1.into(), "features"),
        (|raw| raw.feature_incompat = (raw.feature_incompat.get() | 8).into(), "features"),
    ];
    for (edit, place) in cases {
        assert_damage(&victim.with_journal_superblock(edit), name, place);
    }
    let device = victim.with_journal_superblock(|raw| {
        raw.feature_incompat = (raw.feature_incompat.get() | 0x20).into();
        raw.num_fc_blks = 5000.into();
    });
    assert_damage(&device, name, "num_fc_blks");
    for unknown in [0x40, 1 << 31] {
        let device = victim.with_journal_superblock(|raw| {
            raw.feature_incompat = (raw.feature_incompat.get() | unknown).into();
        });
        assert!(matches!(recover(&device), Err(Error::Unsupported(_))));
        assert_eq!(device.writes.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn images_that_belong_nowhere_are_refused() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&UNCHECKED);
    let (journal, _) = victim.map.place_of(7).unwrap();
    let name = "journal descriptor block";
    let block = |number: u64| (number as u32).to_be_bytes();
    // The first tag of a descriptor is at offset 12.
    assert_damage(&victim.with(1, 12, &block(journal / 1024)), name, "overwrite the journal");
    assert_damage(&victim.with(6, 12, &block(32 << 10)), name, "journal block 7, transaction 3");
    assert_damage(&victim.with(6, 12, &[0xff; 4]), name, "outside the file system");
    let name = "journal revoke block";
    assert_damage(&victim.with(8, 16, &[0xff; 4]), name, "journal block 8, transaction 3");
    assert_damage(&victim.with(8, 12, &2000_u32.to_be_bytes()), name, "bytes used");
    assert_damage(&victim.with(8, 12, &[0; 4]), name, "bytes used");
    // A superblock that could not be opened afterwards.
    assert_damage(&victim.with(10, 12, &block(1)), "superblock", "magic number");
}

#[test]
fn the_journals_inode_has_a_copy() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let table = testkit::debugfs(&victim.image.path, "imap <8>");
    let number = |after: &str| {
        let rest = &table[table.find(after).unwrap() + after.len()..];
        rest.split([',', '\n', ' ']).next().unwrap().to_owned()
    };
    let at = number("located at block ").parse::<u64>().unwrap() * 1024
        + u64::from_str_radix(number("offset ").trim_start_matches("0x"), 16).unwrap();
    let device = victim.copy();
    device.inner.write_at(at, &[0x77; 128]).unwrap();
    assert_eq!(recover(&device).unwrap().transactions, 3);
    let device = victim.with_superblock(|raw| raw.jnl_backup_type = 0);
    device.inner.write_at(at, &[0x77; 128]).unwrap();
    assert_damage(&device, "journal inode", "inode 8");
    let device = victim.with_superblock(|raw| raw.jnl_blocks[5] = 0x7fff_ffff.into());
    device.inner.write_at(at, &[0x77; 128]).unwrap();
    assert_damage(&device, "journal inode", "inode 8");
}

#[test]
fn the_superblock_decides() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let device = victim.with_superblock(|raw| raw.journal_inum = 0.into());
    assert!(matches!(recover(&device), Err(Error::Unsupported(_))));
    let device = victim.with_superblock(|raw| raw.journal_inum = 5.into());
    assert_damage(&device, "superblock", "journal inode");
    let without_journal = |raw: &mut RawSuperblock| {
        let mut features = raw.features();
        features.compat.remove(Compat::HAS_JOURNAL);
        raw.set_features(&features);
    };
    assert_damage(&victim.with_superblock(without_journal), "superblock", "there is no journal");
    // Without the recovery flag, the log is older than the blocks in place.
    let device = victim.with_superblock(|raw| {
        let mut features = raw.features();
        features.incompat.remove(ext4::format::features::Incompat::RECOVER);
        raw.set_features(&features);
    });
    assert_eq!(recover(&device).unwrap().transactions, 0);
    assert!(!victim.is_replayed(&device));
    let bytes = journal_superblock(&victim, &device);
    assert_eq!((bytes.start.get(), bytes.sequence.get()), (0, 6));
}

fn journal_superblock(victim: &Victim, device: &Watched) -> RawJournalSuperblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(victim.offset(0, 0), &mut bytes).unwrap();
    RawJournalSuperblock::read_from_bytes(&bytes).unwrap()
}

#[test]
fn recorded_errors_of_the_kernel_are_reported() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let device = victim.with_journal_superblock(|raw| raw.errno = (-5_i32 as u32).into());
    let report = recover(&device).unwrap();
    assert_eq!(report.errno, Some(-5));
    assert!(victim.is_replayed(&device));
    let state = superblock(&device).raw.state.get();
    assert_eq!(state & STATE_ERROR, STATE_ERROR);
    let raw = journal_superblock(&victim, &device);
    assert_eq!((raw.errno.get(), raw.start.get(), raw.sequence.get()), (0, 0, 6));
    assert_eq!(recover(&device).unwrap().errno, None);
}

/// Descriptors that follow each other around the whole log without end.
#[test]
fn a_log_without_an_end_is_not_changed() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&UNCHECKED);
    let device = victim.copy();
    let mut block = vec![0; 1024];
    block[..12].copy_from_slice(&[MAGIC.to_be_bytes(), [0, 0, 0, 1], [0, 0, 0, 2]].concat());
    // Every tag has the flag for "no uuid" but not the one for the last tag.
    for tag in block[12..].chunks_exact_mut(8) {
        tag[7] = 2;
    }
    for journal_block in 1..4096 {
        device.inner.write_at(victim.offset(journal_block, 0), &block).unwrap();
    }
    assert_eq!(recover(&device).unwrap().transactions, 0);
}

#[test]
fn no_damage_brings_recovery_down() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    for (config, edit) in [
        (&CHECKED, None),
        (&UNCHECKED, None),
        (&UNCHECKED, Some(set_async as fn(&mut RawJournalSuperblock))),
        (&Config { features: "^metadata_csum,fast_commit", ..CHECKED }, None),
    ] {
        let victim = Victim::new(config);
        let mut random = fastrand::Rng::with_seed(11);
        let mut outcomes = [0; 2];
        let rounds = testkit::effort(200, 300, 20_000);
        for _ in 0..rounds {
            let device = match edit {
                Some(edit) => victim.with_journal_superblock(edit),
                None => victim.copy(),
            };
            for _ in 0..random.usize(1..4) {
                let in_superblock = random.u8(..8) == 0;
                let block = if in_superblock { 0 } else { random.u32(1..14) };
                let end = if random.bool() { 64 } else { 1024 };
                let byte = random.u64(..end);
                let telling = [0, 1, 2, 5, 8, 255][random.usize(..6)];
                let value = [random.u8(..), telling];
                let value = &value[random.usize(..2)..][..1];
                device.inner.write_at(victim.offset(block, byte), value).unwrap();
            }
            match recover(&device) {
                Ok(_) => outcomes[0] += 1,
                Err(error) => {
                    assert_eq!(device.writes.load(Ordering::Relaxed), 0, "{error}");
                    outcomes[1] += 1;
                }
            }
        }
        assert!(outcomes.iter().all(|&count| count > rounds / 25), "{outcomes:?}");
    }
}

fn set_async(raw: &mut RawJournalSuperblock) {
    raw.feature_incompat = (raw.feature_incompat.get() | 4).into();
    raw.feature_compat = 1.into();
}

/// The commit block of an asynchronous log may be written before the rest of its transaction, but only at the end of
/// the log.
#[test]
fn an_interrupted_asynchronous_commit_is_no_damage() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let victim = Victim::new(&CHECKED);
    let asynchronous = |block, byte| {
        let device = victim.with_journal_superblock(|raw| {
            raw.feature_incompat = (raw.feature_incompat.get() | 4).into();
        });
        let mut bytes = [0];
        device.read_at(victim.offset(block, byte), &mut bytes).unwrap();
        device.inner.write_at(victim.offset(block, byte), &[!bytes[0]]).unwrap();
        device
    };
    for block in [10, 11] {
        let device = asynchronous(block, 500);
        let report = recover(&device).unwrap();
        assert_eq!((report.transactions, report.blocks_revoked), (2, 1));
        assert!(!victim.is_replayed(&device));
        assert_eq!(journal_superblock(&victim, &device).sequence.get(), 5);
    }
    assert_damage(&asynchronous(6, 500), "journal descriptor block", "journal block 6");
    assert_damage(&asynchronous(7, 500), "journaled block", "journal block 7");
}

#[test]
fn the_mark_alone_is_taken_back() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let image = JournalImage::new(&CHECKED);
    drop(image.journal());
    assert!(crate::journal::support::needs_recovery(&image.path));
    let _ = recover(&*image.device()).unwrap();
    assert!(!crate::journal::support::needs_recovery(&image.path));
}
