//! Attributes of inodes, and totals of the file system.

mod change;

use linux::abi::{self, Attr, AttrOut, EntryOut, GetattrIn, Kstatfs, Statx, StatxOut, SxTime};
use linux::{Errno, Reply};
use vfs::{Attributes, DeviceNumber, FileType, Ino, Timestamp};

use crate::Adapter;
use crate::adapter::VALID_SEC;

pub(crate) use change::CAPABILITIES;

/// Validity of the attributes of a file without allocated space, if it may get some. The kernel does not know the space
/// of its write-back and asks again only when the file is closed. Programs such as GNU tar with `--sparse` treat a file
/// with contents but no space as a hole and do not read it.
const EMPTY_VALID_SEC: u64 = 1;

/// Preferred I/O size reported to programs, in bytes.
const BLOCK_SIZE: u32 = 4096;

/// Fields of [`Statx`] that are always valid (`STATX_BASIC_STATS`), and the creation time (`STATX_BTIME`).
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

impl Adapter<'_> {
    /// Answers a GETATTR from the kernel. With an open file it may precede a write. That is its only purpose if the
    /// kernel's cached attributes were invalidated.
    pub(crate) fn getattr_before_write(
        &self,
        ino: Ino,
        args: &GetattrIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if args.getattr_flags & abi::GETATTR_FH != 0 {
            self.space.check_write(ino)?;
        }
        self.getattr(ino, reply)
    }

    /// Answers GETATTR and SETATTR.
    pub(crate) fn getattr(&self, ino: Ino, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let attributes = self.attributes(ino)?;
        let (attr_valid, attr) = (self.attr_valid(&attributes), self.attr(&attributes));
        reply.put(&AttrOut { attr_valid, attr_valid_nsec: 0, dummy: 0, attr })
    }

    /// Answers STATX.
    pub(crate) fn statx(&self, ino: Ino, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let attributes = self.attributes(ino)?;
        let (attr_valid, stat) = (self.attr_valid(&attributes), self.stat(&attributes));
        reply.put(&StatxOut { attr_valid, stat, ..StatxOut::default() })
    }

    /// Answers STATFS.
    pub(crate) fn statfs(&self, node: Ino, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let totals = self.result(self.fs.statfs_of(node))?;
        reply.put(&Kstatfs {
            blocks: totals.blocks,
            bfree: totals.blocks_free,
            bavail: totals.blocks_available,
            files: totals.inodes,
            ffree: totals.inodes_free,
            bsize: totals.block_size,
            namelen: totals.name_len_max,
            frsize: totals.block_size,
            ..Kstatfs::default()
        })
    }

    /// Returns the attributes of an inode as stored in the image.
    pub(crate) fn attributes(&self, ino: Ino) -> Result<Attributes, Errno> {
        self.result(self.fs.attributes(ino))
    }

    /// Returns an inode as the answer to a look-up.
    pub(crate) fn entry_out(&self, attributes: &Attributes) -> EntryOut {
        let nodeid = self.node(attributes.ino);
        // The kernel requires 0 for the root.
        let generation = if nodeid == abi::ROOT_ID { 0 } else { attributes.generation };
        EntryOut {
            nodeid,
            generation: generation.into(),
            entry_valid: self.entry_valid_sec,
            attr_valid: self.attr_valid(attributes),
            attr: self.attr(attributes),
            ..EntryOut::default()
        }
    }

    /// Returns the validity of attributes in the kernel's cache, in seconds.
    fn attr_valid(&self, attributes: &Attributes) -> u64 {
        if self.is_protected(attributes) {
            return 0;
        }
        let may_get_space = attributes.file_type == FileType::Regular && !self.options.read_only;
        if may_get_space && attributes.blocks_512 == 0 { EMPTY_VALID_SEC } else { VALID_SEC }
    }

    /// Converts attributes to the kernel's structure.
    fn attr(&self, attributes: &Attributes) -> Attr {
        let Attributes { atime, mtime, ctime, .. } = *attributes;
        Attr {
            ino: attributes.ino.0,
            size: attributes.size,
            blocks: attributes.blocks_512,
            // Times before 1970 as two's complement.
            atime: atime.sec as u64,
            mtime: mtime.sec as u64,
            ctime: ctime.sec as u64,
            atimensec: atime.nsec,
            mtimensec: mtime.nsec,
            ctimensec: ctime.nsec,
            mode: mode(attributes).into(),
            nlink: attributes.links,
            uid: self.options.uid.unwrap_or(attributes.uid),
            gid: self.options.gid.unwrap_or(attributes.gid),
            rdev: encode_device(attributes.device),
            blksize: BLOCK_SIZE,
            flags: 0,
        }
    }

    /// Converts attributes to the structure of STATX, with the creation time.
    fn stat(&self, attributes: &Attributes) -> Statx {
        let btime_bit = if attributes.crtime.is_some() { STATX_BTIME } else { 0 };
        Statx {
            mask: STATX_BASIC_STATS | btime_bit,
            blksize: BLOCK_SIZE,
            nlink: attributes.links,
            uid: self.options.uid.unwrap_or(attributes.uid),
            gid: self.options.gid.unwrap_or(attributes.gid),
            mode: mode(attributes),
            ino: attributes.ino.0,
            size: attributes.size,
            blocks: attributes.blocks_512,
            atime: sx_time(attributes.atime),
            btime: sx_time(attributes.crtime.unwrap_or_default()),
            ctime: sx_time(attributes.ctime),
            mtime: sx_time(attributes.mtime),
            rdev_major: attributes.device.major,
            rdev_minor: attributes.device.minor,
            ..Statx::default()
        }
    }
}

/// Returns type and permissions.
fn mode(attributes: &Attributes) -> u16 {
    attributes.file_type.mode_bits() | attributes.permissions
}

fn sx_time(time: Timestamp) -> SxTime {
    SxTime { tv_sec: time.sec, tv_nsec: time.nsec, reserved: 0 }
}

/// Encodes a device number as in the protocol: the lower 8 bits of the minor number, 12 bits of the major number, the
/// upper 12 bits of the minor number.
fn encode_device(device: DeviceNumber) -> u32 {
    let DeviceNumber { major, minor } = device;
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Decodes a device number.
pub(crate) fn decode_device(rdev: u32) -> DeviceNumber {
    DeviceNumber { major: rdev >> 8 & 0xfff, minor: rdev & 0xff | rdev >> 12 & 0xf_ff00 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfs::DeviceNumber;

    use super::{decode_device, encode_device};

    #[test]
    fn device_numbers_are_the_kernels() {
        // Values from stat(2) for 8:1, 259:7 and 4095:1048575.
        for (major, minor, rdev) in
            [(8, 1, 0x801), (259, 7, 0x1_0307), (1, 256, 0x10_0100), (4095, 0xf_ffff, u32::MAX)]
        {
            assert_eq!(encode_device(DeviceNumber { major, minor }), rdev);
            assert_eq!(decode_device(rdev), DeviceNumber { major, minor });
        }
    }

    proptest! {
        #[test]
        fn device_numbers_survive(rdev in any::<u32>()) {
            prop_assert_eq!(encode_device(decode_device(rdev)), rdev);
        }
    }
}
