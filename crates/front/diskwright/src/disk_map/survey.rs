//! Surveys: the use of blocks, reduced to the data of a picture.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use vfs::path::first_paths;
use vfs::survey::{BlockUse, Extent, FileLayout, ImageGeometry, Sink, TellsLayout};
use vfs::{Ino, Result};

use crate::disk_map::cells::Cells;
use crate::disk_map::histogram::Histogram;

/// Maximum number of cells: more are smaller than a screen can show.
pub const CELLS_MAX: usize = 1 << 16;
/// Maximum number of remarks kept.
const REMARKS_MAX: usize = 50;
/// Number of the most fragmented files that are listed.
const WORST_MAX: usize = 10;
/// Maximum number of parts of the log that are kept.
const LOG_PARTS_MAX: usize = 100;

/// A fragmented file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragmented {
    /// Inode number.
    pub ino: Ino,
    /// Number of fragments.
    pub fragments: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// One of its paths, if one was found.
    pub path: Option<Vec<u8>>,
}

/// Statistics of regular files and directories with blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Number of regular files.
    pub files: u64,
    /// Number of regular files with more than one fragment.
    pub files_fragmented: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of directories with more than one fragment.
    pub directories_fragmented: u64,
    /// Regular files by number of fragments.
    pub fragments: Histogram,
    /// The most fragmented regular files and directories, worst first.
    pub worst: Vec<Fragmented>,
}

/// Use of the disk.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Size and structure of the image.
    pub shape: ImageGeometry,
    /// Use of each part of the disk. Each block counts once.
    pub cells: Cells,
    /// Runs of free blocks by length, as listed by the format: a run ends at the end of its group.
    pub free: Histogram,
    /// Statistics of files.
    pub files: Files,
    /// Parts of the log: first block and number of blocks. At most 100.
    pub log: Vec<(u64, u64)>,
    /// Number of blocks in use whose purpose is unknown.
    pub unknown: u64,
    /// Number of surplus claims of blocks. 0 in a sound image.
    pub twice: u64,
    /// Messages about unreadable metadata.
    pub remarks: Vec<String>,
    /// Number of further remarks.
    pub remarks_left_out: u64,
    /// True if the survey was not cancelled.
    pub is_complete: bool,
}

impl Survey {
    /// Surveys a file system with at most `cells` cells ([`CELLS_MAX`] at most). Calls `progress` with the completed
    /// and total units of work; it returns whether to continue.
    ///
    /// # Errors
    /// If the device fails while the log is examined. All other unreadable metadata becomes a remark.
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

    /// Returns the number of blocks of a kind.
    pub fn total(&self, kind: BlockUse) -> u64 {
        self.cells.totals()[kind as usize]
    }

    /// Returns whether everything was readable and each block has one use.
    pub fn is_sound(&self) -> bool {
        self.remarks.is_empty() && self.unknown == 0 && self.twice == 0 && self.is_complete
    }

    /// Converts a number of blocks to bytes.
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

/// Rank of a fragmented file: by fragments, then by inode number.
type Rank = Reverse<(u64, Reverse<u64>, u64)>;

/// Records the reports of a file system.
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

    /// Records a part of the log, merged with the last one if they are contiguous.
    fn add_log(&mut self, start: u64, len: u64) {
        if let Some((before, so_far)) = self.log.last_mut()
            && before.saturating_add(*so_far) == start
        {
            *so_far = so_far.saturating_add(len);
        } else if self.log.len() < LOG_PARTS_MAX {
            self.log.push((start, len));
        }
    }

    fn into_survey(mut self, shape: ImageGeometry) -> Survey {
        let (unknown, twice) = self.cells.settle();
        let twice = twice.saturating_add(self.outside);
        if twice > 0 {
            self.remark(format!("{twice} blocks are claimed more than once, or in use and free"));
        }
        if unknown > 0 && self.is_complete {
            let problem = "no readable structure refers to them";
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
            BlockUse::Free => self.free.add(extent.len),
            BlockUse::Log => self.add_log(extent.start, extent.len),
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
