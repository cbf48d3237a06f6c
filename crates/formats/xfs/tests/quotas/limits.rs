//! Limits and grace times.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::{
    Error, FileAttributesChange, FileSystem, InodeFlags, NewInode, SetAttributes, Timestamp,
};
use xfs::format::bytes::be32;
use xfs::format::checksum;
use xfs::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, MAGIC};
use xfs::format::quota::{self, Quota, QuotaKind, Resource};

use super::{assert_counted, image, open};

const BLOCK: usize = 4096;
const DAY: i64 = 24 * 60 * 60;
const NOW: i64 = 1_790_000_000;
const USER: u32 = 7;

/// Returns the location of the record of an identifier on the device. `number` is that of the kind.
pub(super) fn record_place(device: &MemoryDevice, number: u8, id: u32) -> u64 {
    let mut block = vec![0; BLOCK];
    let per_block = quota::per_block(BLOCK);
    let is_it = |block: &[u8]| {
        block[..2] == MAGIC.to_be_bytes()
            && block[3] & 7 == number
            && be32(block, 4) == id / per_block * per_block
    };
    let found = (0..device.len() / BLOCK as u64).map(|at| at * BLOCK as u64).find(|&at| {
        device.read_at(at, &mut block).unwrap();
        // The log may contain copies.
        is_it(&block) && quota::verify(be32(&block, 4), &block).is_ok() && !is_in_log(device, at)
    });
    found.expect("a block of records") + u64::from(id % per_block) * DQUOT_BLOCK_SIZE as u64
}

fn is_in_log(device: &MemoryDevice, at: u64) -> bool {
    crate::changing::TargetLayout::log_of(device).contains(&at)
}

fn record(device: &MemoryDevice, at: u64) -> Vec<u8> {
    let mut record = vec![0; DQUOT_BLOCK_SIZE];
    device.read_at(at, &mut record).unwrap();
    record
}

pub(super) fn seal_record(device: &MemoryDevice, at: u64) {
    let mut record = record(device, at);
    checksum::seal(&mut record, CRC_OFFSET);
    device.write_at(at, &record).unwrap();
}

/// Sets the limits of an identifier. It must have a block of records.
fn limit(
    device: &MemoryDevice,
    kind: QuotaKind,
    id: u32,
    resource: Resource,
    hard: u64,
    soft: u64,
) {
    let at = record_place(device, kind.number(), id);
    let mut bytes = record(device, at);
    let old = quota::read(&bytes, resource);
    quota::write(&mut bytes, resource, &Quota { hard, soft, ..old });
    device.write_at(at, &bytes).unwrap();
    seal_record(device, at);
}

/// Returns an image in which projects have records.
fn with_records() -> Arc<MemoryDevice> {
    let device = Arc::new(image());
    let fs = open(&device);
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    let owner = SetAttributes { uid: Some(USER), gid: Some(USER), ..Default::default() };
    fs.set_attributes(file, &owner).unwrap();
    fs.unlink(fs.root(), b"file", None).unwrap();
    fs.close().unwrap();
    device
}

fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 0 }
}

fn new(uid: u32, gid: u32) -> NewInode {
    NewInode { permissions: 0o644, uid, gid, time: at(NOW), parent_time: None }
}

#[test]
fn hard_limits_are_never_exceeded() {
    let device = with_records();
    limit(&device, QuotaKind::User, USER, Resource::Blocks, 10, 0);
    limit(&device, QuotaKind::Group, USER, Resource::Inodes, 3, 0);
    let fs = open(&device);
    let root = fs.root();
    let file = fs.create(root, b"file", &new(USER, 0)).unwrap();
    fs.write(file, 0, &[1; 10 * BLOCK], None).unwrap();
    let more = fs.write(file, 10 * BLOCK as u64, &[1], None);
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    // Blocks that are there can be written, and freed ones can be used again.
    fs.write(file, 0, &[2; 10 * BLOCK], None).unwrap();
    fs.truncate(file, BLOCK as u64, None).unwrap();
    fs.write(file, 5 * BLOCK as u64, &[1; BLOCK], None).unwrap();
    for nth in 0..3 {
        fs.create(root, &[b'0' + nth], &new(0, USER)).unwrap();
    }
    let more = fs.create(root, b"3", &new(0, USER));
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    assert!(matches!(fs.create(root, b"2", &new(0, USER)), Err(Error::Exists)));
    // A change of the owner is a privileged operation.
    let owner = SetAttributes { gid: Some(USER), ..Default::default() };
    fs.set_attributes(file, &owner).unwrap();
    fs.unlink(root, b"0", None).unwrap();
    fs.unlink(root, b"1", None).unwrap();
    fs.create(root, b"3", &new(0, USER)).unwrap();
    fs.close().unwrap();
    assert_counted(&device);
}

#[test]
fn a_project_over_its_limit_is_full() {
    let device = with_records();
    limit(&device, QuotaKind::Project, USER, Resource::Inodes, 3, 0);
    let fs = open(&device);
    let dir = fs.mkdir(fs.root(), b"dir", &new(0, 0)).unwrap();
    let set = InodeFlags::PROJINHERIT;
    let change = FileAttributesChange { set, project_id: Some(USER), ..Default::default() };
    fs.set_file_attributes(dir, &change).unwrap();
    fs.create(dir, b"a", &new(0, 0)).unwrap();
    fs.create(dir, b"b", &new(0, 0)).unwrap();
    let more = fs.create(dir, b"c", &new(0, 0));
    assert!(matches!(more, Err(Error::NoSpace)), "{more:?}");
    fs.close().unwrap();
    assert_counted(&device);
}

/// Kernels refuse a record over a soft limit whose timer does not run.
#[test]
fn soft_limits_can_be_exceeded_for_the_grace_time() {
    let device = with_records();
    limit(&device, QuotaKind::User, USER, Resource::Blocks, 0, 4);
    let fs = open(&device);
    let file = fs.create(fs.root(), b"file", &new(USER, 0)).unwrap();
    let write = |fs: &xfs::Xfs, block: u64, day: i64| {
        let start = block * BLOCK as u64;
        fs.write(file, start, &[1; BLOCK], Some(at(NOW + day * DAY)))
    };
    for block in 0..6 {
        write(&fs, block, 0).unwrap();
    }
    fs.close().unwrap();
    let timer =
        quota::read(&record(&device, record_place(&device, 1, USER)), Resource::Blocks).timer;
    assert!(timer.abs_diff((NOW + 7 * DAY) as u64) < 4, "{timer}");
    assert_counted(&device);
    let fs = open(&device);
    write(&fs, 6, 6).unwrap();
    let late = write(&fs, 7, 8);
    assert!(matches!(late, Err(Error::QuotaExceeded)), "{late:?}");
    fs.truncate(file, 0, Some(at(NOW + 8 * DAY))).unwrap();
    write(&fs, 0, 9).unwrap();
    fs.close().unwrap();
    let place = record_place(&device, 1, USER);
    assert_eq!(quota::read(&record(&device, place), Resource::Blocks).timer, 0);
    assert_counted(&device);
}

/// The limits of identifier 0 are those of owners without their own.
#[test]
fn default_limits_apply_to_owners_without_their_own() {
    let device = with_records();
    limit(&device, QuotaKind::User, 0, Resource::Inodes, 2, 0);
    let fs = open(&device);
    for nth in 0..5 {
        fs.create(fs.root(), &[b'a' + nth], &new(0, 0)).unwrap();
    }
    fs.create(fs.root(), b"0", &new(USER, 0)).unwrap();
    fs.create(fs.root(), b"1", &new(USER, 0)).unwrap();
    let more = fs.create(fs.root(), b"2", &new(USER, 0));
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    fs.close().unwrap();
    let place = record_place(&device, 1, USER);
    assert_eq!(quota::read(&record(&device, place), Resource::Inodes).hard, 2);
    assert_counted(&device);
}
