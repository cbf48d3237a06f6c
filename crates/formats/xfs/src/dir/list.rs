//! Listing directories.
//!
//! As in the kernel, a cookie is an entry's position in the data blocks, in units of 8 bytes. Entries never move in a
//! data block, and keep their offsets when a shortform directory becomes a block. So an entry keeps its cookie until it
//! is removed. A listing resumes with the first entry at or after its cookie.

use std::ops::ControlFlow;

use operations::profile::{ListingClock, ListingStep};
use vfs::{Cookie, DirEntry, FileType, Result};

use super::view::View;
use crate::format::address::FileBlock;
use crate::format::dir::{DirBlockKind, DirLayout, data};
use crate::format::inode::{Fork, ForkFormat};
use crate::map::{self, Place};
use crate::op::source::Source;

/// Callback of a listing, called with each entry.
pub(super) type Each<'e> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 'e;

impl<S: Source> View<'_, S> {
    /// Lists the directory from a cookie on, `.` and `..` first.
    pub(super) fn list(
        &mut self,
        from: Cookie,
        clock: &mut ListingClock<'_>,
        each: &mut Each<'_>,
    ) -> Result<()> {
        if self.dir.inode.fork_format(Fork::Data) == ForkFormat::Local {
            clock.lap(ListingStep::Reading);
            let entries = self.list_short(from, each)?;
            clock.lap(ListingStep::Delivering);
            clock.count(0, entries);
            Ok(())
        } else {
            self.list_blocks(from, clock, each)
        }
    }

    /// Lists a shortform directory. Returns the number of entries passed to `each`, without `.` and `..`.
    fn list_short(&mut self, from: Cookie, each: &mut Each<'_>) -> Result<u64> {
        let (layout, short) = (self.layout, self.short()?);
        let directory = Some(FileType::Directory);
        let dots = [
            (layout.header(), b".".as_slice(), self.dir.ino(), directory),
            (layout.dot_dot(), b"..".as_slice(), short.parent(), directory),
        ];
        let entries = short.entries().map(|e| (e.offset, e.name, e.ino, e.file_type()));
        let mut delivered = 0;
        for (offset, name, ino, file_type) in dots.into_iter().chain(entries) {
            if (offset as u64) >> 3 < from.0 {
                continue;
            }
            delivered += u64::from(offset >= layout.first_entry());
            let end = offset + layout.entry_size(name.len());
            let next = Cookie(end as u64 >> 3);
            if each(DirEntry { name, ino, file_type, next }).is_break() {
                break;
            }
        }
        Ok(delivered)
    }

    fn list_blocks(
        &mut self,
        from: Cookie,
        clock: &mut ListingClock<'_>,
        each: &mut Each<'_>,
    ) -> Result<()> {
        let layout = self.layout;
        let count = self.data_blocks()?;
        let first = from.0 >> (layout.size_log - 3);
        let mut number = u32::try_from(first).unwrap_or(u32::MAX);
        while number < count {
            let base = u64::from(number) << layout.size_log;
            let flow = self.with_if(layout.data_at(number), DirBlockKind::Data, |block| {
                clock.lap(ListingStep::Reading);
                let (delivered, flow) = list_block(&layout, block, base, from, each);
                clock.lap(ListingStep::Delivering);
                clock.count(1, delivered);
                flow
            })?;
            match flow {
                Some(ControlFlow::Break(())) => return Ok(()),
                Some(ControlFlow::Continue(())) => number += 1,
                None => number = self.behind_hole(number)?,
            }
        }
        Ok(())
    }

    /// Returns the first data block at or after the end of the hole that contains a data block number.
    fn behind_hole(&mut self, number: u32) -> Result<u32> {
        let at = self.layout.data_at(number);
        let run = map::run_at(self.source, self.dir, Fork::Data, at)?;
        let len = if run.place == Place::Hole { run.len } else { 1 };
        let FileBlock(end) = at.plus(len);
        let next = end.div_ceil(self.layout.blocks().into()).max(u64::from(number) + 1);
        Ok(u32::try_from(next).unwrap_or(u32::MAX))
    }
}

/// Lists a data block. Returns the number of entries passed to `each`, without `.` and `..`, and whether to continue.
fn list_block(
    layout: &DirLayout,
    block: &[u8],
    base: u64,
    from: Cookie,
    each: &mut Each<'_>,
) -> (u64, ControlFlow<()>) {
    let first = layout.first_entry() as u64;
    let mut delivered = 0;
    for entry in data::entries(layout, block) {
        let position = base + entry.offset as u64;
        if position >> 3 < from.0 {
            continue;
        }
        delivered += u64::from(position >= first);
        let next = Cookie((position + entry.size as u64) >> 3);
        let (ino, file_type) = (entry.ino, entry.file_type);
        if each(DirEntry { name: entry.name, ino, file_type, next }).is_break() {
            return (delivered, ControlFlow::Break(()));
        }
    }
    (delivered, ControlFlow::Continue(()))
}
