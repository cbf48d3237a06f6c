//! Going ahead of a walk through an image that is far away.
//!
//! A walk waits for one directory and one inode after the other: on a device where each takes a round trip, nearly all of
//! its time. Scouts list directories and read inodes before the walk comes to them, many at a time, in about its order;
//! what they have read is in memory then.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::thread;

use parking_lot::{Condvar, Mutex};
use vfs::{FileSystem, FileType, Ino};

/// Directories that are read at a time.
const SCOUTS: usize = 32;

/// How many files the scouts may be ahead, so that what they read is still there when the walk comes.
const LEAD_MAX: u64 = 50_000;

/// Most entries of one directory that a scout looks at.
const ENTRIES_MAX: usize = 100_000;

/// What a walk tells its scouts.
pub(crate) struct Scouts {
    /// Whether there are none, because nothing is far away.
    are_none: bool,
    state: Mutex<State>,
    has_changed: Condvar,
}

struct State {
    /// Directories to list, the next one last.
    waiting: Vec<Ino>,
    /// Directories that were ever among them: a damaged image may have circles.
    known: HashSet<Ino>,
    /// Files that scouts came to.
    scouted: u64,
    /// Files that the walk came to.
    walked: u64,
    /// Scouts that are listing.
    listing: usize,
    is_over: bool,
}

/// Walks with scouts ahead, from `top` down, if the image is far away.
pub(crate) fn ahead_of<R>(fs: &dyn FileSystem, top: Ino, walk: impl FnOnce(&Scouts) -> R) -> R {
    let scouts = Scouts::new(top, !fs.is_far());
    if scouts.are_none {
        return walk(&scouts);
    }
    thread::scope(|scope| {
        for _ in 0..SCOUTS {
            // Without scouts the walk itself reads everything.
            let _ = thread::Builder::new().spawn_scoped(scope, || scouts.scout(fs));
        }
        // Also if the walk panics: the scope waits for them.
        let _end = End(&scouts);
        walk(&scouts)
    })
}

struct End<'a>(&'a Scouts);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_changed.notify_all();
    }
}

impl Scouts {
    fn new(top: Ino, are_none: bool) -> Self {
        let state = State {
            waiting: vec![top],
            known: HashSet::from([top]),
            scouted: 0,
            walked: 0,
            listing: 0,
            is_over: false,
        };
        Self { are_none, state: Mutex::new(state), has_changed: Condvar::new() }
    }

    /// The walk came to another file.
    pub(crate) fn pass(&self) {
        if self.are_none {
            return;
        }
        let mut state = self.state.lock();
        state.walked += 1;
        // Not each one wakes scouts that wait for the walk.
        if state.walked.is_multiple_of(LEAD_MAX / 8) {
            self.has_changed.notify_all();
        }
    }

    /// Lists directories and reads what is in them until there are no more. What cannot be read, the walk will meet.
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

    /// What a scout found in a directory: so many files, and directories in the order of the walk.
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

/// What is in a directory: all of it, and the directories by their names.
fn entries(fs: &dyn FileSystem, dir: Ino) -> (Vec<Ino>, Vec<Ino>) {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    // What was listed until an error is as good.
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
