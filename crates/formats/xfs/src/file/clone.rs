//! Sharing blocks between files.
//!
//! A range is shared run by run, from front to back. An operation shares a limited number of runs: the map of the
//! target, the owners and the reference counts of the blocks change together, so a crash between two operations leaves
//! a shorter shared range and never a wrong count. Kernels need intents for this, because they change these structures
//! in separate transactions.

pub(super) mod request;

use operations::data::{self, ChangeFiles};
use operations::inode::InodeHandle;
use operations::mounted::ShareContents;
use operations::{Outcome, RunOperations};
use vfs::{Error, Ino, Result, Timestamp};

use crate::XfsCore;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::extent::LEN_MAX;
use crate::format::features::RoCompat;
use crate::format::inode::{Fork, flags2};
use crate::inode::Handle;
use crate::map::{self, Extent, Place, Run};
use crate::op::Op;
use request::{Request, Step};

/// Bytes compared at a time.
const COMPARED_BYTES: usize = 256 << 10;

impl XfsCore {
    /// Returns whether files can share blocks.
    pub fn can_share(&self) -> bool {
        self.volume.geometry.features.ro_compat(RoCompat::REFLINK)
    }

    /// Like [`vfs::FileSystem::clone_range`], for images in progress: the last block may be shared to its end although
    /// the source continues, if the target ends there.
    ///
    /// # Errors
    /// Returns the errors of that method.
    pub fn share_blocks(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<()> {
        self.check_sharing()?;
        operations::deferred_create::flush_file(self, from.0)?;
        operations::deferred_create::flush_file(self, to.0)?;
        let _lock = self.locks.exclusive(&[from.0, to.0]);
        let (source, target) = (self.load_file(from.0)?, self.load_file(to.0)?);
        self.share_range(
            &Request::to_end_of_block(self, (&source, &target), (from.1, to.1, len))?,
            None,
        )
    }

    fn check_sharing(&self) -> Result<()> {
        self.check_writable()?;
        if self.can_share() {
            return Ok(());
        }
        let advice = "create the image with the feature reflink";
        Err(Error::unsupported("sharing blocks between files", advice))
    }

    /// Shares blocks. The caller holds the locks of both files.
    fn share_range(&self, request: &Request, time: Option<Timestamp>) -> Result<()> {
        let mut rest = request.blocks;
        while rest.len > 0 {
            rest = self.atomically(|op| op.share_some(request, rest, time))?;
        }
        Ok(())
    }

    /// Returns whether both ranges have the same bytes.
    fn are_equal(&self, from: (&Handle, u64), to: (&Handle, u64), len: u64) -> Result<bool> {
        let piece = len.min(COMPARED_BYTES as u64) as usize;
        let (mut one, mut two) = (vec![0; piece], vec![0; piece]);
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(piece as u64) as usize;
            let count = data::read(self, from.0, from.1 + done, &mut one[..piece])?;
            let other = data::read(self, to.0, to.1 + done, &mut two[..piece])?;
            if count != piece || other != piece || one[..piece] != two[..piece] {
                return Ok(false);
            }
            done += piece as u64;
        }
        Ok(true)
    }
}

impl ShareContents for XfsCore {
    fn may_clone(&self) -> bool {
        self.can_share()
    }

    fn clone_contents(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_sharing()?;
        let _lock = self.locks.exclusive(&[from.0, to.0]);
        let (source, target) = (self.load_ordinary(from.0)?, self.load_file(to.0)?);
        data::require_regular(&source)?;
        let request = Request::of_files(self, (&source, &target), (from.1, to.1, len))?;
        self.share_range(&request, time)
    }

    fn exchange_contents(
        &self,
        one: (Ino, u64),
        two: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.exchange_blocks(one, two, len, time)
    }

    fn dedupe_contents(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<bool> {
        self.check_sharing()?;
        let _lock = self.locks.exclusive(&[from.0, to.0]);
        let (source, target) = (self.load_ordinary(from.0)?, self.load_file(to.0)?);
        data::require_regular(&source)?;
        let request = Request::of_files(self, (&source, &target), (from.1, to.1, len))?;
        if request.end > target.inode.size() {
            return Err(Error::Invalid("the range is past the end of the file"));
        }
        let len = request.end - to.1;
        if !self.are_equal((&source, from.1), (&target, to.1), len)? {
            return Ok(false);
        }
        self.share_range(&request, None)?;
        Ok(true)
    }
}

/// The files of an operation that shares blocks.
#[derive(Clone)]
struct Files {
    target: Handle,
    /// The source, if it is another file.
    other: Option<Handle>,
}

impl Files {
    fn source(&mut self) -> &mut Handle {
        self.other.as_mut().unwrap_or(&mut self.target)
    }

    /// Marks both as files that may share blocks.
    fn mark_shared(&mut self) {
        for file in [Some(&mut self.target), self.other.as_mut()].into_iter().flatten() {
            file.inode.set_flags2(file.inode.flags2() | flags2::REFLINK);
        }
    }
}

impl Op<'_> {
    /// Shares runs from the start of the rest, as many as one operation may. Returns the new rest.
    fn share_some(
        &mut self,
        request: &Request,
        mut rest: Step,
        time: Option<Timestamp>,
    ) -> Outcome<Step> {
        let fs = self.fs;
        let load = |ino| fs.load_ordinary(ino);
        let other = (request.from != request.to).then(|| load(request.from)).transpose()?;
        let before = Files { target: load(request.to)?, other };
        let mut files = before.clone();
        // The bytes after the old end have undefined contents.
        let grown = files.target.inode.size()..request.start;
        data::zero_written(fs, self, &mut files.target, grown)?;
        let mut budget = fs.changes_per_op();
        while rest.len > 0 && budget > 0 {
            let done = self.share_run(&mut files, rest, &mut budget)?;
            rest = rest.after(done);
        }
        let shared_to = rest.to.0 << fs.volume.geometry.block_log;
        let end = shared_to.min(request.end).max(files.target.inode.size());
        files.target.inode.set_size(end);
        files.target.touch(time);
        self.stage_if_changed(files.target, &before.target);
        if let (Some(file), Some(before)) = (files.other, &before.other) {
            self.stage_if_changed(file, before);
        }
        Ok(rest)
    }

    /// Shares the contiguous blocks at the start of the rest, or as many of them as are within `budget`, which is
    /// reduced and at least 1. Returns the number of blocks.
    fn share_run(&mut self, files: &mut Files, rest: Step, budget: &mut u32) -> Outcome<u64> {
        let run = map::run_at(self, files.source(), Fork::Data, rest.from)?;
        let old = map::run_at(self, &files.target, Fork::Data, rest.to)?;
        let len = run.len.min(old.len).min(rest.len);
        if is_kept(&run, &old) {
            *budget -= 1;
            return Ok(len);
        }
        let (mut len, mut for_source) = (len.min(LEN_MAX), budget.div_ceil(2));
        *budget -= for_source;
        if let Place::Written(start) = run.place {
            let extent = Extent { offset: rest.from, start, len, unwritten: false };
            len = self.alike_of_file(files.source(), &extent, &mut for_source)?;
        }
        *budget += for_source;
        if let Place::Written(start) | Place::Unwritten(start) = old.place {
            let extent = Extent { offset: rest.to, start, len, unwritten: false };
            let mut for_target = (*budget).max(1);
            len = self.alike_of_file(&mut files.target, &extent, &mut for_target)?;
            *budget = for_target.min(*budget);
            self.unmap(&mut files.target, Fork::Data, rest.to..rest.to.plus(len))?;
        }
        if let Place::Written(start) = run.place {
            self.share_extent(files, rest.to, start, len)?;
        }
        Ok(len)
    }

    /// Maps blocks of the source into a hole of the target.
    fn share_extent(
        &mut self,
        files: &mut Files,
        offset: FileBlock,
        start: FsBlock,
        len: u64,
    ) -> Outcome<()> {
        // The reverse map accepts a second owner only for blocks recorded as shared.
        self.add_references(&files.target, start, len)?;
        let extent = Extent { offset, start, len, unwritten: false };
        self.enter_extent(&mut files.target, Fork::Data, extent)?;
        files.mark_shared();
        Ok(())
    }

    /// Adds a reference to blocks that will belong to `target`, too.
    fn add_references(&mut self, target: &Handle, start: FsBlock, len: u64) -> Outcome<()> {
        if !map::is_realtime(target, Fork::Data) {
            let (ag, block) = self.fs.volume.geometry.split(start);
            return self.ag(ag)?.add_references(block, len as u32);
        }
        match self.share_realtime(start, len)? {
            true => Ok(()),
            false => {
                let advice = "create the image with realtime groups and reflink";
                Err(Error::unsupported("sharing blocks of the realtime device", advice).into())
            }
        }
    }
}

/// Returns whether sharing leaves the blocks of the target as they are: they are the same, or both read as zeros without
/// written blocks.
fn is_kept(run: &Run, old: &Run) -> bool {
    match (run.place, old.place) {
        (Place::Unwritten(_), Place::Hole | Place::Unwritten(_)) => true,
        (source, target) => source == target,
    }
}
