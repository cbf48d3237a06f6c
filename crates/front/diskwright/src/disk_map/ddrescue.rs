//! Blocks in use as a mapfile of GNU ddrescue.

use std::ops::{ControlFlow, Range};

use disk::MapfileWriter;
use vfs::Result;
use vfs::check::BitSet;
use vfs::survey::{BlockUse, Extent, FileLayout, Sink, TellsLayout};

/// Blocks that a mapfile contains as finished (`+`). All others are not tried (`?`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// All blocks in use.
    Used,
    /// Blocks in use that are not contents of files.
    Metadata,
}

/// A domain mapfile, and what could not be read for it.
#[derive(Clone, Debug)]
pub struct RescueDomain {
    /// Contents of the file.
    pub text: String,
    /// Messages about unreadable metadata. Blocks that nothing describes are in the mapfile.
    pub remarks: Vec<String>,
    /// True if the survey was not cancelled.
    pub is_complete: bool,
}

/// Returns the mapfile of a file system. It describes a device of `device_bytes` bytes, on which the file system begins
/// at `start`.
///
/// # Errors
/// If the device fails while the log is examined.
pub fn rescue_domain(
    fs: &dyn TellsLayout,
    domain: Domain,
    start: u64,
    device_bytes: u64,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<RescueDomain> {
    let shape = fs.shape()?;
    let used = used_blocks(fs, domain, progress)?;
    let block_bytes = u64::from(shape.block_size);
    let mut writer = MapfileWriter::new(device_bytes, env!("CARGO_PKG_VERSION"));
    for run in used.runs {
        let bytes = |block: u64| block.saturating_mul(block_bytes).saturating_add(start);
        writer.finished(bytes(run.start)..bytes(run.end));
    }
    Ok(RescueDomain { text: writer.end(), remarks: used.remarks, is_complete: used.is_complete })
}

/// Blocks of a domain.
#[derive(Clone, Debug)]
pub(crate) struct DomainBlocks {
    /// Runs of blocks: in order, without overlap.
    pub(crate) runs: Vec<Range<u64>>,
    /// Blocks of the log.
    pub(crate) log: Vec<Range<u64>>,
    /// Messages about unreadable metadata. Blocks that nothing describes are in `runs`.
    pub(crate) remarks: Vec<String>,
    /// True if the survey was not cancelled.
    pub(crate) is_complete: bool,
}

/// Returns the blocks of a file system that belong to a domain.
///
/// # Errors
/// If the device fails while the log is examined.
pub(crate) fn used_blocks(
    fs: &dyn TellsLayout,
    domain: Domain,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<DomainBlocks> {
    let shape = fs.shape()?;
    let mut blocks = UsedBlocks {
        domain,
        included: BitSet::new(shape.blocks),
        excluded: BitSet::new(shape.blocks),
        limit: shape.blocks,
        log: Vec::new(),
        remarks: Vec::new(),
        is_complete: true,
        progress,
    };
    fs.tell_layout(&mut blocks);
    let runs = blocks.runs();
    let UsedBlocks { log, remarks, is_complete, .. } = blocks;
    Ok(DomainBlocks { runs, log, remarks, is_complete })
}

/// Receiver of the layout. Blocks that are reported as free and as used are used.
struct UsedBlocks<'p> {
    domain: Domain,
    included: BitSet,
    excluded: BitSet,
    limit: u64,
    log: Vec<Range<u64>>,
    remarks: Vec<String>,
    is_complete: bool,
    progress: &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>,
}

impl UsedBlocks<'_> {
    /// Returns the runs of blocks of the domain. Blocks that were not reported are in it.
    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for index in 0..self.limit.div_ceil(64) {
            let word = self.included.word(index) | !self.excluded.word(index);
            let base = index * 64;
            let mut bit = 0;
            while bit < 64 && base + bit < self.limit {
                let rest = word >> bit;
                let (is_in, same) = match rest & 1 {
                    1 => (true, u64::from(rest.trailing_ones())),
                    _ => (false, u64::from(rest.trailing_zeros()).min(64 - bit)),
                };
                let run = base + bit..(base + bit + same).min(self.limit);
                bit += same;
                match runs.last_mut() {
                    _ if !is_in => {}
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
        }
        runs
    }
}

impl Sink for UsedBlocks<'_> {
    fn extent(&mut self, Extent { start, len, kind }: Extent) {
        let run = start.min(self.limit)..start.saturating_add(len).min(self.limit);
        if kind == BlockUse::Log {
            self.log.push(run.clone());
        }
        let is_excluded = match kind {
            BlockUse::Free => true,
            BlockUse::Data | BlockUse::Shared | BlockUse::Preallocated => {
                self.domain == Domain::Metadata
            }
            _ => false,
        };
        let set = if is_excluded { &self.excluded } else { &self.included };
        // A damaged image may report a block twice.
        set.insert_range(run, |_| {});
    }

    fn file(&mut self, _file: FileLayout) {}

    fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        let flow = (self.progress)(done, total);
        self.is_complete &= flow.is_continue();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(limit: u64, domain: Domain, extents: &[(u64, u64, BlockUse)]) -> Vec<Range<u64>> {
        let mut progress = |_, _| ControlFlow::Continue(());
        let mut blocks = UsedBlocks {
            domain,
            included: BitSet::new(limit),
            excluded: BitSet::new(limit),
            limit,
            log: Vec::new(),
            remarks: Vec::new(),
            is_complete: true,
            progress: &mut progress,
        };
        extents.iter().for_each(|&(start, len, kind)| blocks.extent(Extent { start, len, kind }));
        blocks.runs()
    }

    #[test]
    fn runs_cross_words_and_end_with_the_device() {
        let free = [(10, 100, BlockUse::Free), (130, 10, BlockUse::Free), (199, 5, BlockUse::Free)];
        assert_eq!(blocks(200, Domain::Used, &free), [0..10, 110..130, 140..199]);
        assert_eq!(blocks(128, Domain::Used, &[(0, 128, BlockUse::Free)]), []);
        assert_eq!(blocks(130, Domain::Used, &[(9, 1, BlockUse::Free)]), [0..9, 10..130]);
    }

    #[test]
    fn contents_are_no_metadata_and_doubt_is_use() {
        let extents = [
            (0, 5, BlockUse::Headers),
            (5, 20, BlockUse::Data),
            (20, 10, BlockUse::Free),
            (30, 4, BlockUse::Directories),
            (34, 6, BlockUse::Free),
        ];
        assert_eq!(blocks(40, Domain::Used, &extents), [0..25, 30..34]);
        assert_eq!(blocks(50, Domain::Metadata, &extents), [0..5, 30..34, 40..50]);
    }
}
