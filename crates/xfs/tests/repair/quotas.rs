//! Repair of quotas, which no kernel at hand counts: files of quotas are made by hand.

use std::sync::Arc;

use blockdev::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode};
use xfs::format::bytes::{be16, put16, put32};
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Inode, seal_slot};
use xfs::format::superblock::{CRC_OFFSET, Superblock};
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use crate::common::image::{device, golden};

const DQUOT_BYTES: usize = 136;
const DQUOT_CRC: usize = 108;
/// User quotas are accounted, enforced and were counted.
const QFLAGS: u16 = 1 | 2 | 4;
const QUOTA_BIT: u16 = 0x40;

/// A block of user quotas that have counted nothing.
fn quotas(uuid: &[u8; 16]) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (id, quota) in (0..).zip(block.chunks_exact_mut(DQUOT_BYTES)) {
        put16(quota, 0, 0x4451);
        (quota[2], quota[3]) = (1, 1);
        put32(quota, 4, id);
        quota[120..136].copy_from_slice(uuid);
        checksum::seal(quota, DQUOT_CRC);
    }
    block
}

/// An image with a file of quotas, and where its block is.
fn with_quotas() -> (MemoryDevice, u64) {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let geometry = Geometry::new(fs.superblock());
    let ino = fs.create(fs.root(), b"quotas", &NewInode::default()).unwrap();
    fs.write(ino, 0, &quotas(&geometry.meta_uuid), None).unwrap();
    let mut at = 0;
    fs.sync().unwrap();
    fs.extent_map(ino, 0, 4096, &mut |run| {
        if let vfs::ExtentPlace::Device(byte) = run.place {
            at = byte;
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    fs.close().unwrap();
    name_in_superblock(&device, &geometry, ino);
    (device.fork(), at)
}

fn name_in_superblock(device: &MemoryDevice, geometry: &Geometry, ino: Ino) {
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).unwrap();
    let links = Inode::from_slot(&slot).nlink() + 1;
    // The superblock's counts as a link.
    put32(&mut slot, 16, links);
    seal_slot(&mut slot);
    device.write_at(byte, &slot).unwrap();
    let mut sector = vec![0; geometry.sector_size()];
    device.read_at(0, &mut sector).unwrap();
    let mut sb = Superblock::parse(&sector, device.len()).unwrap().raw;
    sb.uquotino = ino.0.into();
    sb.qflags = QFLAGS.into();
    sb.versionnum = (sb.versionnum.get() | QUOTA_BIT).into();
    let bytes = zerocopy::IntoBytes::as_bytes(&sb);
    sector[..bytes.len()].copy_from_slice(bytes);
    checksum::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

#[test]
fn quotas_are_marked_as_not_counted() {
    let (image, at) = with_quotas();
    // Wrong counts; a quota that is none, twice; a wrong checksum.
    for harm in [&[][..], &[0], &[DQUOT_BYTES, 7 * DQUOT_BYTES], &[3 * DQUOT_BYTES + 60]] {
        let damaged = image.fork();
        for byte in harm {
            damaged.write_at(at + *byte as u64, &[0xee; 2]).unwrap();
        }
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.codes.iter().any(|code| code.starts_with("xfs-quota")), "{harm:?}");
        assert!(outcome.left.is_empty() && outcome.is_complete, "{harm:?}: {:?}", outcome.left);
        assert!(!outcome.is_repaired_again, "{harm:?}");
        let mut sector = vec![0; 512];
        outcome.device.read_at(0, &mut sector).unwrap();
        assert_eq!(be16(&sector, 176), 1 | 2, "{harm:?}");
        let mut block = vec![0; 4096];
        outcome.device.read_at(at, &mut block).unwrap();
        for quota in block.chunks_exact(DQUOT_BYTES) {
            assert_eq!(be16(quota, 0), 0x4451, "{harm:?}");
            checksum::check("quota", quota, DQUOT_CRC).unwrap();
        }
    }
}
