//! Ownership of blocks.
//!
//! Every block is claimed by its user, with one bit per block, so that a second claim is detected. The expected records
//! of the reverse map and of reference counts are added to a sum of the group (see [`super::sums`]). If a sum is wrong,
//! all claims are made again and those of the groups concerned are listed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use vfs::check::BitSet;

use super::sums;
use crate::btree::records::{RefcountRecord, rmap_offset, rmap_owner};
use crate::format::address::{AgNumber, Block, FsBlock};
use crate::format::geometry::Geometry;

/// Maximum number of listed claims, and of blocks claimed twice that are examined.
const LISTED_MAX: usize = 4 << 20;
const DISPUTED_MAX: usize = 1000;

/// A run of blocks of one group in use, in the form of a reverse-map record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) ag: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) owner: u64,
    /// Logical block and flags (`rmap_offset`).
    pub(crate) offset: u64,
}

impl Claim {
    /// Returns a key that is equal for claims that are contiguous in the group and in the file.
    pub(crate) const fn kind(&self) -> u64 {
        let has_offsets = !rmap_owner::is_none_of_inodes(self.owner)
            && self.offset & rmap_offset::BMBT_BLOCK == 0;
        let offset = if has_offsets {
            let logical = self.offset & rmap_offset::MASK;
            let flags = self.offset & !rmap_offset::MASK;
            sums::mix(flags, logical.wrapping_sub(self.start as u64))
        } else {
            self.offset
        };
        sums::mix(self.owner, offset)
    }

    /// Returns its share of a group's sum.
    pub(crate) const fn sum(&self) -> u64 {
        sums::range(self.kind(), self.start as u64, self.start as u64 + self.len as u64)
    }
}

/// Lists of the second pass.
struct OwnerLists {
    groups: HashSet<u32>,
    /// Maximum number of claims kept.
    claims_max: usize,
    /// True if there were more.
    is_cut: AtomicBool,
    disputed: Vec<u64>,
    /// Inodes whose claims and reverse-map records are all listed.
    inodes: HashSet<u64>,
    claims: Mutex<Vec<Claim>>,
    /// Reverse-map records of the groups.
    mapped: Mutex<Vec<Claim>>,
    /// Reference-count records of the groups.
    counted: Mutex<Vec<(u32, RefcountRecord)>>,
}

impl OwnerLists {
    /// Returns whether a claim is listed. `first` is its first block on the device.
    fn wants(&self, claim: &Claim, first: u64) -> bool {
        let at = self.disputed.partition_point(|block| *block < first);
        self.disputed.get(at).is_some_and(|block| *block < first + u64::from(claim.len))
            || self.groups.contains(&claim.ag)
            || self.inodes.contains(&claim.owner)
    }
}

pub(super) struct Owners {
    geometry: Geometry,
    taken: BitSet,
    /// Blocks that are shared according to the reference-count trees.
    shared: BitSet,
    has_shared: AtomicBool,
    /// By group: true if its reference-count tree could not be read, so that any file block may be shared.
    is_sharing_unknown: Box<[AtomicBool]>,
    /// By group: remaining sum of the reverse map.
    maps: Box<[AtomicU64]>,
    /// By group: remaining sum of the reference counts.
    references: Box<[AtomicU64]>,
    disputed: Mutex<Vec<u64>>,
    listing: Option<OwnerLists>,
    /// Free blocks, if they are kept separately from used ones.
    free: Option<BitSet>,
}

impl Owners {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let sums = || (0..geometry.ag_count).map(|_| AtomicU64::default()).collect();
        Self {
            geometry: *geometry,
            taken: BitSet::new(geometry.blocks),
            shared: BitSet::new(geometry.blocks),
            has_shared: AtomicBool::new(false),
            is_sharing_unknown: (0..geometry.ag_count).map(|_| AtomicBool::default()).collect(),
            maps: sums(),
            references: sums(),
            disputed: Mutex::default(),
            listing: None,
            free: None,
        }
    }

    /// Returns owners that list the claims of some inodes and of disputed blocks, which must be sorted, and keep free
    /// blocks separately.
    pub(super) fn searching(geometry: &Geometry, inodes: HashSet<u64>, disputed: Vec<u64>) -> Self {
        let listing = OwnerLists {
            groups: HashSet::new(),
            claims_max: LISTED_MAX,
            is_cut: AtomicBool::new(false),
            disputed,
            inodes,
            claims: Mutex::default(),
            mapped: Mutex::default(),
            counted: Mutex::default(),
        };
        let listing = Some(listing);
        let free = Some(BitSet::new(geometry.blocks));
        Self { listing, free, ..Self::new(geometry) }
    }

    /// Returns the claimed blocks.
    pub(super) const fn taken(&self) -> &BitSet {
        &self.taken
    }

    /// Returns the free blocks, if they are kept separately.
    pub(super) const fn free(&self) -> Option<&BitSet> {
        self.free.as_ref()
    }

    /// Returns owners that list the claims in some groups and those of disputed blocks, which must be sorted.
    pub(super) fn listing(geometry: &Geometry, groups: HashSet<u32>, disputed: Vec<u64>) -> Self {
        Self::listing_at_most(geometry, groups, disputed, LISTED_MAX)
    }

    /// Like [`Self::listing`], with at most `claims_max` claims.
    pub(super) fn listing_at_most(
        geometry: &Geometry,
        groups: HashSet<u32>,
        disputed: Vec<u64>,
        claims_max: usize,
    ) -> Self {
        let searching = Self::searching(geometry, HashSet::new(), disputed);
        let listing = searching.listing.map(|all| OwnerLists { groups, claims_max, ..all });
        Self { listing, ..Self::new(geometry) }
    }

    /// Returns whether there were more claims than are listed.
    pub(super) fn is_cut(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.is_cut.load(Ordering::Relaxed))
    }

    /// Returns the reference-count records of a listed group.
    pub(super) fn counted(&self, ag: u32) -> Vec<RefcountRecord> {
        let Some(listing) = &self.listing else { return Vec::new() };
        let counted = listing.counted.lock();
        counted.iter().filter(|(of, _)| *of == ag).map(|(_, record)| *record).collect()
    }

    /// Like [`Self::into_claims`], and empties both lists.
    pub(super) fn listed(&self) -> (Vec<Claim>, Vec<Claim>) {
        let take = |all: &Mutex<Vec<Claim>>| std::mem::take(&mut *all.lock());
        self.listing.as_ref().map(|l| (take(&l.claims), take(&l.mapped))).unwrap_or_default()
    }

    /// Returns the listed claims and the listed reverse-map records.
    pub(super) fn into_claims(self) -> (Vec<Claim>, Vec<Claim>) {
        self.listing.map(|l| (l.claims.into_inner(), l.mapped.into_inner())).unwrap_or_default()
    }

    fn add(&self, claim: Claim) {
        let share = claim.sum();
        self.maps[claim.ag as usize].fetch_add(share, Ordering::Relaxed);
        let Some(listing) = &self.listing else { return };
        if listing.wants(&claim, self.start_of(&claim)) {
            let mut claims = listing.claims.lock();
            if claims.len() < listing.claims_max {
                claims.push(claim);
            } else {
                listing.is_cut.store(true, Ordering::Relaxed);
            }
        }
    }

    fn start_of(&self, claim: &Claim) -> u64 {
        u64::from(claim.ag) * u64::from(self.geometry.ag_blocks) + u64::from(claim.start)
    }

    fn dispute(&self, block: u64) {
        let mut disputed = self.disputed.lock();
        if disputed.len() < DISPUTED_MAX {
            disputed.push(block);
        }
    }

    /// Claims blocks, which must be within a group. Returns whether none of them was claimed before.
    pub(super) fn claim(&self, claim: Claim) -> bool {
        self.add(claim);
        let first = self.start_of(&claim);
        let mut is_new = true;
        self.taken.insert_range(first..first + u64::from(claim.len), |block| {
            is_new = false;
            self.dispute(block);
        });
        is_new
    }

    /// Claims a single block.
    pub(super) fn claim_block(&self, block: Block, owner: u64, offset: u64) -> bool {
        let (ag, start) = self.geometry.locate(block);
        self.claim(Claim { ag: ag.0, start: start.0, len: 1, owner, offset })
    }

    /// Claims an extent of a file, which may be shared. Returns whether some of its blocks are shared.
    pub(super) fn claim_extent(
        &self,
        start: FsBlock,
        len: u64,
        owner: u64,
        offset: u64,
        may_share: bool,
    ) -> bool {
        let (ag, block) = self.geometry.split(start);
        let claim = Claim { ag: ag.0, start: block.0, len: len as u32, owner, offset };
        let first = self.start_of(&claim);
        let range = first..first + len;
        if !may_share
            || !self.has_shared.load(Ordering::Relaxed)
            || self.shared.count(range.clone()) == 0
        {
            self.claim(claim);
            return false;
        }
        self.add(claim);
        let mut at = first;
        while at < range.end {
            let is_shared = self.shared.contains(at);
            let mut end = at + 1;
            while end < range.end && self.shared.contains(end) == is_shared {
                end += 1;
            }
            self.taken.insert_range(at..end, |block| {
                if !is_shared {
                    self.dispute(block);
                }
            });
            if is_shared {
                // Each claim of a shared block adds one share. The reference-count record subtracts as many as it
                // counts.
                let share = sums::range(0, at, end);
                self.references[ag.0 as usize].fetch_add(share, Ordering::Relaxed);
            }
            at = end;
        }
        !self.is_sharing_unknown[ag.0 as usize].load(Ordering::Relaxed)
    }

    /// Claims free blocks. Returns whether none of them was claimed before. Always true if free blocks are kept
    /// separately.
    pub(super) fn take_free(&self, ag: AgNumber, start: u32, len: u32) -> bool {
        let first = u64::from(ag.0) * u64::from(self.geometry.ag_blocks) + u64::from(start);
        let mut is_new = true;
        if let Some(free) = &self.free {
            free.insert_range(first..first + u64::from(len), |_| {});
            return true;
        }
        self.taken.insert_range(first..first + u64::from(len), |block| {
            is_new = false;
            self.dispute(block);
        });
        is_new
    }

    /// Records the shared blocks of a reference-count record.
    pub(super) fn share(&self, ag: AgNumber, record: &RefcountRecord) {
        let (start, len, count) = (record.start.0, record.len, record.count);
        if let Some(listing) = self.listing.as_ref().filter(|l| l.groups.contains(&ag.0)) {
            let mut counted = listing.counted.lock();
            if counted.len() < listing.claims_max {
                counted.push((ag.0, *record));
            } else {
                listing.is_cut.store(true, Ordering::Relaxed);
            }
        }
        let first = u64::from(ag.0) * u64::from(self.geometry.ag_blocks) + u64::from(start);
        let end = first + u64::from(len);
        self.has_shared.store(true, Ordering::Relaxed);
        self.shared.insert_range(first..end, |_| {});
        let share = sums::range(0, first, end).wrapping_mul(count.into());
        self.references[ag.0 as usize].fetch_sub(share, Ordering::Relaxed);
    }

    /// Records that the shared blocks of a group are unknown.
    pub(super) fn note_sharing_unknown(&self, ag: AgNumber) {
        let first = u64::from(ag.0) * u64::from(self.geometry.ag_blocks);
        self.is_sharing_unknown[ag.0 as usize].store(true, Ordering::Relaxed);
        self.has_shared.store(true, Ordering::Relaxed);
        self.shared.insert_range(first..first + u64::from(self.geometry.ag_len(ag)), |_| {});
    }

    /// Records a reverse-map record.
    pub(super) fn mapped(&self, claim: &Claim) {
        self.maps[claim.ag as usize].fetch_sub(claim.sum(), Ordering::Relaxed);
        let Some(listing) = &self.listing else { return };
        let is_searched = self.free.is_some() && listing.wants(claim, self.start_of(claim));
        if is_searched || listing.groups.contains(&claim.ag) {
            let mut mapped = listing.mapped.lock();
            if mapped.len() < LISTED_MAX {
                mapped.push(*claim);
            }
        }
    }

    /// Returns whether the reverse map of a group matches the claims. Valid after all were made.
    pub(super) fn is_map_right(&self, ag: AgNumber) -> bool {
        self.maps[ag.0 as usize].load(Ordering::Relaxed) == 0
    }

    /// Returns whether the reference counts of a group match the claims.
    pub(super) fn are_references_right(&self, ag: AgNumber) -> bool {
        let ag = ag.0 as usize;
        self.is_sharing_unknown[ag].load(Ordering::Relaxed)
            || self.references[ag].load(Ordering::Relaxed) == 0
    }

    /// Returns the blocks claimed more than once, sorted, up to the limit.
    pub(super) fn disputed(&self) -> Vec<u64> {
        let mut disputed = self.disputed.lock().clone();
        disputed.sort_unstable();
        disputed.dedup();
        disputed
    }

    /// Returns the number of unclaimed blocks of a group, and the first of them.
    pub(super) fn unclaimed(&self, ag: AgNumber) -> Option<(u64, Block)> {
        let first = u64::from(ag.0) * u64::from(self.geometry.ag_blocks);
        let end = first + u64::from(self.geometry.ag_len(ag));
        let count = end - first - self.taken.count(first..end);
        if count == 0 {
            return None;
        }
        let block = (first..end).find(|block| !self.taken.contains(*block))?;
        Some((count, Block(block)))
    }
}

/// Returns the display name of an owner.
pub(super) fn owner_name(owner: u64, offset: u64) -> String {
    let name = match owner {
        rmap_owner::FS => "the file system's headers",
        rmap_owner::LOG => "the log",
        rmap_owner::AG => "the space trees of the group",
        rmap_owner::INOBT => "the inode trees of the group",
        rmap_owner::INODES => "inodes",
        rmap_owner::REFC => "the reference count tree",
        rmap_owner::COW => "copy-on-write staging blocks",
        _ => {
            let part = match (offset & rmap_offset::BMBT_BLOCK, offset & rmap_offset::ATTR_FORK) {
                (0, 0) => "data",
                (0, _) => "attributes",
                (_, 0) => "map of data",
                _ => "map of attributes",
            };
            return format!("inode {owner}, {part}");
        }
    };
    name.to_owned()
}
