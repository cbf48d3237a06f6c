//! Checks the realtime section: the extents of realtime files against each other, the bitmap, the summary and the
//! superblock's count.
//!
//! Both files of the section are on the data device, so the realtime device itself is not read.

mod files;
mod space;

use parking_lot::Mutex;
use vfs::check::{BitSet, Finding};
use vfs::{FileType, Ino};

use super::codes;
use super::context::Context;
use super::diagnose;
use super::forks;
use super::inodes::Inodes;
use crate::format::extent::Extent;
use crate::format::inode::{Fork, Inode, flags};
use crate::format::realtime::Realtime;

pub(super) use files::file_size;
pub(super) use space::{check, rebuild};

/// Maximum number of extents with two owners that are examined.
const DISPUTED_MAX: usize = 1000;

/// Returns whether the data of an inode is on the realtime device.
pub(super) fn is_realtime(inode: &Inode) -> bool {
    inode.file_type() == Some(FileType::Regular) && inode.flags() & flags::REALTIME != 0
}

/// The realtime extents in use according to files.
pub(super) struct UsedExtents {
    realtime: Realtime,
    used: BitSet,
    /// Extents that were claimed more than once, up to the limit.
    disputed: Mutex<Vec<u64>>,
    listed: Option<Listed>,
}

/// Claims of chosen realtime extents.
struct Listed {
    /// The extents, sorted.
    wanted: Vec<u64>,
    /// An extent and an inode for each claim.
    claims: Mutex<Vec<(u64, u64)>>,
}

/// The claims of one file, in the order of its map.
pub(super) struct FileClaims<'u> {
    all: &'u UsedExtents,
    ino: u64,
    last: Option<Extent>,
    is_aligned: bool,
    is_outside: bool,
}

impl UsedExtents {
    /// Returns an empty set; `None` if there is no realtime section whose files are checked.
    pub(super) fn new(ctx: &Context<'_>) -> Option<Self> {
        let realtime = ctx.geometry.realtime.filter(|realtime| !realtime.has_groups())?;
        Some(Self::of(realtime, None))
    }

    fn of(realtime: Realtime, listed: Option<Vec<u64>>) -> Self {
        let listed = listed.map(|wanted| Listed { wanted, claims: Mutex::default() });
        let used = BitSet::new(realtime.extents());
        Self { realtime, used, disputed: Mutex::default(), listed }
    }

    /// Returns the number of free extents.
    pub(super) fn free(&self) -> u64 {
        let extents = self.realtime.extents();
        extents - self.used.count(0..extents)
    }

    /// Returns whether no extent was claimed more than once.
    pub(super) fn is_undisputed(&self) -> bool {
        self.disputed.lock().is_empty()
    }

    /// Starts the claims of a file.
    pub(super) const fn of_file(&self, ino: u64) -> FileClaims<'_> {
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
            let mut disputed = self.disputed.lock();
            if disputed.len() < DISPUTED_MAX {
                disputed.push(extent);
            }
        });
    }
}

impl FileClaims<'_> {
    /// Claims the realtime extents of an extent of the file.
    pub(super) fn extent(&mut self, extent: &Extent) {
        let realtime = &self.all.realtime;
        let (true, Some(mut extents)) = (
            extent.check_realtime(realtime).is_ok(),
            realtime.extents_of(extent.start, extent.len),
        ) else {
            self.is_outside = true;
            self.last = None;
            return;
        };
        let of_extent = u64::from(realtime.extent_blocks());
        let continues = self.last.is_some_and(|last| {
            last.end() == extent.offset && last.start.plus(last.len) == extent.start
        });
        if !continues {
            self.end();
            self.is_aligned &= extent.start.0.is_multiple_of(of_extent)
                && extent.offset.0.is_multiple_of(of_extent);
        } else if !extent.start.0.is_multiple_of(of_extent) {
            // A part of the realtime extent that the last extent ends in, with another state.
            extents.start += 1;
        }
        self.last = Some(*extent);
        if !extents.is_empty() {
            self.all.claim(self.ino, extents);
        }
    }

    /// Checks that the last run of contiguous extents ends with a realtime extent.
    fn end(&mut self) {
        let of_extent = u64::from(self.all.realtime.extent_blocks());
        let is_whole =
            |last: Extent| last.start.0.saturating_add(last.len).is_multiple_of(of_extent);
        self.is_aligned &= self.last.is_none_or(is_whole);
    }

    /// Reports the faults of the map, which has been claimed.
    pub(super) fn finish(mut self, ctx: &Context<'_>) {
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

/// Reports extents that were claimed more than once, with their owners.
fn report_disputed(inodes: &Inodes<'_>, used: &UsedExtents) {
    let mut disputed = used.disputed.lock().clone();
    if disputed.is_empty() {
        return;
    }
    disputed.sort_unstable();
    disputed.dedup();
    let again = UsedExtents::of(used.realtime, Some(disputed));
    diagnose::quietly(inodes, |quiet| {
        let quiet = Inodes { realtime: Some(&again), ..*quiet };
        quiet.each_used(|ino, inode| {
            if is_realtime(inode) {
                forks::map(&quiet, ino, inode, Fork::Data, |_| {});
            }
        });
    });
    let Some(Listed { claims, .. }) = again.listed else { return };
    let mut claims = claims.into_inner();
    claims.sort_unstable();
    let mut last: Option<(u64, Vec<u64>)> = None;
    for of_extent in claims.chunk_by(|a, b| a.0 == b.0) {
        let extent = of_extent[0].0;
        let owners: Vec<u64> = of_extent.iter().map(|(_, ino)| *ino).collect();
        // Adjacent extents with the same owners are one finding.
        if !last.as_ref().is_some_and(|(before, same)| *before + 1 == extent && *same == owners) {
            let names: Vec<String> = owners.iter().map(|ino| format!("inode {ino}")).collect();
            let detail = format!("realtime extent {extent} is used by {}", names.join(" and "));
            let finding = Finding::new(codes::REALTIME_TWICE).of_inode(owners[0]);
            inodes.ctx.found(finding.detail(detail));
        }
        last = Some((extent, owners));
    }
}

/// Returns the number of an inode for messages about one of the section's files.
fn finding_of(ino: Ino) -> Finding {
    Finding::new(codes::REALTIME_FILE).of_inode(ino.0)
}
