//! Free space: finding it, taking it, giving it back.

mod agfl;
pub(crate) mod ags;
mod busy;
#[cfg(test)]
mod busy_tests;
mod clean;
pub(crate) mod headers;
mod release;
pub(crate) mod rmap;
mod shared;
pub(crate) mod space;
mod staged;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trees;
mod trim;

use vfs::reserve::Claim;
use vfs::{Error, Result};

use self::space::{Spot, Wish};
use crate::format::address::{AgBlock, AgNumber, FsBlock};
use crate::op::Op;

/// Whom blocks belong to, as the reverse map says it (`rm_owner` and `rm_offset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A block of a fork, from logical block `offset` on.
    Fork { ino: vfs::Ino, fork: crate::format::inode::Fork, offset: u64, unwritten: bool },
    /// A block of the tree that maps a fork.
    Bmbt { ino: vfs::Ino, fork: crate::format::inode::Fork },
    /// Trees of inodes (`XFS_RMAP_OWN_INOBT`).
    InodeTrees,
    /// Inode chunks (`XFS_RMAP_OWN_INODES`).
    Inodes,
    /// The tree of references (`XFS_RMAP_OWN_REFC`).
    RefcountTree,
    /// Trees of free space, reverse map and the AGFL (`XFS_RMAP_OWN_AG`).
    Ag,
    /// Blocks kept for copying on write (`XFS_RMAP_OWN_COW`).
    Staged,
}

/// What is wanted of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Where it would be best: right there, or else near.
    pub(crate) near: FsBlock,
    /// Fewest blocks that are of use, at least 1.
    pub(crate) min_len: u32,
    /// Most blocks wanted.
    pub(crate) max_len: u32,
    /// Whose they will be.
    pub(crate) owner: Owner,
    /// Whether file data goes there, which is written straight to the device.
    pub(crate) for_data: bool,
}

impl Op<'_> {
    /// Takes a run of `min_len..=max_len` blocks, as long as can be had near the place asked for,
    /// and enters its owner into the reverse map. `NoSpace` if no group has one.
    pub(crate) fn allocate_extent(&mut self, request: &Request) -> Result<(FsBlock, u32)> {
        let geometry = self.fs.volume.geometry;
        let (home, near) = geometry.split(request.near);
        let home = if home.0 < geometry.ag_count { home } else { AgNumber(0) };
        let count = u64::from(geometry.ag_count);
        let max_len = request.max_len.min(geometry.ag_blocks);
        let claim = self.claim_for(request);
        if request.min_len > max_len {
            return Err(Error::NoSpace);
        }
        // At home first. Elsewhere, one as long as wanted is better than a shorter one at home, and
        // best where nobody else is at work; if there is none, one not much shorter than the longest.
        for round in 0..4 {
            let enough = match round {
                0 | 1 => max_len,
                2 => {
                    let longest = geometry.ags().map(|ag| self.longest_known(ag)).max();
                    (longest.unwrap_or(0) / 2).clamp(request.min_len, max_len)
                }
                _ => request.min_len,
            };
            for at in 0..geometry.ag_count {
                let ag = AgNumber(((u64::from(home.0) + u64::from(at)) % count) as u32);
                if self.longest_known(ag) < enough || self.usable_known(ag, claim) < enough {
                    continue;
                }
                let near = if at == 0 { near } else { AgBlock(0) };
                let lease =
                    if round > 0 || at == 0 { Some(self.lease(ag)?) } else { self.try_lease(ag) };
                let Some(lease) = lease else { continue };
                if let Some(found) = self.allocate_in(lease, near, request, enough)? {
                    return Ok(found);
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// The longest free run of a group: as it is, where the group is held, or as of some moment.
    pub(crate) fn longest_known(&self, ag: AgNumber) -> u32 {
        let held = self.leases.iter().find(|lease| lease.number() == ag);
        held.map_or_else(|| self.fs.volume.ags.summary(ag).longest, |lease| lease.longest)
    }

    /// Free blocks of a group that this operation may take: as it is, where the group is held, or as of some
    /// moment.
    fn usable_known(&self, ag: AgNumber, claim: Claim) -> u32 {
        let held = self.leases.iter().find(|lease| lease.number() == ag);
        match held {
            Some(lease) => lease.usable(claim),
            None => self.fs.volume.ags.usable(ag, claim),
        }
    }

    /// What of the reserve an allocation may take. Where a hole's edges lie in blocks that files share,
    /// they are copied, which gives nothing back: that must leave enough for what does.
    fn claim_for(&self, request: &Request) -> Claim {
        match self.claim {
            Claim::Freeing if request.for_data => Claim::Promised,
            claim => claim,
        }
    }

    /// Takes at least `enough` blocks in a group.
    fn allocate_in(
        &mut self,
        lease: usize,
        near: AgBlock,
        request: &Request,
        enough: u32,
    ) -> Result<Option<(FsBlock, u32)>> {
        let ag = self.leases[lease].number();
        self.adjust_agfl(lease)?;
        let len = request.max_len.min(self.leases[lease].usable(self.claim_for(request)));
        if len < enough.max(1) {
            return Ok(None);
        }
        let is_restricted = request.for_data && !self.leases[lease].busy().is_empty();
        let mut spot = if is_restricted {
            self.find_clean_spot(lease, near, len, enough)?
        } else {
            self.find_spot(lease, &Wish::near(near, len))?
        };
        if spot.is_none()
            && !is_restricted
            && let Some(run) = self.longest_run(lease)?.filter(|run| run.len >= enough)
        {
            spot = Some(Spot { run, start: run.start, len: run.len.min(len) });
        }
        let Some(Spot { run, start, len }) = spot else { return Ok(None) };
        self.take_space(lease, run, start, len)?;
        self.rmap_add(lease, start, len, request.owner)?;
        Ok(Some((self.fs.volume.geometry.fs_block(ag, start), len)))
    }

    /// Gives blocks back when the operation commits, and takes them out of the reverse map.
    pub(crate) fn free_extent(&mut self, start: FsBlock, len: u32, owner: Owner) {
        self.freed.push(Freed { start, len, owner });
    }
}

/// A run of blocks to be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) start: FsBlock,
    pub(crate) len: u32,
    pub(crate) owner: Owner,
}
