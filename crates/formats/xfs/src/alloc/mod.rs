//! Free space: finding, allocating and freeing it.

mod agfl;
pub(crate) mod ags;
mod busy;
#[cfg(test)]
mod busy_tests;
mod clean;
mod extend;
pub(crate) mod headers;
mod held;
pub(crate) mod realtime;
mod release;
mod request;
pub(crate) mod rmap;
mod shared;
pub(crate) mod space;
mod staged;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trees;
mod trim;

use operations::Outcome;
use operations::reserve::Claim;
use vfs::Error;

pub(crate) use self::held::HeldAg;
pub(crate) use self::request::{ExtentRequest, Freed, RmapOwner};
use self::space::{AllocRequest, Candidate};
use crate::format::address::{AgBlock, AgNumber, FsBlock};
use crate::op::Op;

impl Op<'_> {
    /// Allocates a run of `min_len..=max_len` blocks, as long as possible near the best place, and adds its owner to
    /// the reverse map. Fails with `NoSpace` if no group has one.
    pub(crate) fn allocate_extent(&mut self, request: &ExtentRequest) -> Outcome<(FsBlock, u32)> {
        let geometry = self.fs.volume.geometry;
        let (home, near) = geometry.split(request.near);
        let home = if home.0 < geometry.ag_count { home } else { AgNumber(0) };
        let count = u64::from(geometry.ag_count);
        let max_len = request.max_len.min(geometry.ag_blocks);
        let claim = self.claim_for(request);
        if request.min_len > max_len {
            return Err(Error::NoSpace.into());
        }
        // The home group comes first. A full-length run in another group is better than a shorter one at home,
        // preferably in a group that no other operation holds. If no group has one, a run not much shorter than the
        // longest is accepted.
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
                let held = if round > 0 || at == 0 { Some(self.ag(ag)?) } else { self.try_ag(ag) };
                let Some(mut held) = held else { continue };
                if let Some((start, len)) = held.allocate(near, request, claim, enough)? {
                    return Ok((geometry.fs_block(ag, start), len));
                }
            }
        }
        Err(Error::NoSpace.into())
    }

    /// Returns the length of a group's longest free run: the current length if the operation holds the group, otherwise
    /// a possibly outdated one.
    pub(crate) fn longest_known(&self, ag: AgNumber) -> u32 {
        let held = self.group_guards.find(ag);
        held.map_or_else(|| self.fs.volume.ags.summary(ag).longest, |guard| guard.longest)
    }

    /// Returns the number of free blocks of a group that this operation may take: the current number if it holds the
    /// group, otherwise a possibly outdated one.
    fn usable_known(&self, ag: AgNumber, claim: Claim) -> u32 {
        let held = self.group_guards.find(ag);
        match held {
            Some(guard) => ags::usable(guard, claim),
            None => self.fs.volume.ags.usable(ag, claim),
        }
    }

    /// Returns how much of the reserve an allocation may take. Punching a hole whose edges are in shared blocks copies
    /// these, which frees nothing. So it must leave enough for operations that free.
    fn claim_for(&self, request: &ExtentRequest) -> Claim {
        match self.claim {
            Claim::Freeing if request.for_data => Claim::Promised,
            claim => claim,
        }
    }

    /// Frees blocks when the operation commits, and removes their owner from the reverse map.
    pub(crate) fn free_extent(&mut self, start: FsBlock, len: u32, owner: RmapOwner) {
        self.freed.push(Freed { start, len, owner });
    }
}

impl HeldAg<'_, '_> {
    /// Allocates at least `enough` blocks for a request, and adds their owner to the reverse map.
    fn allocate(
        &mut self,
        near: AgBlock,
        request: &ExtentRequest,
        claim: Claim,
        enough: u32,
    ) -> Outcome<Option<(AgBlock, u32)>> {
        self.adjust_agfl()?;
        let len = request.max_len.min(self.usable(claim));
        if len < enough.max(1) {
            return Ok(None);
        }
        let is_restricted = request.for_data && !self.busy().is_empty();
        let mut find = |len: u32, enough: u32| match is_restricted {
            true => self.find_clean(near, len, enough),
            false => self.find_candidate(&AllocRequest::near(near, len)),
        };
        let mut candidate = None;
        if request.lead > 0
            && let Some(all) = request.lead.checked_add(len)
        {
            let behind =
                |it: Candidate| Candidate { start: AgBlock(it.start.0 + request.lead), len, ..it };
            candidate = find(all, all)?.map(behind);
        }
        if candidate.is_none() {
            candidate = find(len, enough)?;
        }
        if candidate.is_none()
            && !is_restricted
            && let Some(run) = self.longest_run()?.filter(|run| run.len >= enough)
        {
            candidate = Some(Candidate { run, start: run.start, len: run.len.min(len) });
        }
        let Some(Candidate { run, start, len }) = candidate else { return Ok(None) };
        self.take_space(run, start, len)?;
        self.rmap_add(start, len, request.owner)?;
        Ok(Some((start, len)))
    }
}
