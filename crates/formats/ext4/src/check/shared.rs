//! Finds the inodes that share blocks. The inode tables are read again, but only if there are such blocks.

use vfs::check::{BitSet, Finding};

use super::codes::BLOCK_SHARED;
use super::context::Context;
use super::mapping::{FileExtent, MapVisitor, walk};
use super::survey::BAD_BLOCKS_INO;
use crate::format::address::{Block, Group};

/// Maximum number of claims to store.
const CLAIMS_MAX: usize = 100_000;

/// Clusters of an inode with several claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    start: u64,
    end: u64,
    ino: u32,
}

struct Finder<'f, 'c> {
    context: &'f Context<'c>,
    shared: &'f BitSet,
    /// Map nodes already walked. Walking a shared node once per owner might never end.
    nodes: &'f BitSet,
    ino: u32,
    claims: Vec<Claim>,
}

impl Finder<'_, '_> {
    fn claim(&mut self, start: Block, len: u64) {
        let mut clusters = self.context.claims.clusters(start, len);
        if self.shared.count(clusters.clone()) == 0 {
            return;
        }
        while let Some(start) = clusters.find(|cluster| self.shared.contains(*cluster)) {
            let end =
                clusters.find(|cluster| !self.shared.contains(*cluster)).unwrap_or(clusters.end);
            let is_known = self.claims.last() == Some(&Claim { start, end, ino: self.ino });
            let is_same_cluster = is_known && self.context.geometry().cluster_blocks() > 1;
            if !is_same_cluster && self.claims.len() < CLAIMS_MAX {
                self.claims.push(Claim { start, end, ino: self.ino });
            }
        }
    }
}

impl MapVisitor for Finder<'_, '_> {
    fn run(&mut self, run: FileExtent) {
        self.claim(run.start, run.len.into());
    }

    fn node(&mut self, block: Block) -> bool {
        self.claim(block, 1);
        self.nodes.insert(self.context.claims.clusters(block, 1).start)
    }
}

/// Marks all blocks of maps as in use.
struct Beneath<'b, 'c> {
    context: &'b Context<'c>,
    /// Map nodes already walked.
    nodes: BitSet,
}

impl Beneath<'_, '_> {
    fn take(&self, start: Block, len: u64) {
        let claims = &self.context.claims;
        claims.used().insert_range(claims.clusters(start, len), |_| {});
    }
}

impl MapVisitor for Beneath<'_, '_> {
    fn run(&mut self, run: FileExtent) {
        self.take(run.start, run.len.into());
    }

    fn node(&mut self, block: Block) -> bool {
        self.take(block, 1);
        self.nodes.insert(self.context.claims.clusters(block, 1).start)
    }
}

impl Context<'_> {
    /// Marks the blocks below shared map nodes as in use, because a survey does not walk these nodes.
    pub(super) fn take_beneath_shared(&self) {
        let Some(shared) = self.claims.shared() else { return };
        let mut beneath = Beneath { context: self, nodes: BitSet::new(shared.limit()) };
        for group in self.geometry().groups() {
            self.for_each_used(group, &mut |ino, slot| {
                let subject = self.subject(ino, slot);
                if subject.has_map() {
                    walk(self, &subject, &mut beneath);
                }
            });
        }
    }

    /// Finds and reports the inodes that share blocks.
    pub(super) fn find_sharers(&self) {
        let Some(shared) = self.claims.shared() else { return };
        let nodes = BitSet::new(shared.limit());
        let mut finder =
            Finder { context: self, shared, nodes: &nodes, ino: 0, claims: Vec::new() };
        // The inode of the bad block list has no type, so it does not count as in use.
        if let Some(slot) = self.slot(BAD_BLOCKS_INO) {
            finder.ino = BAD_BLOCKS_INO;
            walk(self, &self.subject(BAD_BLOCKS_INO, &slot), &mut finder);
        }
        for group in self.geometry().groups() {
            if self.observer.is_cancelled() {
                return;
            }
            self.for_each_used(group, &mut |ino, slot| self.find_claims(ino, slot, &mut finder));
        }
        let mut claims = finder.claims;
        claims.sort_unstable();
        self.tell_sharers(&claims);
    }

    /// Calls `each` for each inode in use of a group, with its slot.
    fn for_each_used(&self, group: Group, each: &mut dyn FnMut(u32, &[u8])) {
        let geometry = self.geometry();
        let Some(facts) = self.group(group) else { return };
        let (size, per_block) =
            (usize::from(geometry.inode_size), geometry.inodes_per_block() as usize);
        let blocks = self.inodes.of(group).chunks(per_block);
        for (at, states) in
            blocks.enumerate().filter(|(_, states)| states.iter().any(|s| s.is_used()))
        {
            let Some(bytes) = self.block(facts.desc.inode_table.plus(at as u64)) else { continue };
            for (index, (state, slot)) in (0..).zip(states.iter().zip(bytes.chunks_exact(size))) {
                if state.is_used() {
                    let ino = geometry.ino_of(group, (at * per_block) as u32 + index).0 as u32;
                    each(ino, slot);
                }
            }
        }
    }

    fn find_claims(&self, ino: u32, slot: &[u8], finder: &mut Finder<'_, '_>) {
        let subject = self.subject(ino, slot);
        finder.ino = ino;
        let attributes = Block(subject.inode.file_acl());
        if self.geometry().contains(attributes, 1) {
            finder.claim(attributes, 1);
        }
        if let Some(translator) = subject.translator(self) {
            finder.claim(translator, 1);
        }
        if subject.has_map() {
            walk(self, &subject, finder);
        }
    }

    fn tell_sharers(&self, claims: &[Claim]) {
        /// Number of preceding claims that are checked for an overlap.
        const NEAR: usize = 16;
        for (at, claim) in claims.iter().enumerate() {
            let near = claims[at.saturating_sub(NEAR)..].iter().take(2 * NEAR);
            let overlaps = |other: &&Claim| other.start < claim.end && claim.start < other.end;
            let mut others: Vec<_> = near
                .filter(overlaps)
                .map(|other| other.ino)
                .filter(|ino| *ino != claim.ino)
                .collect();
            others.sort_unstable();
            others.dedup();
            let who = match &others[..] {
                [] => "claimed twice by this inode".to_owned(),
                others => format!("also claimed by inodes {others:?}"),
            };
            let count = claim.end - claim.start;
            let place = self.claims.block_of(claim.start);
            let finding = Finding::new(BLOCK_SHARED).of_inode(claim.ino.into()).at_block(place.0);
            self.tell(finding.detail(format!("{count} clusters from block {place}, {who}")));
        }
        if claims.is_empty() {
            self.tell(Finding::new(BLOCK_SHARED));
        }
    }
}
