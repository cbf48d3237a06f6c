//! All numbers of a survey, to be serialised.

use serde::Serialize;
use vfs::survey::BlockUse;

use crate::disk_map::histogram::Bucket;
use crate::disk_map::survey::{Fragmented, Survey};
use crate::disk_map::words::{key, log_words, path_text};
use crate::disk_map::{Options, word};

/// All numbers of a survey.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    image: String,
    format: String,
    block_size: u32,
    blocks: u64,
    groups: u64,
    group_blocks: u64,
    /// Meaning of each index of the arrays of counts.
    kinds: Vec<KindFigures>,
    left_out: Option<&'static str>,
    log: LogFigures,
    free: FreeFigures,
    files: FileFigures,
    cell_blocks: u64,
    /// Number of blocks of each kind in each cell, in the order of the disk.
    cells: Vec<[u64; BlockUse::COUNT]>,
    /// Number of blocks claimed more than once.
    claimed_twice: u64,
    remarks: Vec<String>,
    remarks_left_out: u64,
    complete: bool,
}

#[derive(Clone, Debug, Serialize)]
struct KindFigures {
    kind: &'static str,
    description: &'static str,
    blocks: u64,
}

#[derive(Clone, Debug, Serialize)]
struct LogFigures {
    state: &'static str,
    blocks: u64,
    /// First block and number of blocks of each part, at most 100.
    parts: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Serialize)]
struct FreeFigures {
    blocks: u64,
    runs: u64,
    longest: u64,
    /// Runs by length, in blocks.
    histogram: Vec<Bucket>,
}

#[derive(Clone, Debug, Serialize)]
struct FileFigures {
    files: u64,
    files_fragmented: u64,
    directories: u64,
    directories_fragmented: u64,
    fragments: u64,
    /// Files by number of fragments.
    histogram: Vec<Bucket>,
    most_fragmented: Vec<WorstFigures>,
}

#[derive(Clone, Debug, Serialize)]
struct WorstFigures {
    inode: u64,
    path: Option<String>,
    fragments: u64,
    blocks: u64,
}

impl Figures {
    /// Collects the numbers of a survey.
    pub fn new(survey: &Survey, options: &Options) -> Self {
        let totals = survey.cells.totals();
        let kinds = BlockUse::ALL.into_iter().zip(totals).map(|(kind, blocks)| KindFigures {
            kind: key(kind),
            description: word(kind),
            blocks,
        });
        let worst = |file: &Fragmented| WorstFigures {
            inode: file.ino.0,
            path: file.path.as_deref().map(path_text),
            fragments: file.fragments,
            blocks: file.blocks,
        };
        let files = &survey.files;
        Self {
            image: options.title.clone(),
            format: options.format.clone(),
            block_size: survey.shape.block_size,
            blocks: survey.shape.blocks,
            groups: survey.shape.groups,
            group_blocks: survey.shape.group_blocks,
            kinds: kinds.collect(),
            left_out: survey.shape.left_out,
            log: LogFigures {
                state: log_words(survey.shape.log).1,
                blocks: totals[BlockUse::Log as usize],
                parts: survey.log.clone(),
            },
            free: FreeFigures {
                blocks: totals[BlockUse::Free as usize],
                runs: survey.free.count(),
                longest: survey.free.longest(),
                histogram: survey.free.buckets(),
            },
            files: FileFigures {
                files: files.files,
                files_fragmented: files.files_fragmented,
                directories: files.directories,
                directories_fragmented: files.directories_fragmented,
                fragments: files.fragments.sum(),
                histogram: files.fragments.buckets(),
                most_fragmented: files.worst.iter().map(worst).collect(),
            },
            cell_blocks: survey.cells.cell_blocks(),
            cells: (0..survey.cells.len()).map(|cell| *survey.cells.counts(cell)).collect(),
            claimed_twice: survey.twice,
            remarks: survey.remarks.clone(),
            remarks_left_out: survey.remarks_left_out,
            complete: survey.is_complete,
        }
    }
}
