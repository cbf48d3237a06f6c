//! The ioctls.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{self, Getter, Setter, opcode};

/// Bytes of a label as the kernel passes it: text, then NULs (`FSLABEL_MAX`).
const LABEL_BYTES: usize = 256;

const FS_IOC_GETFSLABEL: ioctl::Opcode = opcode::read::<[u8; LABEL_BYTES]>(0x94, 49);
const FS_IOC_SETFSLABEL: ioctl::Opcode = opcode::write::<[u8; LABEL_BYTES]>(0x94, 50);
const EXT4_IOC_RESIZE_FS: ioctl::Opcode = opcode::write::<u64>(b'f', 16);
const XFS_IOC_FSGEOMETRY_V4: ioctl::Opcode = opcode::read::<GeometryV4>(b'X', 124);
const XFS_IOC_FSGEOMETRY: ioctl::Opcode = opcode::read::<Geometry>(b'X', 126);
const XFS_IOC_FSGROWFSDATA: ioctl::Opcode = opcode::write::<Growth>(b'X', 110);

/// `struct xfs_fsop_geom_v4`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct GeometryV4 {
    blocksize: u32,
    rtextsize: u32,
    agblocks: u32,
    agcount: u32,
    logblocks: u32,
    sectsize: u32,
    inodesize: u32,
    imaxpct: u32,
    datablocks: u64,
    rtblocks: u64,
    rtextents: u64,
    logstart: u64,
    uuid: [u8; 16],
    sunit: u32,
    swidth: u32,
    version: i32,
    flags: u32,
    logsectsize: u32,
    rtsectsize: u32,
    dirblocksize: u32,
    logsunit: u32,
}

/// `struct xfs_fsop_geom`, which Linux has from 5.2 on.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Geometry {
    old: GeometryV4,
    sick: u32,
    checked: u32,
    rgextents: u32,
    rgcount: u32,
    rtstart: u64,
    rtreserved: u64,
    reserved: [u64; 14],
}

/// `struct xfs_growfs_data`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Growth {
    newblocks: u64,
    imaxpct: u32,
    padding: u32,
}

const _: () = assert!(size_of::<GeometryV4>() == 112);
const _: () = assert!(size_of::<Geometry>() == 256);
const _: () = assert!(size_of::<Growth>() == 16);

/// Features of a mounted XFS: bits of `xfs_fsop_geom.flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XfsFlags(u32);

#[allow(missing_docs, reason = "names as in the kernel")]
impl XfsFlags {
    pub const ATTR: Self = Self(1);
    pub const ATTR2: Self = Self(1 << 10);
    pub const PROJID32: Self = Self(1 << 11);
    pub const DIRV2CI: Self = Self(1 << 12);
    pub const LAZYSB: Self = Self(1 << 14);
    pub const V5SB: Self = Self(1 << 15);
    pub const FTYPE: Self = Self(1 << 16);
    pub const FINOBT: Self = Self(1 << 17);
    pub const SPINODES: Self = Self(1 << 18);
    pub const RMAPBT: Self = Self(1 << 19);
    pub const REFLINK: Self = Self(1 << 20);
    pub const BIGTIME: Self = Self(1 << 21);
    pub const INOBTCNT: Self = Self(1 << 22);
    pub const NREXT64: Self = Self(1 << 23);
    pub const EXCHANGE_RANGE: Self = Self(1 << 24);
    pub const PARENT: Self = Self(1 << 25);
    pub const METADIR: Self = Self(1 << 26);
    pub const ZONED: Self = Self(1 << 27);
    pub const LOGV2: Self = Self(1 << 8);

    /// Returns true if the bit of `flag` is set.
    #[must_use]
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// Geometry of a mounted XFS. Names and units are those of `struct xfs_fsop_geom`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "names as in the kernel")]
pub struct XfsGeometry {
    pub blocksize: u32,
    pub rtextsize: u32,
    pub agblocks: u32,
    pub agcount: u32,
    pub logblocks: u32,
    pub sectsize: u32,
    pub inodesize: u32,
    pub imaxpct: u32,
    pub datablocks: u64,
    pub rtblocks: u64,
    pub rtextents: u64,
    pub logstart: u64,
    pub uuid: [u8; 16],
    pub sunit: u32,
    pub swidth: u32,
    pub flags: XfsFlags,
    pub logsectsize: u32,
    pub dirblocksize: u32,
    pub logsunit: u32,
    pub rgextents: u32,
    pub rgcount: u32,
    pub rtstart: u64,
    pub rtreserved: u64,
}

/// Returns the geometry of the mounted XFS that an open file lies in.
///
/// # Errors
/// `ENOTTY` if it lies in another file system.
pub fn xfs_geometry(file: impl AsFd) -> io::Result<XfsGeometry> {
    // SAFETY: the kernel writes a `struct xfs_fsop_geom`, whose size the opcode has, and all of whose bytes are valid
    // in every field.
    #[allow(unsafe_code)]
    let found = unsafe { ioctl::ioctl(&file, Getter::<XFS_IOC_FSGEOMETRY, Geometry>::new()) };
    let found = match found {
        Err(Errno::NOTTY) => {
            // SAFETY: as above, with `struct xfs_fsop_geom_v4`.
            #[allow(unsafe_code)]
            let old =
                unsafe { ioctl::ioctl(&file, Getter::<XFS_IOC_FSGEOMETRY_V4, GeometryV4>::new()) };
            Geometry { old: old?, ..Geometry::default() }
        }
        found => found?,
    };
    let Geometry { old, rgextents, rgcount, rtstart, rtreserved, .. } = found;
    Ok(XfsGeometry {
        blocksize: old.blocksize,
        rtextsize: old.rtextsize,
        agblocks: old.agblocks,
        agcount: old.agcount,
        logblocks: old.logblocks,
        sectsize: old.sectsize,
        inodesize: old.inodesize,
        imaxpct: old.imaxpct,
        datablocks: old.datablocks,
        rtblocks: old.rtblocks,
        rtextents: old.rtextents,
        logstart: old.logstart,
        uuid: old.uuid,
        sunit: old.sunit,
        swidth: old.swidth,
        flags: XfsFlags(old.flags),
        logsectsize: old.logsectsize,
        dirblocksize: old.dirblocksize,
        logsunit: old.logsunit,
        rgextents,
        rgcount,
        rtstart,
        rtreserved,
    })
}

/// Grows the data section of the mounted XFS that an open file lies in to `blocks`, and sets the limit of inodes in percent.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for a size that cannot be.
pub fn grow_xfs(file: impl AsFd, blocks: u64, inodes_percent: u32) -> io::Result<()> {
    let growth = Growth { newblocks: blocks, imaxpct: inodes_percent, padding: 0 };
    // SAFETY: the kernel only reads a `struct xfs_growfs_data`.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl::ioctl(file, Setter::<XFS_IOC_FSGROWFSDATA, Growth>::new(growth)) };
    Ok(done?)
}

/// Grows the mounted ext4 (also one without its features) that an open file lies in to `blocks`.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_RESOURCE`, `EINVAL` for a size below the current one.
pub fn resize_ext4(file: impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: the kernel only reads a `__u64`.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl::ioctl(file, Setter::<EXT4_IOC_RESIZE_FS, u64>::new(blocks)) };
    Ok(done?)
}

/// Returns the label of the mounted file system that an open file lies in.
///
/// # Errors
/// `ENOTTY` if the kernel does not tell labels of this format.
pub fn label(file: impl AsFd) -> io::Result<Vec<u8>> {
    // SAFETY: the kernel writes `char[FSLABEL_MAX]`.
    #[allow(unsafe_code)]
    let text =
        unsafe { ioctl::ioctl(file, Getter::<FS_IOC_GETFSLABEL, [u8; LABEL_BYTES]>::new()) }?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(text[..end].to_vec())
}

/// Sets the label of the mounted file system that an open file lies in.
///
/// # Errors
/// `EINVAL` if the label is too long for the format, `EPERM` without `CAP_SYS_ADMIN`, `ENOTTY` if the kernel sets no labels
/// of this format.
pub fn set_label(file: impl AsFd, label: &[u8]) -> io::Result<()> {
    let mut text = [0; LABEL_BYTES];
    let room = text.get_mut(..label.len()).filter(|room| room.len() < LABEL_BYTES);
    room.ok_or(Errno::INVAL)?.copy_from_slice(label);
    // SAFETY: the kernel only reads `char[FSLABEL_MAX]`, which ends with a NUL.
    #[allow(unsafe_code)]
    let done =
        unsafe { ioctl::ioctl(file, Setter::<FS_IOC_SETFSLABEL, [u8; LABEL_BYTES]>::new(text)) };
    Ok(done?)
}
