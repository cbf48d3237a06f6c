//! Group headers: reads and checks them at open, and updates them when a checkpoint is closed.

use std::ops::Range;

use disk::{BlockDevice, ContentKind};
use engine::{BufferId, Corruption, Txn};
use vfs::Result;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ags::{AgState, AgTree, Root};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::ag::{self, RawAgf, RawAgi};
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::superblock::RawSuperblock;
use crate::kind::BlockKind;

/// Sectors of a group before its AGF.
const SECTORS_BEFORE: u64 = ag::AGF_SECTOR as u64;
/// Number of sectors of AGF, AGI and AGFL.
const HEADER_SECTORS: usize = 3;

/// Number of groups whose headers are prefetched.
const AHEAD_MAX: usize = 64;

/// Reads and checks the headers of groups: three sectors of each.
pub(crate) fn read(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    groups: Range<u32>,
) -> Result<Vec<AgState>> {
    let size = geometry.sector_size();
    let mut sectors = vec![0; HEADER_SECTORS * size];
    let mut states = Vec::new();
    let place = |ag| {
        let start = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
        start + (SECTORS_BEFORE << geometry.sector_log)
    };
    if device.has_read_ahead() {
        let wanted = groups.clone().map(AgNumber).take(AHEAD_MAX);
        let len = sectors.len() as u64;
        wanted.for_each(|ag| device.read_ahead(place(ag), len, ContentKind::Metadata));
    }
    for ag in groups.map(AgNumber) {
        let offset = place(ag);
        device.read_at(offset, &mut sectors).map_err(vfs::Error::Device)?;
        states.push(parse(geometry, ag, &sectors).map_err(|c| c.in_group(ag.0.into()))?);
    }
    Ok(states)
}

/// Parses AGF, AGI and AGFL of a group, which are consecutive in `sectors`.
fn parse(geometry: &Geometry, ag: AgNumber, sectors: &[u8]) -> Result<AgState, Corruption> {
    let mut headers = sectors.chunks_exact(geometry.sector_size());
    let mut header = |sector| {
        let (block, _) = ag::sector_place(geometry, sector);
        let block = geometry.block_of(ag, AgBlock(block)).0;
        let bytes = headers.next().unwrap_or_default();
        let has_magic = sector != ag::AGFL_SECTOR || geometry.features.crc();
        let checked = if has_magic {
            ag::verify_header(geometry, ag, sector as usize, bytes)
        } else {
            Ok(())
        };
        checked.map(|()| (bytes, block)).map_err(|c| c.at_block(block))
    };
    let (agf, agf_block) = header(ag::AGF_SECTOR)?;
    let (agi, agi_block) = header(ag::AGI_SECTOR)?;
    header(ag::AGFL_SECTOR)?;
    let mut state = AgState { length: geometry.ag_len(ag), ..AgState::default() };
    parse_agf(geometry, ag::raw(agf)?, &mut state).map_err(|c| c.at_block(agf_block))?;
    parse_agi(geometry, ag::raw(agi)?, &mut state).map_err(|c| c.at_block(agi_block))?;
    Ok(state)
}

fn parse_agf(geometry: &Geometry, agf: &RawAgf, state: &mut AgState) -> Result<(), Corruption> {
    ag::check_agf(geometry, state.length, agf)?;
    let features = &geometry.features;
    let mut enter =
        |tree, block: U32, levels: U32| state.roots[tree as usize] = root(block, levels);
    enter(AgTree::Bno, agf.roots[0], agf.levels[0]);
    enter(AgTree::Cnt, agf.roots[1], agf.levels[1]);
    if features.ro_compat(RoCompat::RMAPBT) {
        enter(AgTree::Rmap, agf.roots[2], agf.levels[2]);
        state.rmap_blocks = agf.rmap_blocks.get();
    }
    if features.ro_compat(RoCompat::REFLINK) {
        enter(AgTree::Refcount, agf.refcount_root, agf.refcount_level);
        state.refcount_blocks = agf.refcount_blocks.get();
    }
    state.freeblks = agf.freeblks.get();
    state.longest = agf.longest.get();
    state.btreeblks = agf.btreeblks.get();
    state.flfirst = agf.flfirst.get();
    state.fllast = agf.fllast.get();
    state.flcount = agf.flcount.get();
    Ok(())
}

fn parse_agi(geometry: &Geometry, agi: &RawAgi, state: &mut AgState) -> Result<(), Corruption> {
    ag::check_agi(geometry, state.length, agi)?;
    let features = &geometry.features;
    state.roots[AgTree::Ino as usize] = root(agi.root, agi.level);
    if features.ro_compat(RoCompat::FINOBT) {
        state.roots[AgTree::Fino as usize] = root(agi.free_root, agi.free_level);
    }
    state.icount = agi.count.get();
    state.ifree = agi.freecount.get();
    state.newino = agi.newino.get();
    state.dirino = agi.dirino.get();
    if features.ro_compat(RoCompat::INOBTCOUNT) {
        state.ino_blocks = agi.iblocks.get();
        state.fino_blocks = agi.fblocks.get();
    }
    Ok(())
}

/// Returns a root whose fields were checked.
fn root(block: U32, levels: U32) -> Root {
    Root { block: AgBlock(block.get()), levels: levels.get() as u8 }
}

/// Totals stored in the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Inodes in chunks.
    pub(crate) icount: u64,
    /// Free inodes among `icount`.
    pub(crate) ifree: u64,
    /// Free blocks in the free-space trees.
    pub(crate) freeblks: u64,
    /// Free blocks, including those of the AGFLs and of the free-space trees (and reverse map).
    pub(crate) fdblocks: u64,
}

/// Writes a group's state into its headers.
pub(crate) fn write(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    state: &AgState,
) -> engine::Result<()> {
    let features = &geometry.features;
    edit::<RawAgf>(geometry, txn, ag, ag::AGF_SECTOR, |agf| {
        agf.length = state.length.into();
        for (at, tree) in [AgTree::Bno, AgTree::Cnt, AgTree::Rmap].into_iter().enumerate() {
            agf.roots[at] = state.root(tree).block.0.into();
            agf.levels[at] = u32::from(state.root(tree).levels).into();
        }
        agf.refcount_root = state.root(AgTree::Refcount).block.0.into();
        agf.refcount_level = u32::from(state.root(AgTree::Refcount).levels).into();
        agf.rmap_blocks = state.rmap_blocks.into();
        agf.refcount_blocks = state.refcount_blocks.into();
        agf.flfirst = state.flfirst.into();
        agf.fllast = state.fllast.into();
        agf.flcount = state.flcount.into();
        agf.freeblks = state.freeblks.into();
        agf.longest = state.longest.into();
        agf.btreeblks = state.btreeblks.into();
    })?;
    edit::<RawAgi>(geometry, txn, ag, ag::AGI_SECTOR, |agi| {
        agi.length = state.length.into();
        agi.root = state.root(AgTree::Ino).block.0.into();
        agi.level = u32::from(state.root(AgTree::Ino).levels).into();
        agi.free_root = state.root(AgTree::Fino).block.0.into();
        agi.free_level = u32::from(state.root(AgTree::Fino).levels).into();
        agi.count = state.icount.into();
        agi.freecount = state.ifree.into();
        agi.newino = state.newino.into();
        agi.dirino = state.dirino.into();
        if features.ro_compat(RoCompat::INOBTCOUNT) {
            agi.iblocks = state.ino_blocks.into();
            agi.fblocks = state.fino_blocks.into();
        }
    })
}

/// Writes totals into the superblock.
pub(crate) fn write_totals(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    totals: &Totals,
) -> engine::Result<()> {
    edit::<RawSuperblock>(geometry, txn, AgNumber(0), 0, |raw| {
        raw.icount = totals.icount.into();
        raw.ifree = totals.ifree.into();
        raw.fdblocks = totals.fdblocks.into();
    })
}

/// Writes the number of free realtime extents into the superblock. Unlike totals, kernels do not compute it after a
/// crash.
pub(crate) fn write_realtime_count(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    frextents: u64,
) -> engine::Result<()> {
    edit::<RawSuperblock>(geometry, txn, AgNumber(0), 0, |raw| raw.frextents = frextents.into())
}

/// Clears flags of quotas in the superblock (`sb_qflags`).
pub(crate) fn clear_quota_flags(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    flags: u16,
) -> engine::Result<()> {
    edit::<RawSuperblock>(geometry, txn, AgNumber(0), 0, |raw| {
        raw.qflags = (raw.qflags.get() & !flags).into();
    })
}

/// Changes a header of a group. The checksum is computed when the block is written.
fn edit<T: FromBytes + IntoBytes + KnownLayout + Immutable>(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    sector: u32,
    change: impl FnOnce(&mut T),
) -> engine::Result<()> {
    let (id, start) = buffer(geometry, txn, ag, sector)?;
    let place = start..start + size_of::<T>();
    let Ok(mut header) = T::read_from_bytes(&txn.data(id)[place.clone()]) else { return Ok(()) };
    change(&mut header);
    let new = header.as_bytes();
    let old = &txn.data(id)[place];
    let Some(first) = (0..new.len()).find(|&at| old[at] != new[at]) else { return Ok(()) };
    let end = (first..new.len()).rfind(|&at| old[at] != new[at]).unwrap_or(first) + 1;
    txn.edit(id, start + first..start + end).copy_from_slice(&new[first..end]);
    Ok(())
}

/// Holds the block that contains a header's sector. Returns the sector's byte offset in the block, too.
pub(crate) fn buffer(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    sector: u32,
) -> engine::Result<(BufferId, usize)> {
    let (block, start) = ag::sector_place(geometry, sector);
    let block = geometry.block_of(ag, AgBlock(block));
    Ok((txn.buffer(block.0, BlockKind::AgHeader.of_group(ag))?, start))
}
