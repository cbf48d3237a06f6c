//! Checks the fields of group headers: of every group when an image is opened, and of each changed header before it is
//! written.

use engine::{Changed, Corruption};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    AG_VERSION, AGFL_SECTOR, RawAgf, RawAgfl, RawAgi, headers_in, sector_place, verify_start,
};
use crate::format::address::AgNumber;
use crate::format::bytes::be32;
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::superblock_structure;

/// Maximum number of levels of any tree of a group (`XFS_BTREE_MAXLEVELS`).
const LEVELS_MAX: u32 = 9;
/// Value of unused AGFL entries (`NULLAGBLOCK`).
const NO_BLOCK: u32 = u32::MAX;

/// Returns the byte offset of the AGFL's entries in its sector. Version 4 has no header.
pub(crate) const fn agfl_entries(geometry: &Geometry) -> usize {
    if geometry.features.crc() { size_of::<RawAgfl>() } else { 0 }
}

/// Returns the number of entries of an AGFL: the rest of its sector.
pub(crate) const fn agfl_capacity(geometry: &Geometry) -> u32 {
    ((geometry.sector_size() - agfl_entries(geometry)) / size_of::<u32>()) as u32
}

/// Checks the changed headers in block `block` of group `ag`, except for their checksums, before they are sealed.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    ag: AgNumber,
    block: u32,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    for (sector, start) in headers_in(geometry, block) {
        let range = start..start + geometry.sector_size();
        // Superblocks other than the first are copies, which are not read.
        if !changed.touches(range.clone()) || sector == 0 && ag.0 != 0 {
            continue;
        }
        verify_header(geometry, ag, sector, &data[range]).map_err(|c| c.in_group(ag.0.into()))?;
    }
    Ok(())
}

fn verify_header(
    geometry: &Geometry,
    ag: AgNumber,
    sector: usize,
    bytes: &[u8],
) -> Result<(), Corruption> {
    if sector != AGFL_SECTOR as usize || geometry.features.crc() {
        verify_start(ag, sector, bytes)?;
    }
    let length = geometry.ag_len(ag);
    match sector {
        0 => superblock_structure::verify_structure(geometry, bytes),
        1 => check_agf(geometry, length, raw(bytes)?),
        2 => check_agi(geometry, length, raw(bytes)?),
        _ => check_agfl(geometry, length, bytes),
    }
}

/// Returns the header at the start of a sector.
pub(crate) fn raw<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<&T, Corruption> {
    let found = T::ref_from_prefix(bytes).ok().map(|(found, _)| found);
    found.ok_or_else(|| Corruption::new("group header", "shorter than a sector"))
}

/// Checks the AGF of a group of `length` blocks.
pub(crate) fn check_agf(geometry: &Geometry, length: u32, agf: &RawAgf) -> Result<(), Corruption> {
    const AGF: &str = "AGF";
    check_version(AGF, agf.versionnum.get(), agf.length.get(), length)?;
    let has = |feature| geometry.features.ro_compat(feature);
    let [bno, cnt, rmap] = [0, 1, 2].map(|at| (agf.roots[at].get(), agf.levels[at].get()));
    check_root(AGF, geometry, length, bno)?;
    check_root(AGF, geometry, length, cnt)?;
    if has(RoCompat::RMAPBT) {
        check_root(AGF, geometry, length, rmap)?;
        at_most(AGF, "rmap_blocks", length, agf.rmap_blocks.get())?;
    }
    if has(RoCompat::REFLINK) {
        let refcount = (agf.refcount_root.get(), agf.refcount_level.get());
        check_root(AGF, geometry, length, refcount)?;
        at_most(AGF, "refcount_blocks", length, agf.refcount_blocks.get())?;
    }
    at_most(AGF, "freeblks", length, agf.freeblks.get())?;
    at_most(AGF, "longest", agf.freeblks.get(), agf.longest.get())?;
    at_most(AGF, "btreeblks", length, agf.btreeblks.get())?;
    check_ring(geometry, agf)
}

/// Checks the AGF's fields of the AGFL: a ring in which the `flcount` entries from `flfirst` to `fllast` are valid.
fn check_ring(geometry: &Geometry, agf: &RawAgf) -> Result<(), Corruption> {
    let size = agfl_capacity(geometry);
    let (first, last, count) = (agf.flfirst.get(), agf.fllast.get(), agf.flcount.get());
    at_most("AGF", "flfirst", size - 1, first)?;
    at_most("AGF", "fllast", size - 1, last)?;
    at_most("AGF", "flcount", size, count)?;
    let spanned = (last + size - first) % size + 1;
    // An empty list looks like a full one. Version 4 kernels could leave these fields inconsistent after a change of
    // the list's size. Such an image is only read.
    let is_empty = count == 0 && spanned == size;
    if count != spanned && !is_empty && geometry.features.crc() {
        return Err(Corruption::new("AGF", "flcount").mismatch(spanned, count));
    }
    Ok(())
}

/// Checks the AGI of a group of `length` blocks.
pub(crate) fn check_agi(geometry: &Geometry, length: u32, agi: &RawAgi) -> Result<(), Corruption> {
    const AGI: &str = "AGI";
    check_version(AGI, agi.versionnum.get(), agi.length.get(), length)?;
    check_root(AGI, geometry, length, (agi.root.get(), agi.level.get()))?;
    let features = &geometry.features;
    if features.ro_compat(RoCompat::FINOBT) {
        check_root(AGI, geometry, length, (agi.free_root.get(), agi.free_level.get()))?;
    }
    let most = u64::from(length) << geometry.inodes_per_block_log();
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    at_most(AGI, "count", most, agi.count.get())?;
    at_most(AGI, "freecount", agi.count.get(), agi.freecount.get())?;
    if features.ro_compat(RoCompat::INOBTCOUNT) {
        at_most(AGI, "iblocks", length, agi.iblocks.get())?;
        at_most(AGI, "fblocks", length, agi.fblocks.get())?;
    }
    Ok(())
}

/// Checks that every entry of the AGFL, valid or not, is a block of the group or null.
pub(crate) fn check_agfl(
    geometry: &Geometry,
    length: u32,
    sector: &[u8],
) -> Result<(), Corruption> {
    let first = agfl_entries(geometry);
    let entries = (0..agfl_capacity(geometry) as usize).map(|at| be32(sector, first + at * 4));
    match entries.into_iter().find(|&block| block >= length && block != NO_BLOCK) {
        Some(block) => Err(Corruption::new("AGFL", "a block outside of the group")
            .mismatch(format_args!("below {length}"), block)),
        None => Ok(()),
    }
}

/// Checks that a field is at most `max`.
fn at_most(
    structure: &'static str,
    field: &'static str,
    max: u32,
    found: u32,
) -> Result<(), Corruption> {
    if found <= max {
        return Ok(());
    }
    Err(Corruption::new(structure, field).mismatch(format_args!("at most {max}"), found))
}

/// Checks that a root is after the headers of a group of `length` blocks, and that its number of levels is possible.
fn check_root(
    structure: &'static str,
    geometry: &Geometry,
    length: u32,
    (block, levels): (u32, u32),
) -> Result<(), Corruption> {
    let (headers_end, _) = sector_place(geometry, AGFL_SECTOR);
    if block <= headers_end || block >= length {
        let damage = Corruption::new(structure, "root of a tree");
        return Err(damage.mismatch(format_args!("{} to {length}", headers_end + 1), block));
    }
    if !(1..=LEVELS_MAX).contains(&levels) {
        let damage = Corruption::new(structure, "levels of a tree");
        return Err(damage.mismatch(format_args!("1 to {LEVELS_MAX}"), levels));
    }
    Ok(())
}

/// Checks the fields at the start of AGF and AGI.
fn check_version(
    structure: &'static str,
    version: u32,
    length: u32,
    expected: u32,
) -> Result<(), Corruption> {
    if version != AG_VERSION {
        return Err(Corruption::new(structure, "versionnum").mismatch(AG_VERSION, version));
    }
    if length != expected {
        return Err(Corruption::new(structure, "length").mismatch(expected, length));
    }
    Ok(())
}
