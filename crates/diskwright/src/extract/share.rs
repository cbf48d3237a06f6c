//! Sharing blocks of the image with the files that are extracted from it.

use std::fs::File;

use vfs::Ino;

use super::Job;
use super::contents::Run;
use crate::clone::{self, CloneTarget, Range};

impl Job<'_> {
    /// Shares with `file` what can be shared of the data of a file in the image. Returns the runs that have to be
    /// copied: all, where image and file lie on no file system that can share blocks.
    pub(super) fn share_runs(&mut self, ino: Ino, runs: Vec<Run>, file: &File) -> Vec<Run> {
        if runs.iter().all(|run| run.len < clone::BYTES_MIN) {
            return runs;
        }
        let Some(target) = CloneTarget::of(file) else { return runs };
        let mut left = Vec::new();
        for run in runs {
            let shared = self.share_run(ino, run, &target, &mut left);
            self.report.bytes += shared;
            self.observer.copied(shared);
        }
        left
    }

    /// Shares what can be shared of a run, adds what is left to `left`, and returns how many bytes are shared.
    fn share_run(&self, ino: Ino, run: Run, target: &CloneTarget, left: &mut Vec<Run>) -> u64 {
        let (mut at, mut shared) = (run.offset, 0);
        let found = self.fs().read_in_place(ino, run.offset, run.len, &mut |parts| {
            for part in parts {
                let range = Range { file: part.file, offset: part.offset, len: part.len };
                let done = target.share(range, at);
                if done < part.len {
                    left.push(Run { offset: at + done, len: part.len - done });
                }
                at += part.len;
                shared += done;
            }
        });
        // What cannot be found is for the copying to report.
        let end = run.offset + run.len;
        if !matches!(found, Ok(true)) || at < end {
            left.push(Run { offset: at, len: end - at });
        }
        shared
    }
}
