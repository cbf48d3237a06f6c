//! Adding features to a file system that is not open.

use std::mem::offset_of;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::check::{FindingCounter, Options};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::{Sector, parse, sector};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::ag::{self, AGI_SECTOR, RawAgi};
use crate::format::btree::{NO_SIBLING, Side, TreeShape, ag_block};
use crate::format::checksum;
use crate::format::features::{Features, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::superblock::{CRC_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::log::log_is_clean;
use crate::mkfs::log_blocks_min;
use crate::volume::read_superblock;

/// A feature that can be added to a file system of version 5. Existing inodes stay as they are: kernels convert each
/// one when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFeature {
    /// Timestamps up to 2486.
    Bigtime,
    /// Counts of the blocks of inode trees in each AGI.
    Inobtcount,
    /// 64-bit extent counters.
    Nrext64,
    /// Exchange of file contents in the log.
    Exchange,
}

impl NewFeature {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bigtime, Self::Inobtcount, Self::Nrext64, Self::Exchange];

    /// Returns the name, as in mkfs.xfs(8).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bigtime => "bigtime",
            Self::Inobtcount => "inobtcount",
            Self::Nrext64 => "nrext64",
            Self::Exchange => "exchange",
        }
    }

    /// Returns whether a file system has the feature.
    fn is_in(self, features: &Features) -> bool {
        let mut with = *features;
        self.add_to(&mut with);
        with == *features
    }

    fn add_to(self, features: &mut Features) {
        match self {
            Self::Bigtime => features.incompat |= Incompat::BIGTIME,
            Self::Inobtcount => features.ro_compat |= RoCompat::INOBTCOUNT,
            Self::Nrext64 => features.incompat |= Incompat::NREXT64,
            Self::Exchange => features.incompat |= Incompat::EXCHRANGE,
        }
    }
}

/// Adds features to a clean and sound file system. Those that it has already are ignored.
///
/// The primary superblock is one sector and is written after everything that the features need. So after a crash the
/// file system has either all of them or none.
///
/// # Errors
/// - `Unsupported` or `Invalid` if the log contains changes or is too small, if the check finds damage, or if a feature
///   needs another one.
/// - `Corrupt` for a damaged superblock or AGI.
/// - `Device` if the device fails.
///
/// The image is then unchanged, unless a write failed.
pub fn add_features(device: &Arc<dyn BlockDevice>, wanted: &[NewFeature]) -> Result<()> {
    let sb = read_superblock(&**device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "mount it with a kernel that supports it"));
    }
    crate::open::realtime::require_device(&**device)?;
    let mut features = sb.features;
    wanted.iter().for_each(|feature| feature.add_to(&mut features));
    if wanted.iter().all(|feature| feature.is_in(&sb.features)) {
        return Ok(());
    }
    check_possible(device, &sb, &features)?;
    let geometry = Geometry::new(&sb);
    let count = sb.raw.agcount.get();
    let gets_counts = features.ro_compat != sb.features.ro_compat;
    // All are read before one is written.
    let agis = (0..if gets_counts { count } else { 0 })
        .map(|ag| counted_agi(&**device, &geometry, AgNumber(ag)))
        .collect::<Result<Vec<_>>>()?;
    let mut copies =
        (0..count).map(|ag| sector(&**device, &sb, ag)).collect::<Result<Vec<Sector>>>()?;
    for (_, bytes) in &mut copies {
        let start = &mut bytes[..SUPERBLOCK_SIZE];
        let mut raw = parse(start)?;
        raw.features_incompat = features.incompat.bits().into();
        raw.features_ro_compat = features.ro_compat.bits().into();
        start.copy_from_slice(raw.as_bytes());
        checksum::seal(bytes, CRC_OFFSET);
    }
    let (primary, others) = copies.split_at(1);
    for sectors in [&agis[..], primary, others] {
        for (offset, bytes) in sectors {
            device.write_at(*offset, bytes).map_err(Error::Device)?;
        }
        device.flush().map_err(Error::Device)?;
    }
    Ok(())
}

fn check_possible(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    features: &Features,
) -> Result<()> {
    if features.ro_compat(RoCompat::INOBTCOUNT) && !features.ro_compat(RoCompat::FINOBT) {
        let advice = "diskwright convert --features makes a copy with both";
        return Err(Error::unsupported("inobtcount without finobt", advice));
    }
    if !log_is_clean(&**device, sb)? {
        return Err(Error::Invalid("its log must be replayed; run diskwright recover first"));
    }
    let min = log_blocks_min(&Geometry { features: *features, ..Geometry::new(sb) });
    let found = sb.raw.logblocks.get();
    if u64::from(found) < min {
        return Err(Error::unsupported(
            format!("these features with a log of {found} blocks, because they need {min}"),
            "diskwright convert makes a copy with a larger log",
        ));
    }
    let counter = FindingCounter::default();
    let summary = crate::check::check(Arc::clone(device), &Options::default(), &counter)?;
    match counter.count() {
        0 if summary.is_complete => Ok(()),
        found => Err(Error::unsupported(
            format!("adding features to an image with {found} findings of the check"),
            "run diskwright repair first",
        )),
    }
}

/// Returns the AGI of a group with the counts of blocks.
fn counted_agi(device: &dyn BlockDevice, geometry: &Geometry, ag: AgNumber) -> Result<Sector> {
    let size = geometry.sector_size();
    let start = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
    let offset = start + u64::from(AGI_SECTOR) * size as u64;
    let mut bytes = vec![0; size];
    device.read_at(offset, &mut bytes).map_err(Error::Device)?;
    ag::verify_header(geometry, ag, AGI_SECTOR as usize, &bytes)
        .map_err(|damage| damage.in_group(ag.0.into()))?;
    let (mut agi, _) = RawAgi::read_from_prefix(&bytes)
        .map_err(|_| Corruption::new("AGI", "truncated").in_group(ag.0.into()))?;
    let tree = Trees { device, geometry, ag, max: geometry.ag_len(ag) };
    agi.iblocks = tree.blocks(&TreeShape::INO, agi.root.get(), agi.level.get())?.into();
    agi.fblocks = tree.blocks(&TreeShape::FINO, agi.free_root.get(), agi.free_level.get())?.into();
    bytes[..agi.as_bytes().len()].copy_from_slice(agi.as_bytes());
    checksum::seal(&mut bytes, offset_of!(RawAgi, crc));
    Ok((offset, bytes))
}

/// The trees of a group.
struct Trees<'t> {
    device: &'t dyn BlockDevice,
    geometry: &'t Geometry,
    ag: AgNumber,
    /// Maximum number of blocks of a tree.
    max: u32,
}

impl Trees<'_> {
    /// Returns the number of blocks of a tree with `levels` levels.
    fn blocks(&self, shape: &TreeShape, root: u32, levels: u32) -> Result<u32> {
        let mut blocks = 0;
        let mut first = u64::from(root);
        for level in (0..levels).rev() {
            let (mut at, mut child) = (first, NO_SIBLING);
            while at != NO_SIBLING {
                let data = self.read(shape, ag_block(at))?;
                let area = match level {
                    0 => shape.leaf_area(self.geometry),
                    _ => shape.node_area(self.geometry),
                };
                blocks += 1;
                if u32::from(area.level(&data)) != level || blocks > self.max {
                    return Err(self.damage(shape, "its levels are wrong").into());
                }
                if level > 0 && child == NO_SIBLING && area.count(&data) > 0 {
                    child = area.pointer(&data, 0);
                }
                at = shape.sibling(&data, Side::Right);
            }
            first = child;
        }
        Ok(blocks)
    }

    fn read(&self, shape: &TreeShape, block: AgBlock) -> Result<Vec<u8>> {
        if block.0 >= self.max {
            return Err(self.damage(shape, "a pointer leads out of the group").into());
        }
        let place = self.geometry.block_of(self.ag, block);
        let mut data = vec![0; self.geometry.block_size()];
        self.device.read_at(self.geometry.byte_of(place), &mut data).map_err(Error::Device)?;
        shape.verify(self.geometry, place, self.ag.0.into(), &data)?;
        Ok(data)
    }

    fn damage(&self, shape: &TreeShape, problem: &'static str) -> Corruption {
        Corruption::new(shape.name, problem).in_group(self.ag.0.into())
    }
}
