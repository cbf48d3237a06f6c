//! Progress lines of `e2fsck -C FD`, which callers such as libblockdev and udisks parse.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;
use vfs::check::Phase;

/// Pass of e2fsck that checks names.
const NAMES: u8 = 2;
/// Pass of e2fsck that counts links.
const LINKS: u8 = 4;
/// Pass of e2fsck that compares bitmaps and counts.
const SUMMARY: u8 = 5;

/// Writes a line for each step: pass, current unit, maximum, device.
pub(crate) struct Completion {
    state: Mutex<CompletionState>,
}

struct CompletionState {
    out: Box<dyn Write + Send>,
    device: String,
    /// Pass and unit of the last line.
    last: (u8, u64),
}

impl Completion {
    /// Returns the writer for a descriptor of the caller. Returns `None` for descriptor 0 and negative ones, which
    /// request a display on a terminal that this program does not have.
    ///
    /// # Errors
    /// If the descriptor is not open for writing.
    pub(crate) fn to_descriptor(number: i32, device: &Path) -> io::Result<Option<Self>> {
        let out: Box<dyn Write + Send> = match number {
            ..=0 => return Ok(None),
            1 => Box::new(io::stdout()),
            2 => Box::new(io::stderr()),
            // The path of the descriptor refers to the same pipe or file. Files are appended to.
            _ => Box::new(File::options().append(true).open(format!("/dev/fd/{number}"))?),
        };
        let device = device.display().to_string();
        Ok(Some(Self { state: Mutex::new(CompletionState { out, device, last: (0, 0) }) }))
    }

    /// Writes the progress of a check. Late steps and those of another round are skipped.
    pub(crate) fn progress(&self, phase: Phase, done: u64, total: u64) {
        let mut state = self.state.lock();
        match phase {
            Phase::Superblock | Phase::Space => {}
            Phase::Inodes => state.line(1, done, total),
            Phase::Directories => state.line(NAMES, done, total),
            Phase::Counts => {
                if state.last.0 < LINKS {
                    (0..=1).for_each(|done| state.line(LINKS - 1, done, 1));
                }
                // Links and summaries are one phase: the second count starts after the first has ended.
                let is_summary = state.last == (LINKS, total) && done < total;
                let pass = if is_summary || state.last.0 == SUMMARY { SUMMARY } else { LINKS };
                state.line(pass, done, total);
            }
        }
    }
}

impl CompletionState {
    fn line(&mut self, pass: u8, done: u64, total: u64) {
        let is_first = self.last.0 != pass;
        if (pass, done) < self.last || (!is_first && self.last.1 == done) {
            return;
        }
        if is_first && done > 0 {
            let _ = writeln!(self.out, "{pass} 0 {total} {}", self.device);
        }
        self.last = (pass, done);
        // A closed reader does not end the check.
        let _ = writeln!(self.out, "{pass} {done} {total} {}", self.device);
    }
}
