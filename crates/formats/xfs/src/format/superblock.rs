//! The superblock: sector 0 of every allocation group. Only the first one is used.
//!
//! A [`Superblock`] exists only if its fields are consistent with each other and with the device. So no later
//! computation with them divides by zero, overflows or allocates excessive memory.

use vfs::hint::Hint;
use vfs::{Corruption, Error, Result};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum;
use super::features::{Features, Features2, Incompat, LogIncompat, RoCompat, Version};

/// `sb_magicnum`: "XFSB".
pub(crate) const MAGIC: u32 = 0x5846_5342;
/// Size of the structure in bytes; what follows it in its sector is zero.
pub const SUPERBLOCK_SIZE: usize = 304;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 224;
/// Block sizes as powers of two: 512 bytes (version 4 only) to 64 KiB.
const BLOCK_LOGS: std::ops::RangeInclusive<u8> = 9..=16;
/// Sector sizes as powers of two: 512 bytes to 32 KiB.
const SECTOR_LOGS: std::ops::RangeInclusive<u8> = 9..=15;
/// Inode sizes as powers of two: 256 (version 4 only) to 2048 bytes.
const INODE_LOGS: std::ops::RangeInclusive<u8> = 8..=11;
/// Maximum size of a directory block as a power of two: 64 KiB.
const DIR_BLOCK_LOG_MAX: u8 = 16;
/// Minimum number of blocks of an allocation group (`XFS_MIN_AG_BLOCKS`).
pub(crate) const AG_BLOCKS_MIN: u32 = 64;
/// Size of the groups of an absent realtime device, as a power of two in bytes.
pub(crate) const REALTIME_GROUP_LOG: u8 = 40;
/// Maximum number of groups supported by this build: 1 EiB in groups of 1 TiB.
pub(crate) const AGS_MAX: u32 = 1 << 20;

/// The superblock on disk. Fields as in the format document, without `sb_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawSuperblock {
    pub magicnum: U32,
    pub blocksize: U32,
    pub dblocks: U64,
    pub rblocks: U64,
    pub rextents: U64,
    pub uuid: [u8; 16],
    pub logstart: U64,
    pub rootino: U64,
    pub rbmino: U64,
    pub rsumino: U64,
    pub rextsize: U32,
    pub agblocks: U32,
    pub agcount: U32,
    pub rbmblocks: U32,
    pub logblocks: U32,
    pub versionnum: U16,
    pub sectsize: U16,
    pub inodesize: U16,
    pub inopblock: U16,
    pub fname: [u8; 12],
    pub blocklog: u8,
    pub sectlog: u8,
    pub inodelog: u8,
    pub inopblog: u8,
    pub agblklog: u8,
    pub rextslog: u8,
    pub inprogress: u8,
    pub imax_pct: u8,
    pub icount: U64,
    pub ifree: U64,
    pub fdblocks: U64,
    pub frextents: U64,
    pub uquotino: U64,
    pub gquotino: U64,
    pub qflags: U16,
    pub flags: u8,
    pub shared_vn: u8,
    pub inoalignmt: U32,
    pub unit: U32,
    pub width: U32,
    pub dirblklog: u8,
    pub logsectlog: u8,
    pub logsectsize: U16,
    pub logsunit: U32,
    pub features2: U32,
    pub bad_features2: U32,
    pub features_compat: U32,
    pub features_ro_compat: U32,
    pub features_incompat: U32,
    pub features_log_incompat: U32,
    pub crc: [u8; 4],
    pub spino_align: U32,
    pub pquotino: U64,
    pub lsn: U64,
    pub meta_uuid: [u8; 16],
    pub metadirino: U64,
    pub rgcount: U32,
    pub rgextents: U32,
    pub rgblklog: u8,
    pub pad: [u8; 7],
    pub rtstart: U64,
    pub rtreserved: U64,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, crc) == CRC_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, meta_uuid) == 248);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, rtstart) == 288);

impl RawSuperblock {
    /// Returns the inodes of the realtime bitmap and summary; zeros with a metadata directory, which has its own files.
    pub fn realtime_inodes(&self) -> [u64; 2] {
        match self.features().incompat(Incompat::METADIR) {
            true => [0; 2],
            false => [self.rbmino.get(), self.rsumino.get()],
        }
    }

    /// Returns the inodes of the quota files of users, groups and projects; zeros without quotas, or with a metadata
    /// directory, which has its own files.
    pub(crate) fn quota_inodes(&self) -> [u64; 3] {
        let features = self.features();
        if features.incompat(Incompat::METADIR) || !features.version_bits.contains(Version::QUOTA) {
            return [0; 3];
        }
        // The third file is beyond the end of a superblock of version 4.
        let projects = if features.crc() { self.pquotino.get() } else { 0 };
        [self.uquotino.get(), self.gquotino.get(), projects]
    }

    /// Returns its features.
    pub fn features(&self) -> Features {
        let versionnum = self.versionnum.get();
        let has_features2 = versionnum & Version::MOREBITS.bits() != 0;
        // An old bug stored the field at another offset in some images; both are combined.
        let features2 = self.features2.get() | self.bad_features2.get();
        Features {
            version: (versionnum & 0xf) as u8,
            version_bits: Version::from_bits_retain(versionnum & !0xf),
            features2: Features2::from_bits_retain(if has_features2 { features2 } else { 0 }),
            compat: self.features_compat.get(),
            ro_compat: RoCompat::from_bits_retain(self.features_ro_compat.get()),
            incompat: Incompat::from_bits_retain(self.features_incompat.get()),
            log_incompat: LogIncompat::from_bits_retain(self.features_log_incompat.get()),
        }
    }
}

/// A superblock with consistent fields.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The structure as read.
    pub raw: RawSuperblock,
    /// Its features.
    pub features: Features,
}

impl Superblock {
    /// Parses and checks `sector`, the first sector of the device: its fields, and their consistency with a device of
    /// `device_bytes`. It must have at least 512 bytes, or `sb_sectsize` if that is larger.
    ///
    /// # Errors
    /// `Corrupt` for invalid fields, `Unsupported` for unknown incompatible features.
    pub fn parse(sector: &[u8], device_bytes: u64) -> Result<Self> {
        let raw = RawSuperblock::read_from_prefix(sector)
            .map_err(|_| damage("the image is too short for one"))?
            .0;
        if raw.magicnum.get() != MAGIC {
            return Err(mismatch("wrong magic number", MAGIC, raw.magicnum.get()));
        }
        let features = raw.features();
        if !(4..=5).contains(&features.version) {
            let what = format!("XFS version {}", features.version);
            return Err(Error::unsupported(what, "only versions 4 and 5 are supported"));
        }
        check_sizes(&raw, &features)?;
        if features.crc() {
            let bytes = sector.get(..usize::from(raw.sectsize.get()));
            let bytes = bytes.ok_or_else(|| damage("truncated"))?;
            checksum::check("superblock", bytes, CRC_OFFSET)?;
        }
        check_features(&features)?;
        check_geometry(&raw, device_bytes)?;
        Ok(Self { raw, features })
    }

    /// Returns why the image can only be read, if so.
    pub fn read_only_because(&self) -> Option<String> {
        match self.features.crc() {
            true => self.unmaintained(),
            false => Some("version 4, without checksums".to_owned()),
        }
    }

    /// Returns the reason why even a repair cannot change the image, or `None` if it can. A repair can change images of
    /// version 4, because it writes in place instead of through the log.
    pub(crate) fn unmaintained(&self) -> Option<String> {
        let unknown = self.features.ro_compat.difference(RoCompat::all());
        if !self.features.crc() {
            return None;
        }
        if self.features.incompat(Incompat::ZONED) {
            // Kernels keep the write pointers and the garbage collection of zones in memory.
            return Some("a zoned realtime device, which only kernels write".to_owned());
        }
        (!unknown.is_empty()).then(|| format!("read-only feature bits {:#x}", unknown.bits()))
    }
}

fn damage(problem: &str) -> Error {
    Corruption::new("superblock", problem).into()
}

fn mismatch(field: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Corruption::new("superblock", field).mismatch(expected, found).into()
}

/// Checks the sizes from which everything else is computed.
pub(super) fn check_sizes(raw: &RawSuperblock, features: &Features) -> Result<()> {
    let log_of = |field: &'static str, size: u64, log: u8, range: std::ops::RangeInclusive<u8>| {
        if !range.contains(&log) || 1_u64 << log != size {
            let expected = format!("2^{} to 2^{} and 2^{log}", range.start(), range.end());
            return Err(mismatch(field, expected, size));
        }
        Ok(())
    };
    let crc = u8::from(features.crc());
    let blocks = BLOCK_LOGS.start() + crc..=*BLOCK_LOGS.end();
    log_of("blocksize", raw.blocksize.get().into(), raw.blocklog, blocks)?;
    log_of("sectsize", raw.sectsize.get().into(), raw.sectlog, SECTOR_LOGS)?;
    let inodes = INODE_LOGS.start() + crc..=*INODE_LOGS.end();
    log_of("inodesize", raw.inodesize.get().into(), raw.inodelog, inodes)?;
    if raw.sectlog > raw.blocklog {
        return Err(mismatch("sectsize", "at most the block size", raw.sectsize));
    }
    if raw.inodelog > raw.blocklog || raw.inopblog != raw.blocklog - raw.inodelog {
        return Err(mismatch("inopblog", raw.blocklog.saturating_sub(raw.inodelog), raw.inopblog));
    }
    if u32::from(raw.inopblock.get()) != 1 << raw.inopblog {
        return Err(mismatch("inopblock", 1_u32 << raw.inopblog, raw.inopblock));
    }
    if raw.dirblklog > DIR_BLOCK_LOG_MAX - raw.blocklog {
        let max = DIR_BLOCK_LOG_MAX - raw.blocklog;
        return Err(mismatch("dirblklog", format!("at most {max}"), raw.dirblklog));
    }
    Ok(())
}

/// Checks that the image was finished, and that groups and block counts are consistent with each other and the device.
fn check_geometry(raw: &RawSuperblock, device_bytes: u64) -> Result<()> {
    if raw.inprogress != 0 {
        return Err(damage("the image was never finished (inprogress is set)"));
    }
    check_groups(raw, device_bytes)
}

pub(super) fn check_groups(raw: &RawSuperblock, device_bytes: u64) -> Result<()> {
    let (ag_blocks, ag_count) = (raw.agblocks.get(), raw.agcount.get());
    if ag_blocks < AG_BLOCKS_MIN || u64::from(ag_blocks) << raw.blocklog > 1 << 40 {
        return Err(mismatch("agblocks", "64 blocks to 1 TiB", ag_blocks));
    }
    if u32::from(raw.agblklog) != ag_blocks.next_power_of_two().trailing_zeros() {
        let expected = ag_blocks.next_power_of_two().trailing_zeros();
        return Err(mismatch("agblklog", expected, raw.agblklog));
    }
    let blocks = raw.dblocks.get();
    let expected = blocks.div_ceil(u64::from(ag_blocks));
    if ag_count == 0 || u64::from(ag_count) != expected {
        return Err(mismatch("agcount", expected, ag_count));
    }
    if ag_count > AGS_MAX {
        let advice = "the maximum of this program is 2^20 allocation groups";
        return Err(Error::unsupported(format!("{ag_count} allocation groups"), advice));
    }
    let bytes = blocks.checked_mul(u64::from(raw.blocksize.get()));
    if bytes.is_none_or(|bytes| bytes > device_bytes) {
        let device = format!("at most {}", device_bytes >> raw.blocklog);
        let damage = Corruption::new("superblock", "dblocks (the image is truncated)");
        let advice = format!(
            "restore the missing end, or extract the remaining files with {}",
            Hint::Salvage
        );
        return Err(damage.mismatch(device, blocks).advise(advice).into());
    }
    Ok(())
}

/// Refuses features that cannot even be read.
pub(super) fn check_features(features: &Features) -> Result<()> {
    if !features.crc() {
        if !features.version_bits.contains(Version::DIRV2) {
            return Err(Error::unsupported(
                "version 1 directories",
                "copy the files with a kernel",
            ));
        }
        return Ok(());
    }
    let unknown = features.incompat.difference(Incompat::all());
    if !unknown.is_empty() {
        let what = format!("incompatible feature bits {:#x}", unknown.bits());
        return Err(Error::unsupported(what, "use a newer version of this program"));
    }
    if features.incompat.contains(Incompat::NEEDSREPAIR) {
        return Err(Error::unsupported(
            "an image marked as damaged",
            "run diskwright repair first",
        ));
    }
    if features.incompat.contains(Incompat::ZONE_GAPS) {
        let what = "zoned realtime devices with gaps between the zones";
        return Err(Error::unsupported(what, "copy the files with a kernel"));
    }
    Ok(())
}
