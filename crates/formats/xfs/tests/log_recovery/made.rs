//! Records made by the tests: rare or impossible in logs of kernels.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::Error;
use xfs::format::log::build::{RecordBuilder, RecordPlace};
use xfs::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, DQUOT_SIZE};
use xfs::format::log::operation::{
    CLIENT_TRANSACTION, OP_COMMIT, OP_CONTINUE, OP_END, OP_START, OP_WAS_CONTINUED,
};
use xfs::format::log::{BLOCK_SIZE, Lsn};
use xfs::format::{checksum, geometry::Geometry};
use xfs::{OpenOptions, RecoverReport, Xfs, log_end};

use crate::changing::TargetLayout;
use crate::log_recovery::support::{log_place, superblock};

/// An operation: transaction, flags, contents.
type Op = (u32, u8, Vec<u8>);

/// An image with records after the one that marks the log as clean.
struct Made {
    device: MemoryDevice,
    /// An unused block of 4096 bytes, in units of 512 bytes.
    free: u64,
}

impl Made {
    fn new(records: &[Vec<Op>]) -> Self {
        Self::of_clients(CLIENT_TRANSACTION, records)
    }

    fn of_clients(client: u8, records: &[Vec<Op>]) -> Self {
        let device = TargetLayout::DEFAULT.make();
        let sb = superblock(&device);
        let (log, end) = (log_place(&sb), log_end(&device, &sb).unwrap().unwrap());
        let start = Lsn { cycle: 1, block: end.head };
        let mut lsn = start;
        for operations in records {
            let mut record = RecordBuilder::new(32 << 10, 1, 32 << 10, 512);
            for (tid, flags, contents) in operations {
                record.push_of(client, *tid, *flags, contents);
            }
            let log_blocks = ((log.end - log.start) / BLOCK_SIZE as u64) as u32;
            let uuid = sb.raw.uuid;
            let bytes =
                record.finish(&RecordPlace { lsn, tail: start, previous: None, uuid, log_blocks });
            device.write_at(log.start + u64::from(lsn.block) * BLOCK_SIZE as u64, bytes).unwrap();
            lsn.block += (bytes.len() / BLOCK_SIZE) as u32;
        }
        Self { device, free: free_block(&Geometry::new(&sb)) }
    }

    fn recover(&self) -> vfs::Result<RecoverReport> {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        Ok(*Xfs::open_writable(device, &OpenOptions::default())?.recovered())
    }

    /// Recovers, and returns the contents of the free block.
    fn recovered(&self, len: usize) -> Vec<u8> {
        let device = Arc::new(self.device.fork());
        drop(Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap());
        let mut bytes = vec![0; len];
        device.read_at(self.free * 512, &mut bytes).unwrap();
        bytes
    }
}

/// Returns the last block of the image, which a new one does not use.
fn free_block(geometry: &Geometry) -> u64 {
    (geometry.blocks - 1) << (geometry.block_log - 9)
}

fn free() -> u64 {
    free_block(&Geometry::new(&superblock(&TargetLayout::DEFAULT.make())))
}

fn header() -> Vec<u8> {
    [&0x5452_414e_u32.to_le_bytes()[..], &[40, 0, 0, 0], &[0; 8]].concat()
}

fn quota(id: u32) -> (Vec<u8>, Vec<u8>) {
    let mut format = [0x3d, 0x12, 2, 0].to_vec();
    format.extend(id.to_le_bytes());
    format.extend(free().to_le_bytes());
    format.extend(1_u32.to_le_bytes());
    format.extend((id * DQUOT_BLOCK_SIZE as u32).to_le_bytes());
    let mut dquot = vec![id as u8; DQUOT_SIZE];
    dquot[..4].copy_from_slice(&[0x44, 0x51, 1, 1]);
    (format, dquot)
}

fn whole(tid: u32, regions: Vec<Vec<u8>>) -> Vec<Op> {
    let mut operations = vec![(tid, OP_START, vec![]), (tid, 0, header())];
    operations.extend(regions.into_iter().map(|region| (tid, 0, region)));
    operations.push((tid, OP_COMMIT, vec![]));
    operations
}

#[test]
fn quotas_go_to_their_place_with_a_checksum() {
    let (format, dquot) = quota(2);
    let made = Made::new(&[whole(5, vec![format, dquot.clone()])]);
    assert_eq!(made.recover().unwrap().items_replayed, 1);
    let bytes = made.recovered(4096);
    let found = &bytes[2 * DQUOT_BLOCK_SIZE..][..DQUOT_BLOCK_SIZE];
    assert_eq!(found[..DQUOT_SIZE], dquot);
    checksum::check("quota", found, CRC_OFFSET).unwrap();
    assert!(bytes[..2 * DQUOT_BLOCK_SIZE].iter().all(|byte| *byte == 0));
}

#[test]
fn quotas_that_were_turned_off_stay_as_they_are() {
    let (format, dquot) = quota(2);
    let off = [0x3e, 0x12, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let made = Made::new(&[whole(5, vec![format, dquot]), whole(6, vec![off])]);
    let report = made.recover().unwrap();
    assert_eq!((report.transactions, report.items_skipped), (2, 1));
    assert!(made.recovered(4096).iter().all(|byte| *byte == 0));
}

#[test]
fn transactions_take_turns_and_regions_go_on_in_later_records() {
    let ((first, a), (second, b)) = (quota(1), quota(2));
    let made = Made::new(&[
        vec![
            (8, OP_START, vec![]),
            (9, OP_START, vec![]),
            (9, 0, header()),
            (8, OP_CONTINUE, header()[..5].to_vec()),
        ],
        vec![
            (9, 0, second.clone()),
            (8, OP_WAS_CONTINUED | OP_END, header()[5..].to_vec()),
            (8, 0, first),
            (8, OP_CONTINUE, a[..10].to_vec()),
        ],
        vec![
            (8, OP_WAS_CONTINUED | OP_CONTINUE, a[10..50].to_vec()),
            (9, 0, b.clone()),
            (9, OP_COMMIT, vec![]),
            // Transactions that started before the tail are already written back.
            (77, 0, vec![1; 20]),
        ],
        vec![(8, OP_WAS_CONTINUED | OP_END, a[50..].to_vec()), (8, OP_COMMIT, vec![])],
        // This one has no end.
        whole(10, vec![second, vec![0; 200]])[..4].to_vec(),
    ]);
    assert_eq!(made.recover().unwrap().transactions, 2);
    let bytes = made.recovered(4096);
    assert_eq!(bytes[DQUOT_BLOCK_SIZE..][..DQUOT_SIZE], a);
    assert_eq!(bytes[2 * DQUOT_BLOCK_SIZE..][..DQUOT_SIZE], b);
}

fn error_of(made: &Made) -> Error {
    made.recover().expect_err("it should not be replayed")
}

#[test]
fn impossible_operations_are_reported() {
    let (format, dquot) = quota(1);
    let regions = || vec![format.clone(), dquot.clone()];
    let unknown = Made::of_clients(0x33, &[whole(1, regions())]);
    assert!(error_of(&unknown).to_string().contains("unknown client"));
    let mut missing = whole(1, regions());
    missing.remove(3);
    let mut no_magic = whole(1, regions());
    no_magic[1].2[0] = 0;
    let mut twice = whole(1, regions());
    twice.insert(2, (1, OP_START, vec![]));
    let odd_type = vec![vec![0x77, 0x77, 1, 0, 0, 0, 0, 0]];
    let no_regions = vec![vec![0x3d, 0x12, 0, 0, 0, 0, 0, 0]];
    for (operations, text) in [
        (missing, "missing"),
        (no_magic, "magic"),
        (twice, "flags"),
        (whole(1, odd_type), "unknown type"),
        (whole(1, no_regions), "number of regions"),
    ] {
        let error = error_of(&Made::new(&[operations]));
        assert!(matches!(error, Error::Corrupt(_)), "{text}: {error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

#[test]
fn intents_of_realtime_devices_need_a_realtime_device() {
    let mut item = vec![0x4a, 0x12, 1, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    item.extend([5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    let error = error_of(&Made::new(&[whole(1, vec![item])]));
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("realtime EFI: blocks"), "{error}");
}

fn buffer(daddr: u64, blocks: u16, map: u32, chunk: Vec<u8>) -> Vec<Vec<u8>> {
    let mut format = [0x3c, 0x12, 2, 0, 0, 0].to_vec();
    format.extend(blocks.to_le_bytes());
    format.extend(daddr.to_le_bytes());
    format.extend(1_u32.to_le_bytes());
    format.extend(map.to_le_bytes());
    vec![format, chunk]
}

#[test]
fn moved_buffers_are_reported() {
    let sb = superblock(&TargetLayout::DEFAULT.make());
    let log = log_place(&sb).start / 512;
    let end = Geometry::new(&sb).blocks * 8;
    for (daddr, blocks, map, len, text) in [
        (log, 8, 1, 128, "in the log"),
        (end - 1, 8, 1, 128, "outside the file system"),
        (u64::MAX, 8, 1, 128, "outside the file system"),
        (free(), 0, 1, 128, "past its end"),
        (free(), 8, 1, 129, "length of a region"),
        (free(), 8, 1, 256, "length of a region"),
        (free(), 8, 0b101, 128, "fewer regions"),
        (free(), 8, 0, 128, "more regions"),
        (free(), 1, 0b1_0000, 128, "past its end"),
    ] {
        let made = Made::new(&[whole(1, buffer(daddr, blocks, map, vec![7; len]))]);
        let error = error_of(&made);
        assert!(matches!(error, Error::Corrupt(_)), "{text}: {error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

#[test]
fn a_cancelled_buffer_is_unchanged_unless_used_again() {
    let chunk = |byte| buffer(free(), 8, 2, vec![byte; 128]);
    let mut cancel = buffer(free(), 8, 0, vec![])[..1].to_vec();
    cancel[0][2] = 1;
    cancel[0][4] = 2;
    let dropped = Made::new(&[whole(1, chunk(1)), whole(2, cancel.clone())]);
    assert!(dropped.recovered(512).iter().all(|byte| *byte == 0));
    let again = Made::new(&[whole(1, chunk(1)), whole(2, cancel), whole(3, chunk(3))]);
    let bytes = again.recovered(512);
    assert!(bytes[..128].iter().all(|byte| *byte == 0));
    assert!(bytes[128..256].iter().all(|byte| *byte == 3));
}
