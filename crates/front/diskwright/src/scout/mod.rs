//! Prefetching for a walk through a remote image.
//!
//! A walk reads one directory and one inode after the other. If each read is a round trip, the walk mostly waits. Scout
//! threads list directories and read inodes ahead of the walk, many at a time and in roughly the same order, so that
//! they are in the cache.

mod contents;
#[cfg(target_os = "linux")]
pub(crate) mod mounted;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::thread;

use parking_lot::{Condvar, Mutex};
use vfs::{FileSystem, FileType, Ino};

use contents::ContentsLead;

/// Number of scout threads, each with one directory at a time.
const SCOUTS: usize = 32;

/// Maximum lead of the scouts in files, so that their data is still cached when the walk needs it.
const LEAD_MAX: u64 = 50_000;

/// Maximum number of entries of a directory that a scout reads.
const ENTRIES_MAX: usize = 100_000;

/// Shared state of a walk and its scouts.
pub(crate) struct Scouts {
    /// True if scouts are disabled, because the image is local.
    are_none: bool,
    state: Mutex<ScoutState>,
    has_changed: Condvar,
    /// The scout of contents, if the walk reads them.
    contents: Option<ContentsLead>,
}

struct ScoutState {
    /// Directories to list, the next one last.
    waiting: Vec<Ino>,
    /// All directories that were ever queued, because a damaged image may have cycles.
    known: HashSet<Ino>,
    /// Number of files visited by scouts.
    scouted: u64,
    /// Number of files visited by the walk.
    walked: u64,
    /// Number of scouts that are listing.
    listing: usize,
    is_over: bool,
}

/// Runs a walk at `top`, with scouts if the image is remote.
pub(crate) fn ahead_of<R>(fs: &dyn FileSystem, top: Ino, walk: impl FnOnce(&Scouts) -> R) -> R {
    run(fs, top, None, walk)
}

/// Same for a sorted walk that reads the contents of all files.
pub(crate) fn ahead_of_contents<R>(
    fs: &dyn FileSystem,
    top: Ino,
    walk: impl FnOnce(&Scouts) -> R,
) -> R {
    run(fs, top, Some(ContentsLead::default()), walk)
}

fn run<R>(
    fs: &dyn FileSystem,
    top: Ino,
    contents: Option<ContentsLead>,
    walk: impl FnOnce(&Scouts) -> R,
) -> R {
    let scouts = Scouts::new(top, !fs.is_far(), contents);
    if scouts.are_none {
        return walk(&scouts);
    }
    thread::scope(|scope| {
        // Without scouts the walk reads everything itself.
        for _ in 0..SCOUTS {
            let _ = thread::Builder::new().spawn_scoped(scope, || scouts.scout(fs));
        }
        if let Some(contents) = &scouts.contents {
            let _ = thread::Builder::new().spawn_scoped(scope, || contents.scout(fs, top));
        }
        // Also on a panic of the walk, because the scope waits for the scouts.
        let _end = End(&scouts);
        walk(&scouts)
    })
}

struct End<'a>(&'a Scouts);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_changed.notify_all();
        if let Some(contents) = &self.0.contents {
            contents.end();
        }
    }
}

impl Scouts {
    fn new(top: Ino, are_none: bool, contents: Option<ContentsLead>) -> Self {
        let state = ScoutState {
            waiting: vec![top],
            known: HashSet::from([top]),
            scouted: 0,
            walked: 0,
            listing: 0,
            is_over: false,
        };
        Self { are_none, state: Mutex::new(state), has_changed: Condvar::new(), contents }
    }

    /// Reports that the walk visited another file.
    pub(crate) fn pass(&self) {
        if self.are_none {
            return;
        }
        if let Some(contents) = &self.contents {
            contents.pass();
        }
        let mut state = self.state.lock();
        state.walked += 1;
        // Wake waiting scouts only after several files.
        if state.walked.is_multiple_of(LEAD_MAX / 8) {
            self.has_changed.notify_all();
        }
    }

    /// Lists directories and reads their inodes until none are left. The walk reports any errors.
    fn scout(&self, fs: &dyn FileSystem) {
        while let Some(dir) = self.next() {
            let (files, directories) = entries(fs, dir);
            self.found(files.len(), directories);
            for ino in files {
                if self.state.lock().is_over {
                    return;
                }
                let _ = fs.attributes(ino);
            }
        }
    }

    fn next(&self) -> Option<Ino> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            let is_far_ahead = state.scouted > state.walked + LEAD_MAX;
            if let Some(dir) = state.waiting.pop_if(|_| !is_far_ahead) {
                state.listing += 1;
                return Some(dir);
            }
            if state.waiting.is_empty() && state.listing == 0 {
                return None;
            }
            self.has_changed.wait(&mut state);
        }
    }

    /// Adds the contents of a directory: the number of files, and its directories in walk order.
    fn found(&self, files: usize, directories: Vec<Ino>) {
        let mut state = self.state.lock();
        state.listing -= 1;
        state.scouted += files as u64;
        for dir in directories.into_iter().rev() {
            if state.known.insert(dir) {
                state.waiting.push(dir);
            }
        }
        self.has_changed.notify_all();
    }
}

/// Returns all inodes of a directory, and its subdirectories by name.
fn entries(fs: &dyn FileSystem, dir: Ino) -> (Vec<Ino>, Vec<Ino>) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    // Entries before an error are still useful.
    let _ = fs.for_each_entry(dir, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            files.push(entry.ino);
            if entry.file_type.is_none_or(|file_type| file_type == FileType::Directory) {
                directories.push((entry.name.to_vec(), entry.ino));
            }
        }
        if files.len() < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    directories.sort_unstable();
    (files, directories.into_iter().map(|(_, ino)| ino).collect())
}
