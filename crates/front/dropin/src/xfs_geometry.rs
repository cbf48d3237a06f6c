//! Geometry of an XFS file system in the format of xfs_info(8), xfs_growfs(8) and mkfs.xfs(8).

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use disk::{BlockDevice, FileDevice};
use xfs::format::features::{Features2, Incompat, RoCompat, Version};
use xfs::format::superblock::Superblock;

use crate::failure::{Failure, STATUSES};
use crate::invoked::say_all;

/// Maximum sector size in bytes, which is the maximum that a superblock checksum covers.
const SECTOR_BYTES_MAX: u64 = 32 << 10;

/// Features shown as 0 or 1.
#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    projid32: bool,
    crc: bool,
    finobt: bool,
    sparse: bool,
    rmapbt: bool,
    reflink: bool,
    bigtime: bool,
    inobtcount: bool,
    nrext64: bool,
    exchange: bool,
    metadir: bool,
    ascii_ci: bool,
    ftype: bool,
    parent: bool,
    lazy_count: bool,
    zoned: bool,
}

/// Geometry of an XFS file system. Sizes are in bytes unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct XfsGeometry {
    pub(crate) block_size: u32,
    pub(crate) blocks: u64,
    pub(crate) inodes_percent: u32,
    inode_size: u32,
    ag_count: u32,
    ag_blocks: u32,
    sector_size: u32,
    attr_version: u32,
    /// Stripe unit and width in blocks.
    stripe: (u32, u32),
    dir_block_size: u32,
    log_place: String,
    log_blocks: u32,
    log_version: u32,
    log_sector_size: u32,
    log_stripe: u32,
    realtime_place: String,
    realtime_extent: u32,
    realtime_blocks: u64,
    realtime_extents: u64,
    group_count: u32,
    group_extents: u32,
    zone_start: u64,
    zone_reserved: u64,
    switches: Switches,
}

const INTERNAL_LOG: &str = "internal log";
const EXTERNAL: &str = "external";
const NONE: &str = "none";

/// Returns the place of the realtime section.
const fn realtime_place(blocks: u64, zone_start: u64) -> &'static str {
    match (blocks, zone_start) {
        (0, _) => NONE,
        (_, 0) => EXTERNAL,
        _ => "internal",
    }
}

impl XfsGeometry {
    /// Reads the geometry of an image or an unmounted device from its superblock.
    pub(crate) fn of_image(image: &Path) -> Result<Self, Failure> {
        let at =
            |e: &dyn std::fmt::Display| STATUSES.failed(format_args!("{}: {e}", image.display()));
        let device = File::open(image).and_then(FileDevice::new).map_err(|e| at(&e))?;
        let mut sector = vec![0; device.len().min(SECTOR_BYTES_MAX) as usize];
        device.read_at(0, &mut sector).map_err(|e| at(&e))?;
        let superblock = Superblock::parse(&sector, device.len()).map_err(|e| at(&e))?;
        Ok(Self::of_superblock(&superblock))
    }

    /// Shows the name of the log device, as mkfs.xfs does.
    pub(crate) fn name_log(&mut self, device: &Path) {
        self.log_place = device.display().to_string();
    }

    /// Shows the name of the realtime device, as mkfs.xfs does.
    pub(crate) fn name_realtime(&mut self, device: &Path) {
        self.realtime_place = device.display().to_string();
    }

    fn of_superblock(superblock: &Superblock) -> Self {
        let (raw, features) = (&superblock.raw, &superblock.features);
        let version = |bit| features.version_bits.contains(bit);
        let features2 = |bit| features.features2.contains(bit);
        let is_v2_log = version(Version::LOGV2);
        // The field may be 0 with 512-byte sectors.
        let log_sector_size = u32::from(raw.logsectsize.get());
        let metadir = features.incompat(Incompat::METADIR);
        let zoned = features.incompat(Incompat::ZONED);
        let zone_start = if zoned { raw.rtstart.get() } else { 0 };
        Self {
            block_size: raw.blocksize.get(),
            blocks: raw.dblocks.get(),
            inodes_percent: raw.imax_pct.into(),
            inode_size: raw.inodesize.get().into(),
            ag_count: raw.agcount.get(),
            ag_blocks: raw.agblocks.get(),
            sector_size: raw.sectsize.get().into(),
            // Since 2025, kernels and xfsprogs support attributes of version 2 only.
            attr_version: 2,
            stripe: (raw.unit.get(), raw.width.get()),
            dir_block_size: raw.blocksize.get() << raw.dirblklog,
            log_place: if raw.logstart.get() == 0 { EXTERNAL } else { INTERNAL_LOG }.into(),
            log_blocks: raw.logblocks.get(),
            log_version: if is_v2_log { 2 } else { 1 },
            log_sector_size: if log_sector_size == 0 { 512 } else { log_sector_size },
            log_stripe: if is_v2_log { raw.logsunit.get() } else { 0 },
            realtime_place: realtime_place(raw.rblocks.get(), zone_start).into(),
            realtime_extent: raw.rextsize.get().saturating_mul(raw.blocksize.get()),
            realtime_blocks: raw.rblocks.get(),
            realtime_extents: raw.rextents.get(),
            group_count: if metadir { raw.rgcount.get() } else { 0 },
            group_extents: if metadir { raw.rgextents.get() } else { 0 },
            zone_start,
            zone_reserved: if zoned { raw.rtreserved.get() } else { 0 },
            switches: Switches {
                projid32: features2(Features2::PROJID32),
                crc: features.crc(),
                finobt: features.ro_compat(RoCompat::FINOBT),
                sparse: features.incompat(Incompat::SPINODES),
                rmapbt: features.ro_compat(RoCompat::RMAPBT),
                reflink: features.ro_compat(RoCompat::REFLINK),
                bigtime: features.incompat(Incompat::BIGTIME),
                inobtcount: features.ro_compat(RoCompat::INOBTCOUNT),
                nrext64: features.incompat(Incompat::NREXT64),
                exchange: features.incompat(Incompat::EXCHRANGE),
                metadir,
                ascii_ci: features.ascii_ci(),
                ftype: features.ftype(),
                parent: features.incompat(Incompat::PARENT),
                lazy_count: features2(Features2::LAZYSBCOUNT),
                zoned,
            },
        }
    }

    /// Prints the lines with `name` as the name of the file system.
    pub(crate) fn show(&self, name: &Path) {
        let name = name.display().to_string();
        let mut lines = String::new();
        // Writing to a string cannot fail.
        let _ =
            self.write_metadata(&name, &mut lines).and_then(|()| self.write_sections(&mut lines));
        say_all(&lines);
    }

    fn write_metadata(&self, name: &str, out: &mut String) -> std::fmt::Result {
        let on = self.switches;
        let bit = u8::from;
        writeln!(
            out,
            "meta-data={name:<22} isize={:<6} agcount={}, agsize={} blks",
            self.inode_size, self.ag_count, self.ag_blocks
        )?;
        writeln!(
            out,
            "{BLANK} sectsz={:<5} attr={}, projid32bit={}",
            self.sector_size,
            self.attr_version,
            bit(on.projid32)
        )?;
        writeln!(
            out,
            "{BLANK} crc={:<8} finobt={}, sparse={}, rmapbt={}",
            bit(on.crc),
            bit(on.finobt),
            bit(on.sparse),
            bit(on.rmapbt)
        )?;
        writeln!(
            out,
            "{BLANK} reflink={:<4} bigtime={} inobtcount={} nrext64={}",
            bit(on.reflink),
            bit(on.bigtime),
            bit(on.inobtcount),
            bit(on.nrext64)
        )?;
        writeln!(out, "{BLANK} exchange={:<3} metadir={}", bit(on.exchange), bit(on.metadir))
    }

    fn write_sections(&self, out: &mut String) -> std::fmt::Result {
        let on = self.switches;
        let bit = u8::from;
        let block = self.block_size;
        writeln!(
            out,
            "data     ={:<22} bsize={block:<6} blocks={}, imaxpct={}",
            "", self.blocks, self.inodes_percent
        )?;
        let (unit, width) = self.stripe;
        writeln!(out, "{BLANK} sunit={unit:<6} swidth={width} blks")?;
        writeln!(
            out,
            "naming   ={:<22} bsize={:<6} ascii-ci={}, ftype={}, parent={}",
            "version 2",
            self.dir_block_size,
            bit(on.ascii_ci),
            bit(on.ftype),
            bit(on.parent)
        )?;
        writeln!(
            out,
            "log      ={:<22} bsize={block:<6} blocks={}, version={}",
            self.log_place, self.log_blocks, self.log_version
        )?;
        writeln!(
            out,
            "{BLANK} sectsz={:<5} sunit={} blks, lazy-count={}",
            self.log_sector_size,
            self.log_stripe / block.max(1),
            bit(on.lazy_count)
        )?;
        writeln!(
            out,
            "realtime ={:<22} extsz={:<6} blocks={}, rtextents={}",
            self.realtime_place, self.realtime_extent, self.realtime_blocks, self.realtime_extents
        )?;
        let (groups, extents) = (self.group_count, self.group_extents);
        writeln!(out, "{BLANK} rgcount={groups:<4} rgsize={extents} extents")?;
        let (start, reserved) = (self.zone_start, self.zone_reserved);
        writeln!(out, "{BLANK} zoned={:<6} start={start} reserved={reserved}", bit(on.zoned))
    }
}

/// Start of a continuation line.
const BLANK: &str = "         =                      ";

#[cfg(target_os = "linux")]
impl XfsGeometry {
    /// Reads the geometry of a mounted file system from the kernel.
    pub(crate) fn of_mount(mount: &linux::mounted::MountedDevice) -> Result<Self, Failure> {
        let found = mount.open().and_then(linux::mounted::xfs_geometry);
        let found = found.map_err(|e| {
            STATUSES.failed(format_args!(
                "cannot determine geometry of filesystem mounted at {}: {e}",
                mount.point.display()
            ))
        })?;
        Ok(Self::of_kernel(&found))
    }

    fn of_kernel(found: &linux::mounted::XfsGeometry) -> Self {
        use linux::mounted::XfsFlags as Flag;
        let has = |flag| found.flags.has(flag);
        Self {
            block_size: found.blocksize,
            blocks: found.datablocks,
            inodes_percent: found.imaxpct,
            inode_size: found.inodesize,
            ag_count: found.agcount,
            ag_blocks: found.agblocks,
            sector_size: found.sectsize,
            attr_version: match () {
                () if has(Flag::ATTR2) => 2,
                () => u32::from(has(Flag::ATTR)),
            },
            stripe: (found.sunit, found.swidth),
            dir_block_size: found.dirblocksize,
            log_place: if found.logstart == 0 { EXTERNAL } else { INTERNAL_LOG }.into(),
            log_blocks: found.logblocks,
            log_version: if has(Flag::LOGV2) { 2 } else { 1 },
            log_sector_size: found.logsectsize,
            log_stripe: found.logsunit,
            realtime_place: realtime_place(found.rtblocks, found.rtstart).into(),
            realtime_extent: found.rtextsize.saturating_mul(found.blocksize),
            realtime_blocks: found.rtblocks,
            realtime_extents: found.rtextents,
            group_count: found.rgcount,
            group_extents: found.rgextents,
            zone_start: found.rtstart,
            zone_reserved: found.rtreserved,
            switches: Switches {
                projid32: has(Flag::PROJID32),
                crc: has(Flag::V5SB),
                finobt: has(Flag::FINOBT),
                sparse: has(Flag::SPINODES),
                rmapbt: has(Flag::RMAPBT),
                reflink: has(Flag::REFLINK),
                bigtime: has(Flag::BIGTIME),
                inobtcount: has(Flag::INOBTCNT),
                nrext64: has(Flag::NREXT64),
                exchange: has(Flag::EXCHANGE_RANGE),
                metadir: has(Flag::METADIR),
                ascii_ci: has(Flag::DIRV2CI),
                ftype: has(Flag::FTYPE),
                parent: has(Flag::PARENT),
                lazy_count: has(Flag::LAZYSB),
                zoned: has(Flag::ZONED),
            },
        }
    }
}
