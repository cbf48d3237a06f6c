//! Asking a file system what lies where, and keeping what a picture needs of that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use vfs::path::first_paths;
use vfs::survey::{Extent, FileLayout, Kind, Shape, Sink, TellsLayout};
use vfs::{Ino, Result};

use crate::cells::Cells;
use crate::histogram::Histogram;

/// Most cells of a survey: more are smaller than what a screen shows.
pub const CELLS_MAX: usize = 1 << 16;
/// Most remarks that are kept.
const REMARKS_MAX: usize = 50;
/// How many of the most fragmented files are named.
const WORST_MAX: usize = 10;
/// Most parts of the log that are kept.
const LOG_PARTS_MAX: usize = 100;

/// A file in several pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragmented {
    /// Its inode.
    pub ino: Ino,
    /// Its pieces.
    pub fragments: u64,
    /// Its blocks.
    pub blocks: u64,
    /// One of its paths; `None` if none was found.
    pub path: Option<Vec<u8>>,
}

/// What was counted of regular files and directories that have blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Regular files.
    pub files: u64,
    /// Those of them that lie in more than one piece.
    pub files_fragmented: u64,
    /// Directories.
    pub directories: u64,
    /// Those of them that lie in more than one piece.
    pub directories_fragmented: u64,
    /// Regular files by the number of their pieces.
    pub fragments: Histogram,
    /// The regular files and directories in most pieces, worst first.
    pub worst: Vec<Fragmented>,
}

/// What lies where.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Size and parts of the image.
    pub shape: Shape,
    /// What lies in each part of the disk. Each block of the disk counts once.
    pub cells: Cells,
    /// Runs of free blocks by length, as the format lists them: a run ends at the end of its group.
    pub free: Histogram,
    /// What was counted of files.
    pub files: Files,
    /// The parts of the log: first block, and how many. At most 100.
    pub log: Vec<(u64, u64)>,
    /// Blocks in use of which nothing says what for.
    pub unknown: u64,
    /// Blocks that were claimed more than once, how often beyond the first time. In a sound image there are none.
    pub twice: u64,
    /// What could not be read.
    pub remarks: Vec<String>,
    /// How many more remarks there were.
    pub remarks_left_out: u64,
    /// Whether nobody ended it early.
    pub is_complete: bool,
}

impl Survey {
    /// Asks a file system what lies where, and sorts that into at most so many cells ([`CELLS_MAX`] at most).
    /// `progress` is told how many units of work of how many are done, and says whether to go on.
    ///
    /// # Errors
    /// If the log cannot be looked at because the device fails. Whatever else cannot be read is a remark.
    pub fn take(
        fs: &dyn TellsLayout,
        cells: usize,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Self> {
        let shape = fs.shape()?;
        let cells = Cells::new(shape.blocks, cells.min(CELLS_MAX));
        let mut taker = Taker::new(cells, progress);
        fs.tell_layout(&mut taker);
        let mut survey = taker.into_survey(shape);
        survey.name_worst(fs);
        Ok(survey)
    }

    /// How many blocks of a kind there are.
    pub fn total(&self, kind: Kind) -> u64 {
        self.cells.totals()[kind as usize]
    }

    /// Whether all could be read, and each block is used for one thing.
    pub fn is_sound(&self) -> bool {
        self.remarks.is_empty() && self.unknown == 0 && self.twice == 0 && self.is_complete
    }

    /// How many bytes some blocks have.
    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.shape.block_size.into())
    }

    fn name_worst(&mut self, fs: &dyn TellsLayout) {
        let inos: Vec<Ino> = self.files.worst.iter().map(|file| file.ino).collect();
        if inos.is_empty() {
            return;
        }
        let (paths, errors) = first_paths(fs, &inos);
        for (file, path) in self.files.worst.iter_mut().zip(paths) {
            file.path = path;
        }
        if errors > 0 && self.files.worst.iter().any(|file| file.path.is_none()) {
            let remark =
                format!("{errors} directories could not be searched for the paths of files");
            self.remarks.push(remark);
        }
    }
}

/// A file among the worst: the order is by pieces, then by number.
type Rank = Reverse<(u64, Reverse<u64>, u64)>;

/// Takes down what a file system tells.
struct Taker<'t> {
    progress: &'t mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    cells: Cells,
    free: Histogram,
    files: Files,
    worst: BinaryHeap<Rank>,
    log: Vec<(u64, u64)>,
    outside: u64,
    remarks: Vec<String>,
    remarks_left_out: u64,
    is_complete: bool,
}

impl<'t> Taker<'t> {
    fn new(cells: Cells, progress: &'t mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Self {
        Self {
            progress,
            cells,
            free: Histogram::default(),
            files: Files::default(),
            worst: BinaryHeap::new(),
            log: Vec::new(),
            outside: 0,
            remarks: Vec::new(),
            remarks_left_out: 0,
            is_complete: true,
        }
    }

    /// Notes a part of the log, which may go on where the last one ended.
    fn add_log(&mut self, start: u64, len: u64) {
        if let Some((before, so_far)) = self.log.last_mut()
            && before.saturating_add(*so_far) == start
        {
            *so_far = so_far.saturating_add(len);
        } else if self.log.len() < LOG_PARTS_MAX {
            self.log.push((start, len));
        }
    }

    fn into_survey(mut self, shape: Shape) -> Survey {
        let (unknown, twice) = self.cells.settle();
        let twice = twice.saturating_add(self.outside);
        if twice > 0 {
            self.remark(format!("{twice} blocks are claimed more than once, or in use and free"));
        }
        if unknown > 0 && self.is_complete {
            let problem = "nothing that could be read says what for";
            self.remark(format!("{unknown} blocks are in use, and {problem}"));
        }
        let worst = self.worst.into_sorted_vec();
        let file = |Reverse((fragments, Reverse(ino), blocks)): Rank| Fragmented {
            ino: Ino(ino),
            fragments,
            blocks,
            path: None,
        };
        self.files.worst = worst.into_iter().map(file).collect();
        Survey {
            shape,
            cells: self.cells,
            free: self.free,
            files: self.files,
            log: self.log,
            unknown,
            twice,
            remarks: self.remarks,
            remarks_left_out: self.remarks_left_out,
            is_complete: self.is_complete,
        }
    }
}

impl Sink for Taker<'_> {
    fn extent(&mut self, extent: Extent) {
        self.outside = self.outside.saturating_add(self.cells.add(extent));
        match extent.kind {
            Kind::Free => self.free.add(extent.len),
            Kind::Log => self.add_log(extent.start, extent.len),
            _ => {}
        }
    }

    fn file(&mut self, file: FileLayout) {
        let is_fragmented = u64::from(file.fragments > 1);
        if file.is_dir {
            self.files.directories += 1;
            self.files.directories_fragmented += is_fragmented;
        } else {
            self.files.files += 1;
            self.files.files_fragmented += is_fragmented;
            self.files.fragments.add(file.fragments);
        }
        if file.fragments > 1 {
            self.worst.push(Reverse((file.fragments, Reverse(file.ino.0), file.blocks)));
            if self.worst.len() > WORST_MAX {
                self.worst.pop();
            }
        }
    }

    fn remark(&mut self, remark: String) {
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(remark);
        } else {
            self.remarks_left_out += 1;
        }
    }

    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        let go_on = (self.progress)(done, total);
        self.is_complete &= go_on.is_continue();
        go_on
    }
}
