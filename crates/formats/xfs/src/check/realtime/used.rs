//! Realtime extents in use according to files.

use parking_lot::Mutex;
use vfs::Ino;
use vfs::check::{BitSet, Finding};

use super::super::codes;
use super::super::context::Context;
use super::super::owners::Claim;
use super::group_files::Groups;
use crate::btree::records::rmap_offset;
use crate::format::address::FsBlock;
use crate::format::extent::Extent;
use crate::format::metafile::MetafileType;
use crate::format::realtime::Realtime;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::format::superblock::RawSuperblock;

/// Maximum number of extents with two owners that are examined.
const DISPUTED_MAX: usize = 1000;

/// The realtime extents in use according to files.
pub(in super::super) struct UsedExtents {
    pub(super) realtime: Realtime,
    pub(super) used: BitSet,
    /// Extents that were claimed more than once, up to the limit.
    pub(super) disputed: Mutex<Vec<u64>>,
    pub(super) listed: Option<Listed>,
    /// Owners of blocks of realtime groups.
    pub(super) groups: Option<Groups>,
}

/// Claims of chosen realtime extents.
pub(super) struct Listed {
    /// The extents, sorted.
    wanted: Vec<u64>,
    /// An extent and an inode for each claim.
    pub(super) claims: Mutex<Vec<(u64, u64)>>,
}

/// The claims of one file, in the order of its map.
pub(in super::super) struct FileClaims<'u> {
    all: &'u UsedExtents,
    ino: u64,
    last: Option<Extent>,
    is_aligned: bool,
    is_outside: bool,
}

impl UsedExtents {
    pub(super) fn of(realtime: Realtime, groups: Option<Groups>, listed: Option<Vec<u64>>) -> Self {
        let listed = listed.map(|wanted| Listed { wanted, claims: Mutex::default() });
        let used = BitSet::new(realtime.extents());
        if realtime.has_superblock() {
            // The superblock.
            used.insert_range(0..1, |_| {});
        }
        Self { realtime, used, disputed: Mutex::default(), listed, groups }
    }

    /// Returns the listed claims; `None` if there were too many.
    pub(in super::super) fn into_claims(self) -> Option<Vec<Claim>> {
        let owners = self.groups?.owners;
        (!owners.is_cut()).then(|| owners.into_claims().0)
    }

    /// Returns the number of free extents.
    pub(in super::super) fn free(&self) -> u64 {
        let extents = self.realtime.extents();
        extents - self.used.count(0..extents)
    }

    /// Returns whether no extent was claimed more than once.
    pub(in super::super) fn is_undisputed(&self) -> bool {
        self.disputed.lock().is_empty()
            && self.groups.as_ref().is_none_or(|groups| groups.owners.disputed().is_empty())
    }

    /// Starts the claims of a file.
    pub(in super::super) const fn of_file(&self, ino: u64) -> FileClaims<'_> {
        FileClaims { all: self, ino, last: None, is_aligned: true, is_outside: false }
    }

    fn claim(&self, ino: u64, extents: std::ops::Range<u64>) {
        if let Some(Listed { wanted, claims }) = &self.listed {
            let from = wanted.partition_point(|extent| *extent < extents.start);
            let within = wanted[from..].iter().take_while(|extent| **extent < extents.end);
            claims.lock().extend(within.map(|extent| (*extent, ino)));
            return;
        }
        self.used.insert_range(extents, |extent| {
            if self.groups.is_some() {
                // Owners of blocks decide, because these may be shared.
                return;
            }
            let mut disputed = self.disputed.lock();
            if disputed.len() < DISPUTED_MAX {
                disputed.push(extent);
            }
        });
    }
}

/// Returns whether an address is that of the start of a realtime extent. Groups consist of whole ones, but their
/// addresses do not.
fn is_boundary(realtime: &Realtime, start: FsBlock) -> bool {
    let of_extent = u64::from(realtime.extent_blocks());
    realtime.device_block(start, 1).is_some_and(|block| block.is_multiple_of(of_extent))
}

impl FileClaims<'_> {
    /// Claims the realtime extents of an extent of the file. Returns whether some of its blocks are shared.
    pub(in super::super) fn extent(&mut self, extent: &Extent, may_share: bool) -> bool {
        let realtime = &self.all.realtime;
        let (true, Some(mut extents)) = (
            extent.check_realtime(realtime).is_ok(),
            realtime.extents_of(extent.start, extent.len),
        ) else {
            self.is_outside = true;
            self.last = None;
            return false;
        };
        let of_extent = u64::from(realtime.extent_blocks());
        let is_at_start = is_boundary(realtime, extent.start);
        let continues = self.last.is_some_and(|last| {
            last.end() == extent.offset && last.start.plus(last.len) == extent.start
        });
        if !continues {
            self.end();
            self.is_aligned &= is_at_start && extent.offset.0.is_multiple_of(of_extent);
        } else if !is_at_start {
            // A part of the realtime extent that the last extent ends in, with another state.
            extents.start += 1;
        }
        self.last = Some(*extent);
        if !extents.is_empty() {
            self.all.claim(self.ino, extents);
        }
        let Some(groups) = &self.all.groups else { return false };
        let state = if extent.unwritten { rmap_offset::UNWRITTEN } else { 0 };
        let offset = extent.offset.0 | state;
        let may_share = may_share && !extent.unwritten;
        groups.owners.claim_extent(extent.start, extent.len, self.ino, offset, may_share)
    }

    /// Checks that the last run of contiguous extents ends with a realtime extent.
    fn end(&mut self) {
        let realtime = &self.all.realtime;
        let of_extent = u64::from(realtime.extent_blocks());
        let is_whole = |last: Extent| match realtime.device_block(last.start, last.len) {
            Some(block) => (block + last.len).is_multiple_of(of_extent),
            None => true,
        };
        self.is_aligned &= self.last.is_none_or(is_whole);
    }

    /// Reports the faults of the map, which has been claimed.
    pub(in super::super) fn finish(mut self, ctx: &Context<'_>) {
        self.end();
        if self.is_outside {
            let finding = Finding::new(codes::INODE_MAP).of_inode(self.ino).field("extents");
            ctx.found(finding.detail("an extent outside of the realtime section"));
        }
        if !self.is_aligned {
            let finding = Finding::new(codes::REALTIME_ALIGNMENT).of_inode(self.ino);
            let blocks = self.all.realtime.extent_blocks();
            ctx.found(finding.detail(format!("a realtime extent has {blocks} blocks")));
        }
    }
}

/// Returns the expected size in bytes of the file of the section with this inode; `None` for another inode.
pub(crate) fn file_size(
    raw: &RawSuperblock,
    layout: Option<&SpaceLayout>,
    ino: Ino,
) -> Option<u64> {
    let file = [SpaceFile::Bitmap, SpaceFile::Summary].into_iter().find(|it| it.ino(raw) == ino)?;
    Some(layout.map_or(0, |layout| layout.blocks_of(file) << raw.blocklog))
}

/// Returns the expected size in bytes of a file of a realtime group; `None` for other files.
pub(crate) fn group_file_size(
    metafile_type: MetafileType,
    layout: Option<&SpaceLayout>,
    block_log: u8,
) -> Option<u64> {
    let blocks = |file| layout.map_or(0, |layout| layout.blocks_of(file) << block_log);
    match metafile_type {
        MetafileType::RtBitmap => Some(blocks(SpaceFile::Bitmap)),
        MetafileType::RtSummary => Some(blocks(SpaceFile::Summary)),
        MetafileType::RtRmap | MetafileType::RtRefcount => Some(0),
        _ => None,
    }
}
