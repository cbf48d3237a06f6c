//! Directories found by the survey and the positions of their blocks. They are read in device order.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use vfs::check::{Finding, Phase};

use super::codes::{DIR_DOTS, DIR_HOLE};
use super::context::{Context, InodeUnderCheck};
use super::leaf::DirectoryReader;
use super::mapping::FileExtent;
use crate::dir::compare::NameEncoding;
use crate::format::address::Block;
use crate::format::dirent::{self, INLINE_PARENT_SIZE};
use crate::format::inode::{I_BLOCK_SIZE, flags};
use crate::format::xattr::{Area, AttributeName, Value};

/// Size of one read of a directory in bytes.
const READ_BYTES: usize = 256 << 10;

/// Callback for the number, the position and the bytes of a directory's blocks, until it breaks.
pub(super) type EachBlock<'a> = dyn FnMut(u32, Block, &[u8]) -> ControlFlow<()> + 'a;

/// Callback for the name and inode of entries, until it breaks.
pub(super) type EachEntry<'a> = dyn FnMut(&dirent::DirRecord<'_>) -> ControlFlow<()> + 'a;

/// A contiguous run of a directory's blocks.
#[derive(Clone, Copy)]
pub(super) struct DirRun {
    start: Block,
    first: u32,
    len: u32,
}

/// A directory in use.
pub(super) struct CheckedDirectory {
    pub(super) ino: u32,
    /// Checksum seed of its blocks.
    pub(super) seed: u32,
    /// Number of blocks according to its size.
    pub(super) blocks: u32,
    runs_start: u32,
    runs_len: u32,
    flags: u32,
    /// Target of `..`; 0 if it is missing.
    pub(super) dotdot: AtomicU32,
    /// Directory that contains its name; 0 if none was found.
    pub(super) parent: AtomicU32,
}

impl CheckedDirectory {
    pub(super) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the comparison style of its names.
    pub(super) const fn style(&self) -> NameEncoding {
        if self.has(flags::ENCRYPT) {
            NameEncoding::Encrypted
        } else if self.has(flags::CASEFOLD) {
            NameEncoding::Folded
        } else {
            NameEncoding::Plain
        }
    }

    pub(super) fn parent(&self) -> u32 {
        self.parent.load(Ordering::Relaxed)
    }
}

/// All directories in use.
#[derive(Default)]
pub(super) struct Directories {
    pub(super) all: Vec<CheckedDirectory>,
    runs: Vec<DirRun>,
}

impl Directories {
    pub(super) fn add(
        &mut self,
        subject: &InodeUnderCheck,
        runs: &[FileExtent],
        block_size_log: u32,
    ) {
        let size_blocks = subject.inode.size() >> block_size_log;
        self.all.push(CheckedDirectory {
            ino: subject.ino,
            seed: subject.seed.unwrap_or(0),
            blocks: u32::try_from(size_blocks).unwrap_or(u32::MAX),
            runs_start: self.runs.len() as u32,
            runs_len: runs.len() as u32,
            flags: subject.inode.flags(),
            dotdot: AtomicU32::new(0),
            parent: AtomicU32::new(0),
        });
        let compact =
            |run: &FileExtent| DirRun { start: run.start, first: run.first, len: run.len };
        self.runs.extend(runs.iter().map(compact));
    }

    /// Adds the directories of another thread.
    pub(super) fn append(&mut self, other: &mut Self) {
        let shift = self.runs.len() as u32;
        for directory in &mut other.all {
            directory.runs_start += shift;
        }
        self.all.append(&mut other.all);
        self.runs.append(&mut other.runs);
    }

    pub(super) fn sort(&mut self) {
        self.all.sort_unstable_by_key(|directory| directory.ino);
    }

    pub(super) fn find(&self, ino: u32) -> Option<&CheckedDirectory> {
        let at = self.all.binary_search_by_key(&ino, |directory| directory.ino).ok()?;
        self.all.get(at)
    }

    fn runs(&self, directory: &CheckedDirectory) -> &[DirRun] {
        let start = directory.runs_start as usize;
        self.runs.get(start..start + directory.runs_len as usize).unwrap_or_default()
    }

    /// Returns the device block of a directory block.
    pub(super) fn place(&self, directory: &CheckedDirectory, block: u32) -> Option<Block> {
        let runs = self.runs(directory);
        let run = runs[..runs.partition_point(|run| run.first <= block)].last()?;
        let within = block - run.first;
        (within < run.len).then(|| run.start.plus(within.into()))
    }

    /// Returns the directories in the order of their first blocks.
    fn in_place_order(&self, context: &Context<'_>) -> Vec<u32> {
        let place = |at: &u32| {
            let directory = &self.all[*at as usize];
            let geometry = context.geometry();
            let inline = || {
                let (group, index) = geometry.place_of(vfs::Ino(directory.ino.into()))?;
                let table = context.group(group)?.desc.inode_table;
                Some(geometry.inode_position(table, index).0)
            };
            self.runs(directory).first().map(|run| run.start).or_else(inline)
        };
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        order.sort_by_cached_key(place);
        order
    }

    /// Calls `each` with the number, the position and the bytes of a directory's blocks, in order, up to its size. A
    /// block that occurs several times is read once, so that its names use memory once. Reports no findings.
    pub(super) fn for_each_block(
        &self,
        context: &Context<'_>,
        directory: &CheckedDirectory,
        buffer: &mut Vec<u8>,
        each: &mut EachBlock<'_>,
    ) {
        let size = context.block_size();
        let most = (READ_BYTES / size).max(1) as u32;
        let mut met = HashSet::new();
        for run in self.runs(directory) {
            let end =
                (u64::from(run.first) + u64::from(run.len)).min(directory.blocks.into()) as u32;
            let mut block = run.first;
            while block < end {
                let count = most.min(end - block);
                let start = run.start.plus((block - run.first).into());
                buffer.resize(count as usize * size, 0);
                if !context.read(start, buffer) {
                    return;
                }
                for (at, bytes) in (0..count).zip(buffer.chunks_exact(size)) {
                    if context.claims.is_shared(start.plus(at.into()))
                        && !met.insert(start.plus(at.into()))
                    {
                        continue;
                    }
                    if each(block + at, start.plus(at.into()), bytes).is_break() {
                        return;
                    }
                }
                block += count;
            }
        }
    }

    /// Returns the first range of unmapped file blocks of a directory.
    fn holes(&self, directory: &CheckedDirectory) -> Option<std::ops::Range<u32>> {
        let mut next = 0;
        for run in self.runs(directory) {
            if run.first > next && next < directory.blocks {
                return Some(next..run.first.min(directory.blocks));
            }
            next = next.max(run.first.saturating_add(run.len));
        }
        (next < directory.blocks).then_some(next..directory.blocks)
    }

    /// Calls `each` with all readable entries, including `.` and `..`. Reports no findings.
    pub(super) fn for_each_entry(
        &self,
        context: &Context<'_>,
        directory: &CheckedDirectory,
        buffer: &mut Vec<u8>,
        each: &mut EachEntry<'_>,
    ) {
        let mut of_chain = |chain: &[u8]| {
            for record in dirent::entries(chain) {
                each(&record)?;
            }
            ControlFlow::Continue(())
        };
        if directory.has(flags::INLINE_DATA) {
            if let Some(inline) = context.inline_directory(directory.ino) {
                let _ = inline.parts().into_iter().try_for_each(&mut of_chain);
            }
            return;
        }
        self.for_each_block(context, directory, buffer, &mut |_, _, bytes| of_chain(bytes));
    }
}

/// Contents of an inline directory.
pub(super) struct Inline {
    bytes: Vec<u8>,
}

impl Inline {
    pub(super) fn parent(&self) -> u32 {
        self.bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Returns the two chains of entries.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let split = self.bytes.len().min(I_BLOCK_SIZE);
        let first = self.bytes.get(INLINE_PARENT_SIZE..split).unwrap_or_default();
        [first, &self.bytes[split..]]
    }
}

impl Context<'_> {
    /// Returns the contents of an inline directory, as far as its inode can be read.
    pub(super) fn inline_directory(&self, ino: u32) -> Option<Inline> {
        let slot = self.slot(ino)?;
        let inode = self.subject(ino, &slot).inode;
        let mut bytes = inode.i_block().to_vec();
        let tail = slot
            .get(crate::format::inode::GOOD_OLD_INODE_SIZE + usize::from(inode.extra_isize())..);
        if let Some(Ok(Some(area))) = tail.map(Area::in_inode)
            && let Some(Value::Here(rest)) = area.find(AttributeName::INLINE_DATA).map(|e| e.value)
        {
            bytes.extend_from_slice(rest);
        }
        bytes.truncate(usize::try_from(inode.size()).unwrap_or(usize::MAX));
        Some(Inline { bytes })
    }

    /// Reads and checks all directories.
    pub(super) fn check_directories(&self, directories: &Directories) {
        let order = directories.in_place_order(self);
        vfs::check::each(
            self.threads,
            order.len() as u64,
            Phase::Directories,
            self.observer,
            || DirectoryReader::new(self, directories),
            |reader, at| {
                let directory = &directories.all[order[at as usize] as usize];
                self.check_holes(directories, directory);
                reader.read(directory);
            },
        );
    }

    fn check_holes(&self, directories: &Directories, directory: &CheckedDirectory) {
        let is_inline = directory.has(flags::INLINE_DATA);
        let Some(hole) = directories.holes(directory).filter(|_| !is_inline) else { return };
        let finding = Finding::new(DIR_HOLE).of_inode(directory.ino.into());
        self.tell(finding.detail(format!("blocks {} to {}", hole.start, hole.end - 1)));
        if hole.start == 0 {
            self.tell(Finding::new(DIR_DOTS).of_inode(directory.ino.into()));
        }
    }
}
