//! Sharing of image blocks with extracted files (reflink).

use std::fs::File;

use vfs::Ino;
use vfs::runs::Run;

use super::Job;
use crate::clone::{self, CloneTarget, Range};

impl Job<'_> {
    /// Shares as much data as possible with `file` and returns the runs to be copied. These are all runs if the file
    /// systems do not support sharing.
    pub(super) fn share_runs(&mut self, ino: Ino, runs: Vec<Run>, file: &File) -> Vec<Run> {
        if runs.iter().all(|run| run.len < clone::BYTES_MIN) {
            return runs;
        }
        let Some(target) = CloneTarget::of(file) else { return runs };
        let mut left = Vec::new();
        for run in runs {
            let shared = self.share_run(ino, run, &target, &mut left);
            self.extraction.report.bytes += shared;
            self.observer.copied(shared);
        }
        left
    }

    /// Shares as much of a run as possible and adds the rest to `left`. Returns the number of shared bytes.
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
        // Copying reports any errors.
        let end = run.offset + run.len;
        if !matches!(found, Ok(true)) || at < end {
            left.push(Run { offset: at, len: end - at });
        }
        shared
    }
}
