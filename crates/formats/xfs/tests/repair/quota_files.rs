//! Quota files made by the tests, because no available kernel counts quotas. Also included by the unit tests of the
//! library.

use disk::{BlockDevice, MemoryDevice};
use vfs::{ExtentPlace, FileSystem, Ino, NewInode};
use xfs::Xfs;
use xfs::format::bytes::{put16, put32, put64};
use xfs::format::checksum;
use xfs::format::features::Version;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Inode, seal_slot};
use xfs::format::log::dquot::{CRC_OFFSET as DQUOT_CRC, DQUOT_BLOCK_SIZE, MAGIC as DQUOT_MAGIC};
use xfs::format::superblock::{CRC_OFFSET, RawSuperblock, Superblock};
use zerocopy::IntoBytes;

const BLOCK_BYTES: usize = 4096;
/// User quotas are accounted, enforced and were counted.
const QFLAGS: u16 = 1 | 2 | 4;
/// Byte offsets in a quota: its version and type, its number, its counts, and the UUID.
const ID: usize = 4;
const BLOCKS: usize = 40;
const INODES: usize = 48;
const UUID: std::ops::Range<usize> = 120..136;

/// Returns a block of user quotas, with the given counts of blocks and inodes, and zero for others.
pub(crate) fn quotas(uuid: &[u8; 16], counts: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    for (id, quota) in (0..).zip(block.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
        put16(quota, 0, DQUOT_MAGIC);
        (quota[2], quota[3]) = (1, 1);
        put32(quota, ID, id);
        if let Some((_, blocks, inodes)) = counts.iter().find(|(of, ..)| *of == id) {
            put64(quota, BLOCKS, *blocks);
            put64(quota, INODES, *inodes);
        }
        quota[UUID].copy_from_slice(uuid);
        checksum::seal(quota, DQUOT_CRC);
    }
    block
}

/// Makes a quota file with zero counts. Returns its number, and the location of its block on the device.
pub(crate) fn add_file(fs: &Xfs, uuid: &[u8; 16]) -> (Ino, u64) {
    let ino = fs.create(fs.root(), b"quotas", &NewInode::default()).unwrap();
    fs.write(ino, 0, &quotas(uuid, &[]), None).unwrap();
    fs.sync().unwrap();
    let mut place = 0;
    fs.extent_map(ino, 0, BLOCK_BYTES as u64, &mut |run| {
        if let ExtentPlace::Device(byte) = run.place {
            place = byte;
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    (ino, place)
}

/// Makes a file the file of counted user quotas.
pub(crate) fn name_in_superblock(device: &MemoryDevice, ino: Ino) {
    change_superblock(device, |raw| {
        raw.uquotino = ino.0.into();
        raw.qflags = QFLAGS.into();
        raw.versionnum = (raw.versionnum.get() | Version::QUOTA.bits()).into();
    });
    let geometry = Geometry::new(&superblock(device));
    change_inode(device, &geometry, ino);
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut sector = vec![0; BLOCK_BYTES];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

/// Changes the first superblock.
pub(crate) fn change_superblock(device: &MemoryDevice, change: impl FnOnce(&mut RawSuperblock)) {
    let mut raw = superblock(device).raw;
    change(&mut raw);
    let mut sector = vec![0; raw.sectsize.get().into()];
    sector[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
    checksum::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector).unwrap();
}

/// Adds a link for the file's number in the superblock, and sets the size to 0 as kernels do.
fn change_inode(device: &MemoryDevice, geometry: &Geometry, ino: Ino) {
    const NLINK: usize = 16;
    const SIZE: usize = 56;
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).unwrap();
    let links = Inode::from_slot(&slot).nlink() + 1;
    put32(&mut slot, NLINK, links);
    put64(&mut slot, SIZE, 0);
    seal_slot(&mut slot);
    device.write_at(byte, &slot).unwrap();
}
