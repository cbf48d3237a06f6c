//! Structural checks of inode slots: some when an inode is loaded, and all, including extents in the forks, before it
//! is written.

use engine::Corruption;
use vfs::{FileType, Ino};

use super::{CORE_SIZE_V2, CORE_SIZE_V3, ForkFormat, MAGIC, flags, flags2};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::{LEVELS_MAX, ROOT_HEADER_SIZE, TreeShape};
use crate::format::bytes::{be16, be32, be64};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::geometry::Geometry;
use crate::format::metafile::{METATYPE, MetafileType};

const STRUCTURE: &str = "inode";

/// Checks magic number and version, which determine the layout.
pub(super) fn verify_start(geometry: &Geometry, slot: &[u8]) -> Result<(), Corruption> {
    let magic = be16(slot, 0);
    if magic != MAGIC {
        let damage = Corruption::new(STRUCTURE, "wrong magic number");
        return Err(damage.mismatch(format_args!("{MAGIC:#06x}"), format_args!("{magic:#06x}")));
    }
    let (version, crc) = (slot[4], geometry.features.crc());
    if (version == 3) != crc || !(1..=3).contains(&version) {
        let expected = if crc { "3" } else { "1 or 2" };
        return Err(Corruption::new(STRUCTURE, "version").mismatch(expected, version));
    }
    Ok(())
}

/// Checks number and UUID, which version 3 has.
pub(super) fn verify_identity(
    geometry: &Geometry,
    ino: Ino,
    slot: &[u8],
) -> Result<(), Corruption> {
    if !geometry.features.crc() {
        return Ok(());
    }
    if be64(slot, 152) != ino.0 {
        let damage = Corruption::new(STRUCTURE, "it contains another inode number");
        return Err(damage.mismatch(ino, be64(slot, 152)));
    }
    if slot[160..176] != geometry.meta_uuid {
        return Err(Corruption::new(STRUCTURE, "it belongs to another file system"));
    }
    Ok(())
}

/// Checks a slot that is about to be written, except for its checksum. Only the common fields of a free slot are
/// checked.
///
/// # Errors
/// The first problem found.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    ino: Ino,
    slot: &[u8],
) -> Result<(), Corruption> {
    verify_start(geometry, slot)
        .and_then(|()| verify_identity(geometry, ino, slot))
        .and_then(|()| if be16(slot, 2) == 0 { Ok(()) } else { verify_used(geometry, slot) })
        .map_err(|c| c.of_inode(ino.0))
}

fn verify_used(geometry: &Geometry, slot: &[u8]) -> Result<(), Corruption> {
    check_core(slot)?;
    let (data, attr) = forks(slot);
    let data_format = ForkFormat::from_raw(slot[5]);
    if is_realtime(slot)
        && data_format == Some(ForkFormat::Extents)
        && let Some(realtime) = &geometry.realtime
    {
        verify_list(data, data_extents(slot), |extent| extent.check_realtime(realtime))?;
    } else if let Some(shape) = tree_of_group(slot) {
        verify_root(geometry, &shape, data)?;
    } else {
        verify_fork(geometry, data, data_format, data_extents(slot))?;
    }
    verify_fork(geometry, attr, ForkFormat::from_raw(slot[83]), attr_extents(slot))
}

/// Returns whether the data of a slot in use is on the realtime device.
fn is_realtime(slot: &[u8]) -> bool {
    FileType::from_mode(be16(slot, 2)) == Some(FileType::Regular)
        && be16(slot, 90) & flags::REALTIME != 0
}

/// Checks that the forks of a slot in use are within it, and have formats that fit its type.
pub(super) fn check_core(slot: &[u8]) -> Result<(), Corruption> {
    let fault = |problem, expected: &str, found: u64| {
        Corruption::new(STRUCTURE, problem).mismatch(expected, found)
    };
    let literal = slot.len() - core_size(slot);
    let forkoff = slot[82];
    if usize::from(forkoff) * 8 >= literal && forkoff != 0 {
        return Err(fault("forkoff", "within the inode", forkoff.into()));
    }
    let mode = be16(slot, 2);
    let Some(file_type) = FileType::from_mode(mode) else {
        return Err(fault("its mode has no valid file type", "a type", mode.into()));
    };
    let format = ForkFormat::from_raw(slot[5]);
    let fits = match file_type {
        FileType::Regular if tree_of_group(slot).is_some() => format == Some(ForkFormat::MetaBtree),
        FileType::Regular => matches!(format, Some(ForkFormat::Extents | ForkFormat::Btree)),
        FileType::Directory => {
            matches!(format, Some(ForkFormat::Local | ForkFormat::Extents | ForkFormat::Btree))
        }
        FileType::Symlink => matches!(format, Some(ForkFormat::Local | ForkFormat::Extents)),
        _ => format == Some(ForkFormat::Device),
    };
    if !fits {
        return Err(fault("format", "one that matches its type", slot[5].into()));
    }
    let attr = ForkFormat::from_raw(slot[83]);
    // An inode without an attribute fork has the format "extents"; old kernels left 0 there.
    let attr_fits =
        matches!(attr, Some(ForkFormat::Local | ForkFormat::Extents | ForkFormat::Btree));
    if !attr_fits && forkoff != 0 {
        return Err(fault("aformat", "1 to 3", slot[83].into()));
    }
    let size = be64(slot, 56);
    if size > i64::MAX as u64 {
        return Err(fault("size", "below 2^63", size));
    }
    if format == Some(ForkFormat::Local) && size > forks(slot).0.len() as u64 {
        return Err(fault("size of contents in the inode", "within its fork", size));
    }
    Ok(())
}

fn core_size(slot: &[u8]) -> usize {
    if slot[4] == 3 { CORE_SIZE_V3 } else { CORE_SIZE_V2 }
}

/// Returns the bytes of the data and attribute fork; the latter may be empty. The boundary must be valid.
fn forks(slot: &[u8]) -> (&[u8], &[u8]) {
    let both = &slot[core_size(slot)..];
    let boundary = if slot[82] == 0 { both.len() } else { usize::from(slot[82]) * 8 };
    both.split_at(boundary.min(both.len()))
}

fn has_large_counts(slot: &[u8]) -> bool {
    slot[4] == 3 && be64(slot, 120) & flags2::NREXT64 != 0
}

fn data_extents(slot: &[u8]) -> u64 {
    if has_large_counts(slot) { be64(slot, 24) } else { be32(slot, 76).into() }
}

fn attr_extents(slot: &[u8]) -> u64 {
    if has_large_counts(slot) { be32(slot, 76).into() } else { be16(slot, 80).into() }
}

/// Checks the extent list, or the root of the extent tree. Local contents are checked by their users.
fn verify_fork(
    geometry: &Geometry,
    fork: &[u8],
    format: Option<ForkFormat>,
    extents: u64,
) -> Result<(), Corruption> {
    match format {
        Some(ForkFormat::Extents) => verify_list(fork, extents, |extent| extent.check(geometry)),
        Some(ForkFormat::Btree) if !fork.is_empty() => {
            verify_root(geometry, &TreeShape::BMBT, fork)
        }
        _ => Ok(()),
    }
}

fn verify_list(
    fork: &[u8],
    extents: u64,
    check: impl Fn(&Extent) -> Result<(), Corruption>,
) -> Result<(), Corruption> {
    let room = (fork.len() / EXTENT_SIZE) as u64;
    if extents > room {
        let damage = Corruption::new(STRUCTURE, "extents in a fork");
        return Err(damage.mismatch(format_args!("at most {room}"), extents));
    }
    let mut end = FileBlock(0);
    for record in fork.chunks_exact(EXTENT_SIZE).take(extents as usize) {
        let extent = Extent::parse(record);
        check(&extent)?;
        if extent.offset < end {
            let damage = Corruption::new(STRUCTURE, "order of extents");
            return Err(damage.mismatch(format_args!("{end} or more"), extent.offset));
        }
        end = extent.end();
    }
    Ok(())
}

/// Returns the tree of a realtime group that a slot in use contains, if it does.
fn tree_of_group(slot: &[u8]) -> Option<TreeShape> {
    let is_metadata = slot[4] == 3 && be64(slot, 120) & flags2::METADATA != 0;
    let metafile_type = MetafileType::from_number(be16(slot, METATYPE)).filter(|_| is_metadata)?;
    metafile_type.shape()
}

fn verify_root(geometry: &Geometry, shape: &TreeShape, fork: &[u8]) -> Result<(), Corruption> {
    let bad = |problem| Corruption::new("root of a fork's tree", problem);
    if fork.len() < ROOT_HEADER_SIZE {
        return Err(bad("no space for it"));
    }
    let area = shape.root_area_of(fork);
    let (level, count) = (usize::from(area.level(fork)), area.count(fork));
    let least = usize::from(!shape.has_leaf_roots);
    if !(least..LEVELS_MAX).contains(&level) {
        return Err(bad("level").mismatch(format_args!("{least} to {}", LEVELS_MAX - 1), level));
    }
    let least = usize::from(level > 0);
    if !(least..=area.max).contains(&count) {
        return Err(bad("numrecs").mismatch(format_args!("{least} to {}", area.max), count));
    }
    if shape.has_leaf_roots {
        shape.verify_root_entries(geometry, &area, fork)?;
    }
    if level == 0 {
        return Ok(());
    }
    let key = |at: usize| be64(area.entry(fork, at), 0);
    let keys = if shape.has_leaf_roots { 0..0 } else { 1..count };
    if let Some(at) = keys.into_iter().find(|&at| key(at) <= key(at - 1)) {
        return Err(bad("order of keys").mismatch(format_args!("above {}", key(at - 1)), key(at)));
    }
    let pointers = (0..count).map(|at| FsBlock(area.pointer(fork, at)));
    match pointers.into_iter().find(|&pointer| !geometry.contains(pointer, 1)) {
        Some(pointer) => Err(bad("pointer").mismatch("a block of a group", pointer)),
        None => Ok(()),
    }
}
