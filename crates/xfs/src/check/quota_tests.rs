//! Quotas are counted as a log leaves them, and not as intents do that are finished in memory.

use std::sync::Arc;

use ::check::{Finding, Observer, Options};
use blockdev::{BlockDevice, MemoryDevice};
use operation::RunOperations;
use parking_lot::Mutex;
use vfs::{FileSystem, FileType, Ino, NewInode, SetAttributes};
use zerocopy::IntoBytes;

use crate::Xfs;
use crate::format::bytes::{put16, put32, put64};
use crate::format::checksum;
use crate::format::geometry::Geometry;
use crate::format::inode::{Inode, seal_slot};
use crate::format::log::dquot::{CRC_OFFSET as DQUOT_CRC, DQUOT_BLOCK_SIZE, MAGIC as DQUOT_MAGIC};
use crate::format::log::intent::{AttributeChange, AttributeWork, Intent};
use crate::format::superblock::CRC_OFFSET;
use crate::fs::OpenOptions;
use crate::stub::make;
use crate::volume::read_superblock;

/// Whose file has its attributes changed.
const USER: u32 = 7;
const VALUE_BYTES: usize = 20_000;

#[derive(Default)]
struct Keep(Mutex<Vec<Finding>>);

impl Observer for Keep {
    fn found(&self, finding: Finding) {
        self.0.lock().push(finding);
    }
}

fn findings(device: &MemoryDevice) -> Vec<Finding> {
    let keep = Keep::default();
    super::check(Arc::new(device.fork()), &Options::default(), &keep).unwrap();
    keep.0.into_inner()
}

/// A block of user quotas, which have counted what `counts` says of each.
fn quotas(uuid: &[u8; 16], counts: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (id, quota) in (0..).zip(block.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
        put16(quota, 0, DQUOT_MAGIC);
        (quota[2], quota[3]) = (1, 1);
        put32(quota, 4, id);
        if let Some((_, blocks, inodes)) = counts.iter().find(|(of, ..)| *of == id) {
            put64(quota, 40, *blocks);
            put64(quota, 48, *inodes);
        }
        quota[120..136].copy_from_slice(uuid);
        checksum::seal(quota, DQUOT_CRC);
    }
    block
}

/// Makes a file that of user quotas, which were counted.
fn name_in_superblock(device: &MemoryDevice, ino: Ino) {
    let mut raw = read_superblock(device).unwrap().raw;
    let geometry = Geometry::new(&read_superblock(device).unwrap());
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).unwrap();
    // The superblock's counts as a link.
    let links = Inode::from_slot(&slot).nlink() + 1;
    put32(&mut slot, 16, links);
    seal_slot(&mut slot);
    device.write_at(byte, &slot).unwrap();
    raw.uquotino = ino.0.into();
    raw.qflags = (1 | 2 | 4).into();
    raw.versionnum = (raw.versionnum.get() | 0x40).into();
    // Changes of attributes may be in the log.
    raw.features_log_incompat = 1.into();
    let mut sector = vec![0; geometry.sector_size()];
    sector[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
    checksum::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

/// What the check counts of each user, as its findings say.
fn counted(findings: &[Finding]) -> Vec<(u32, u64, u64)> {
    let number = |text: &str| -> Option<u32> { text.split(' ').next_back()?.parse().ok() };
    let count = |finding: &Finding| {
        let id = number(finding.detail.as_deref()?)?;
        let (blocks, inodes) = finding.expected.as_deref()?.split_once(" blocks, ")?;
        let inodes = inodes.strip_suffix(" inodes")?;
        Some((id, blocks.parse().ok()?, inodes.parse().ok()?))
    };
    findings.iter().filter_map(count).collect()
}

/// An image with a file of [`USER`], and quotas that are right, with the place of their block and the file.
fn with_quotas() -> (MemoryDevice, u64, Ino) {
    let device = Arc::new(make(&crate::mkfs::Options::new(320 << 20)));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let uuid = fs.volume.geometry.meta_uuid;
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(file, 0, &[1; 10_000], None).unwrap();
    let owner = SetAttributes { uid: Some(USER), ..SetAttributes::default() };
    fs.set_attributes(file, &owner).unwrap();
    let ino = fs.create(fs.root(), b"quotas", &NewInode::default()).unwrap();
    fs.write(ino, 0, &quotas(&uuid, &[]), None).unwrap();
    let mut place = 0;
    fs.sync().unwrap();
    fs.extent_map(ino, 0, 4096, &mut |run| {
        if let vfs::ExtentPlace::Device(byte) = run.place {
            place = byte;
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    fs.close().unwrap();
    name_in_superblock(&device, ino);
    let counts = counted(&findings(&device));
    assert_eq!(counts.len(), 2, "{counts:?}");
    device.write_at(place, &quotas(&uuid, &counts)).unwrap();
    let found = findings(&device);
    assert!(found.is_empty(), "{found:?}");
    (device.fork(), place, file)
}

#[test]
fn quotas_do_not_count_what_a_log_only_announces() {
    let (image, place, file) = with_quotas();
    let device = Arc::new(image.fork());
    let fs = Xfs::open_recovered(device.clone(), &OpenOptions::default()).unwrap();
    let handle = fs.load(file).unwrap();
    let value = vec![b'v'; VALUE_BYTES];
    let work = AttributeWork::Set { namespace: 0, name: b"large".to_vec(), value };
    let generation = handle.inode.generation();
    let intent = Intent::attribute(77, &AttributeChange { ino: file, generation, work });
    let half = |op: &mut crate::op::Op<'_>| {
        // Without a change there would be nothing to write.
        let mut changed = handle.clone();
        changed.inode.set_mode(FileType::Regular, 0o640);
        op.stage(changed);
        Ok(())
    };
    let announce = |(): &()| {
        let log = fs.log.as_ref().unwrap();
        intent.regions.iter().for_each(|region| log.add_done(region.clone()));
        Ok(())
    };
    fs.atomically_then(half, announce).unwrap();
    fs.engine.checkpoint().unwrap();
    let crashed = device.fork();
    drop(fs);
    let finished = Xfs::open_recovered(Arc::new(crashed.fork()), &OpenOptions::default()).unwrap();
    assert_eq!(finished.recovered().intents, 1);
    assert!(finished.load(file).unwrap().inode.nblocks() >= handle.inode.nblocks() + 5);
    drop(finished);
    let found = findings(&crashed);
    assert!(found.is_empty(), "{found:?}");
    // A quota that is wrong by itself is found all the same.
    let mut block = vec![0; 4096];
    crashed.read_at(place, &mut block).unwrap();
    let quota = &mut block[USER as usize * DQUOT_BLOCK_SIZE..][..DQUOT_BLOCK_SIZE];
    put64(quota, 40, 1234);
    checksum::seal(quota, DQUOT_CRC);
    crashed.write_at(place, &block).unwrap();
    let found = findings(&crashed);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code.name).collect();
    assert_eq!(codes, ["xfs-quota-counts"], "{found:?}");
    assert_eq!(counted(&found)[0].0, USER);
}
