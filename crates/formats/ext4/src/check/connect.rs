//! Checks that everything in use can be reached and has the right link count.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use vfs::check::{Finding, Phase};

use super::codes::{DIR_LOST_FOUND, DIR_PARENT, INODE_LINKS, INODE_UNATTACHED};
use super::context::Context;
use super::directories::{CheckedDirectory, Directories};
use super::inodes::{HIDDEN, INDEXED, InodeState, ORPHAN, VALUE};
use super::survey::ROOT;

/// Maximum link count of a directory. A directory with more links has a count of 1.
const LINKS_MAX: u32 = 65_000;

/// State of a directory's path to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState {
    Unknown,
    /// On the path that is being followed.
    Here,
    Connected,
    Lost,
}

impl Context<'_> {
    /// Checks that every directory can be reached from the root, and its `..`.
    pub(super) fn check_connections(&self, directories: &Directories) {
        let mut ways = vec![PathState::Unknown; directories.all.len()];
        for at in 0..directories.all.len() {
            self.follow(directories, at, &mut ways);
        }
        for (directory, way) in directories.all.iter().zip(&ways) {
            self.check_parent(directory);
            if *way == PathState::Connected {
                self.check_directory_links(directory);
            }
        }
        self.check_lost_found(directories);
    }

    /// Follows the path from a directory to the root until a directory with a known state.
    fn follow(&self, directories: &Directories, start: usize, ways: &mut [PathState]) {
        let mut path = Vec::new();
        let mut at = start;
        let end = loop {
            match ways[at] {
                PathState::Unknown => {}
                PathState::Here => {
                    self.tell_unattached(directories.all[at].ino, "it is its own ancestor");
                    break PathState::Lost;
                }
                known => break known,
            }
            ways[at] = PathState::Here;
            path.push(at);
            let directory = &directories.all[at];
            if directory.ino == ROOT {
                break PathState::Connected;
            }
            let parent = directory.parent();
            match directories.all.binary_search_by_key(&parent, |directory| directory.ino) {
                Ok(parent) => at = parent,
                Err(_) => {
                    let state = self.inodes.get(directory.ino);
                    if !state.is_some_and(InodeState::needs_no_name) {
                        self.tell_unattached(directory.ino, "it is a directory");
                    }
                    break PathState::Lost;
                }
            }
        };
        for at in path {
            ways[at] = end;
        }
    }

    fn tell_unattached(&self, ino: u32, detail: &str) {
        self.tell(Finding::new(INODE_UNATTACHED).of_inode(ino.into()).detail(detail));
    }

    fn check_parent(&self, directory: &CheckedDirectory) {
        let parent = if directory.ino == ROOT { ROOT } else { directory.parent() };
        let found = directory.dotdot.load(Ordering::Relaxed);
        if parent != 0 && found != parent {
            let finding = Finding::new(DIR_PARENT).of_inode(directory.ino.into()).named(b"..");
            self.tell(finding.mismatch(parent, found));
        }
    }

    fn check_directory_links(&self, directory: &CheckedDirectory) {
        let Some(state) = self.inodes.get(directory.ino) else { return };
        let (links, names) = (u32::from(state.links()), state.names());
        let has_many = self.params.dir_nlink();
        let is_uncounted = links == 1 && has_many && (names > LINKS_MAX || state.has(INDEXED));
        let is_counted = links == names && names <= LINKS_MAX;
        if !is_counted && !is_uncounted {
            self.tell_links(directory.ino, names, links);
        }
    }

    fn tell_links(&self, ino: u32, names: u32, links: u32) {
        let finding = Finding::new(INODE_LINKS).of_inode(ino.into()).field("links_count");
        self.tell(finding.mismatch(names, links));
    }

    /// Checks the link counts of everything except directories.
    pub(super) fn check_links(&self) {
        let count = self.geometry().groups_count.into();
        vfs::check::each(
            self.threads,
            count,
            Phase::Counts,
            self.observer,
            || (),
            |(), group| {
                let group = crate::format::address::Group(group as u32);
                for (index, state) in (0..).zip(self.inodes.of(group)) {
                    if state.is_used() && !state.is_dir() {
                        self.check_file_links(self.geometry().ino_of(group, index).0 as u32, state);
                    }
                }
            },
        );
    }

    fn check_file_links(&self, ino: u32, state: &InodeState) {
        let (links, names) = (u32::from(state.links()), state.names());
        if links == names || state.has(VALUE | HIDDEN) {
            return;
        }
        if names == 0 && !state.has(ORPHAN) {
            self.tell(Finding::new(INODE_UNATTACHED).of_inode(ino.into()));
        } else {
            self.tell_links(ino, names, links);
        }
    }

    fn check_lost_found(&self, directories: &Directories) {
        let Some(root) = directories.find(ROOT) else { return };
        let mut is_there = false;
        directories.for_each_entry(self, root, &mut Vec::new(), &mut |entry| {
            if entry.name != b"lost+found" {
                return ControlFlow::Continue(());
            }
            is_there = self.inodes.get(entry.inode).is_some_and(InodeState::is_dir);
            ControlFlow::Break(())
        });
        if !is_there {
            self.tell(Finding::new(DIR_LOST_FOUND).of_inode(ROOT.into()).named(b"lost+found"));
        }
    }
}
