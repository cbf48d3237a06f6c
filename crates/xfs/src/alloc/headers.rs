//! The headers of groups between disk and memory: read and checked when a file system is opened,
//! brought up to date when a checkpoint is closed.

use blockdev::BlockDevice;
use transaction::{BufferId, Corruption, Txn};
use vfs::Result;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::agfl;
use super::ags::{AgState, AgTree, Root};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::ag::{self, RawAgf, RawAgi};
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::superblock::RawSuperblock;
use crate::kind::Kind;

/// Most levels of any tree of a group (`XFS_BTREE_MAXLEVELS`): what no group can need.
const LEVELS_MAX: u32 = 9;
/// Sectors of a group before its AGF.
const SECTORS_BEFORE: u64 = ag::AGF_SECTOR as u64;
/// Sectors of AGF, AGI and AGFL.
const HEADER_SECTORS: usize = 3;

/// Reads and checks the headers of all groups: three sectors of each.
pub(crate) fn read_all(device: &dyn BlockDevice, geometry: &Geometry) -> Result<Vec<AgState>> {
    let size = geometry.sector_size();
    let mut sectors = vec![0; HEADER_SECTORS * size];
    let mut states = Vec::new();
    for ag in geometry.ags() {
        let start = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
        let offset = start + (SECTORS_BEFORE << geometry.sector_log);
        device.read_at(offset, &mut sectors).map_err(vfs::Error::Device)?;
        states.push(parse(geometry, ag, &sectors).map_err(|c| c.in_group(ag.0.into()))?);
    }
    Ok(states)
}

/// What AGF, AGI and AGFL of a group say, one after another in `sectors`.
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
    parse_agf(geometry, raw(agf)?, &mut state).map_err(|c| c.at_block(agf_block))?;
    parse_agi(geometry, raw(agi)?, &mut state).map_err(|c| c.at_block(agi_block))?;
    Ok(state)
}

fn raw<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<&T, Corruption> {
    let found = T::ref_from_prefix(bytes).ok().map(|(found, _)| found);
    found.ok_or_else(|| Corruption::new("group header", "shorter than a sector"))
}

/// A number that may be at most so much.
fn at_most(
    structure: &'static str,
    field: &'static str,
    max: u32,
    found: u32,
) -> Result<u32, Corruption> {
    if found <= max {
        return Ok(found);
    }
    Err(Corruption::new(structure, field).mismatch(format_args!("at most {max}"), found))
}

/// A root that lies behind the headers of a group of `length` blocks.
fn root(
    structure: &'static str,
    geometry: &Geometry,
    length: u32,
    block: u32,
    levels: u32,
) -> Result<Root, Corruption> {
    let (headers_end, _) = ag::sector_place(geometry, ag::AGFL_SECTOR);
    if block <= headers_end || block >= length {
        let damage = Corruption::new(structure, "root of a tree");
        return Err(damage.mismatch(format_args!("{} to {length}", headers_end + 1), block));
    }
    if !(1..=LEVELS_MAX).contains(&levels) {
        let damage = Corruption::new(structure, "levels of a tree");
        return Err(damage.mismatch(format_args!("1 to {LEVELS_MAX}"), levels));
    }
    Ok(Root { block: AgBlock(block), levels: levels as u8 })
}

fn parse_agf(geometry: &Geometry, agf: &RawAgf, state: &mut AgState) -> Result<(), Corruption> {
    const AGF: &str = "AGF";
    check_start(AGF, agf.versionnum.get(), agf.length.get(), state.length)?;
    let length = state.length;
    let features = &geometry.features;
    let trees = [
        (AgTree::Bno, true, agf.roots[0], agf.levels[0]),
        (AgTree::Cnt, true, agf.roots[1], agf.levels[1]),
        (AgTree::Rmap, features.ro_compat(RoCompat::RMAPBT), agf.roots[2], agf.levels[2]),
        (
            AgTree::Refcount,
            features.ro_compat(RoCompat::REFLINK),
            agf.refcount_root,
            agf.refcount_level,
        ),
    ];
    for (tree, _, block, levels) in trees.into_iter().filter(|(_, exists, ..)| *exists) {
        state.roots[tree as usize] = root(AGF, geometry, length, block.get(), levels.get())?;
    }
    state.freeblks = at_most(AGF, "freeblks", length, agf.freeblks.get())?;
    state.longest = at_most(AGF, "longest", state.freeblks, agf.longest.get())?;
    state.btreeblks = at_most(AGF, "btreeblks", length, agf.btreeblks.get())?;
    if features.ro_compat(RoCompat::RMAPBT) {
        state.rmap_blocks = at_most(AGF, "rmap_blocks", length, agf.rmap_blocks.get())?;
    }
    if features.ro_compat(RoCompat::REFLINK) {
        state.refcount_blocks = at_most(AGF, "refcount_blocks", length, agf.refcount_blocks.get())?;
    }
    parse_list(geometry, agf, state)
}

/// What the AGF says of the AGFL: a ring in which `flcount` entries from `flfirst` to `fllast` count.
fn parse_list(geometry: &Geometry, agf: &RawAgf, state: &mut AgState) -> Result<(), Corruption> {
    let size = agfl::capacity(geometry);
    state.flfirst = at_most("AGF", "flfirst", size - 1, agf.flfirst.get())?;
    state.fllast = at_most("AGF", "fllast", size - 1, agf.fllast.get())?;
    state.flcount = at_most("AGF", "flcount", size, agf.flcount.get())?;
    let spanned = (state.fllast + size - state.flfirst) % size + 1;
    // An empty list looks like a full one.
    if state.flcount != spanned && !(state.flcount == 0 && spanned == size) {
        // Version 4 kernels left these in disagreement where the size of the list had changed; such
        // an image is only read.
        if geometry.features.crc() {
            return Err(Corruption::new("AGF", "flcount").mismatch(spanned, state.flcount));
        }
    }
    Ok(())
}

fn parse_agi(geometry: &Geometry, agi: &RawAgi, state: &mut AgState) -> Result<(), Corruption> {
    const AGI: &str = "AGI";
    check_start(AGI, agi.versionnum.get(), agi.length.get(), state.length)?;
    let length = state.length;
    let ino = root(AGI, geometry, length, agi.root.get(), agi.level.get())?;
    state.roots[AgTree::Ino as usize] = ino;
    let features = &geometry.features;
    if features.ro_compat(RoCompat::FINOBT) {
        let fino = root(AGI, geometry, length, agi.free_root.get(), agi.free_level.get())?;
        state.roots[AgTree::Fino as usize] = fino;
    }
    let most = u64::from(length) << geometry.inodes_per_block_log();
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    state.icount = at_most(AGI, "count", most, agi.count.get())?;
    state.ifree = at_most(AGI, "freecount", state.icount, agi.freecount.get())?;
    state.newino = agi.newino.get();
    state.dirino = agi.dirino.get();
    if features.ro_compat(RoCompat::INOBTCOUNT) {
        state.ino_blocks = at_most(AGI, "iblocks", length, agi.iblocks.get())?;
        state.fino_blocks = at_most(AGI, "fblocks", length, agi.fblocks.get())?;
    }
    Ok(())
}

/// Checks what AGF and AGI start with alike.
fn check_start(
    structure: &'static str,
    version: u32,
    length: u32,
    expected: u32,
) -> Result<(), Corruption> {
    if version != ag::AG_VERSION {
        return Err(Corruption::new(structure, "versionnum").mismatch(ag::AG_VERSION, version));
    }
    if length != expected {
        return Err(Corruption::new(structure, "length").mismatch(expected, length));
    }
    Ok(())
}

/// Totals that the superblock keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Inodes in chunks.
    pub(crate) icount: u64,
    /// Those of them that are free.
    pub(crate) ifree: u64,
    /// Free blocks that the trees of free space list.
    pub(crate) freeblks: u64,
    /// Free blocks, those of the AGFLs and of the trees of free space (and reverse map) included.
    pub(crate) fdblocks: u64,
}

/// Brings what changed of groups into their headers.
pub(crate) fn write(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    state: &AgState,
) -> transaction::Result<()> {
    let features = &geometry.features;
    edit::<RawAgf>(geometry, txn, ag, ag::AGF_SECTOR, |agf| {
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

/// Brings totals into the superblock.
pub(crate) fn write_totals(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    totals: &Totals,
) -> transaction::Result<()> {
    edit::<RawSuperblock>(geometry, txn, AgNumber(0), 0, |raw| {
        raw.icount = totals.icount.into();
        raw.ifree = totals.ifree.into();
        raw.fdblocks = totals.fdblocks.into();
    })
}

/// Changes the header in a sector of a group; its checksum follows when it is written.
fn edit<T: FromBytes + IntoBytes + KnownLayout + Immutable>(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    sector: u32,
    change: impl FnOnce(&mut T),
) -> transaction::Result<()> {
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

/// Holds the block that a header's sector lies in; the first byte of the sector there.
pub(crate) fn buffer(
    geometry: &Geometry,
    txn: &mut Txn<'_>,
    ag: AgNumber,
    sector: u32,
) -> transaction::Result<(BufferId, usize)> {
    let (block, start) = ag::sector_place(geometry, sector);
    let block = geometry.block_of(ag, AgBlock(block));
    Ok((txn.buffer(block.0, Kind::AgHeader.of_group(ag))?, start))
}
