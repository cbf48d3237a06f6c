//! A second pass over directories if there were findings: finds the paths of the inodes concerned, and compares the
//! names of inodes whose parents are in doubt.

use std::collections::HashMap;

use parking_lot::Mutex;
use vfs::Ino;
use vfs::check::{Finding, Parent, Phase};

use super::attributes;
use super::chunks::InodeState;
use super::codes;
use super::context::Context;
use super::directory::{Reader, Space, spaces};
use super::forks;
use super::inodes::Inodes;
use super::links::DIRECTORY;
use crate::format::dir::short::Short;
use crate::format::dir::{self, DirBlockKind, data};
use crate::format::extent::Extent;
use crate::format::inode::{self, Fork, ForkFormat, Inode};

/// Maximum number of entries read to find the names of directories on paths from the root.
const ENTRIES_MAX: u64 = 50_000_000;
/// Maximum number of names kept of inodes in doubt.
const NAMES_MAX: usize = 1 << 20;
/// Maximum number of levels of a path.
const DEPTH_MAX: usize = 4096;

/// A link to an inode, from a directory or a parent pointer: directory, its generation, name.
type Link = (u64, u32, Vec<u8>);

/// Returns an inode in use, if its slot is readable and valid.
pub(super) fn read_inode(ctx: &Context<'_>, ino: Ino) -> Option<Inode> {
    let (ag, ag_ino) = ctx.geometry.split_ino(ino)?;
    let mut slot = vec![0; ctx.geometry.inode_size()];
    let byte = ctx.ag_byte(ag) + (u64::from(ag_ino.0) << ctx.geometry.inode_log);
    ctx.device.read_at(byte, &mut slot).ok()?;
    inode::verify_structure(&ctx.geometry, ino, &slot).ok()?;
    let inode = Inode::from_slot(&slot);
    inode.file_type().map(|_| inode)
}

/// Calls `each` with the readable entries of a directory except `.` and `..`.
pub(super) fn for_each(
    inodes: &Inodes<'_>,
    ino: Ino,
    each: impl FnMut(&Inode, &[u8], Ino) -> bool,
) {
    let Some(inode) = read_inode(inodes.ctx, ino).filter(Inode::is_dir) else { return };
    let mut extents = Vec::new();
    if inode.format() != ForkFormat::Local {
        forks::map(inodes, ino, &inode, Fork::Data, |extent| extents.push(extent));
    }
    for_each_in(inodes, ino, &inode, &extents, each);
}

/// Like [`for_each`], given the inode and its extents.
pub(super) fn for_each_in(
    inodes: &Inodes<'_>,
    ino: Ino,
    inode: &Inode,
    extents: &[Extent],
    mut each: impl FnMut(&Inode, &[u8], Ino) -> bool,
) {
    let (ctx, layout) = (inodes.ctx, &inodes.layout);
    if inode.format() == ForkFormat::Local {
        let bytes = inode.fork(Fork::Data).get(..inode.size() as usize).unwrap_or_default();
        let Ok(short) = Short::parse(layout, &ctx.geometry, bytes) else { return };
        short.entries().all(|entry| each(inode, entry.name, entry.ino));
        return;
    }
    let mut reader = Reader::new(ctx, layout, extents);
    for (space, number) in spaces(layout, extents) {
        if space != Space::Data {
            return;
        }
        let at = reader.first(space, number);
        let Some((place, bytes)) = reader.read(at) else { continue };
        let who = (ino, at.0 as u32);
        if dir::verify_structure(&ctx.geometry, DirBlockKind::Data, who, place, bytes).is_err() {
            continue;
        }
        for entry in data::entries(layout, bytes).filter(|e| !matches!(e.name, b"." | b"..")) {
            if !each(inode, entry.name, entry.ino) {
                return;
            }
        }
    }
}

/// Passes all names to the findings that wait for one, and collects the links of inodes `in_doubt`, which must be
/// sorted. `quiet` reports no findings for structures that were already checked.
pub(super) fn gather(
    inodes: &Inodes<'_>,
    quiet: &Inodes<'_>,
    in_doubt: &[u32],
) -> HashMap<u32, Vec<Link>> {
    let links: Mutex<(HashMap<u32, Vec<Link>>, usize)> = Mutex::default();
    let naming = inodes.ctx.waiting.naming();
    let count = inodes.chunks.count();
    vfs::check::each(
        inodes.ctx.threads,
        count.into(),
        Phase::Counts,
        inodes.ctx.observer,
        || (),
        |(), chunk| {
            for number in chunk as u32 * 64..(chunk as u32 + 1) * 64 {
                if in_doubt.is_empty() && naming.is_done() {
                    return;
                }
                if inodes.links.kind(number) != Some(DIRECTORY) {
                    continue;
                }
                let dir = inodes.chunks.ino(number);
                for_each(quiet, dir, |inode, name, child| {
                    naming.name(child.0, dir.0, name);
                    if let InodeState::Used(number) = inodes.chunks.find(child)
                        && in_doubt.binary_search(&number).is_ok()
                    {
                        let mut links = links.lock();
                        if links.1 < NAMES_MAX {
                            links.1 += 1;
                            let link = (dir.0, inode.generation(), name.to_vec());
                            links.0.entry(number).or_default().push(link);
                        }
                    }
                    true
                });
            }
        },
    );
    links.into_inner().0
}

/// Reports wrong parents of inodes in doubt, given the names that lead to them.
pub(super) fn compare(
    inodes: &Inodes<'_>,
    quiet: &Inodes<'_>,
    in_doubt: &[u32],
    mut names: HashMap<u32, Vec<Link>>,
) {
    for number in in_doubt {
        let ino = inodes.chunks.ino(*number);
        let finding = |code| Finding::new(code).of_inode(ino.0);
        let mut expected = names.remove(number).unwrap_or_default();
        let mut is_explained = is_lost_directory(inodes, *number, &expected);
        if let Some(parent) = inodes.links.parent_of(*number)
            && let [(dir, ..)] = expected.as_slice()
            && inodes.chunks.ino(parent).0 != *dir
        {
            is_explained = true;
            let finding = finding(codes::DIR_DOT_DOT).named(b"..");
            inodes.ctx.found(finding.mismatch(dir, inodes.chunks.ino(parent)));
        }
        let mut found = attributes::parents(quiet, *number, ino);
        expected.sort_unstable();
        found.sort_unstable();
        let has_parents = inodes.links.has_parents();
        for link in expected.iter().filter(|link| has_parents && found.binary_search(link).is_err())
        {
            is_explained = true;
            let expected = format!("one to directory {}, generation {}", link.0, link.1);
            let finding = finding(codes::PARENT_MISSING).named(&link.2);
            inodes.ctx.found(finding.mismatch(expected, "none"));
        }
        for link in found.iter().filter(|link| expected.binary_search(link).is_err()) {
            is_explained = true;
            let found = format!("one to directory {}, generation {}", link.0, link.1);
            let finding = finding(codes::PARENT_STALE).named(&link.2);
            inodes.ctx.found(finding.mismatch("no such name", found));
        }
        if !is_explained {
            let finding = finding(codes::PARENT);
            inodes.ctx.found(finding.detail("directory entries and parent pointers differ"));
        }
    }
}

/// Reports a directory without a name that the link count did not reveal, because it contains directories.
fn is_lost_directory(inodes: &Inodes<'_>, number: u32, names: &[Link]) -> bool {
    let (links, ino) = (inodes.links, inodes.chunks.ino(number));
    if !names.is_empty() || links.is_root(ino) || links.kind(number) != Some(DIRECTORY) {
        return false;
    }
    let nlink = read_inode(inodes.ctx, ino).map_or(0, |inode| i64::from(inode.nlink()));
    if nlink - links.left(number) >= 2 {
        inodes.ctx.found(Finding::new(codes::INODE_LOST).of_inode(ino.0));
    }
    true
}

/// Finds paths.
pub(super) struct Paths<'p> {
    pub(super) inodes: &'p Inodes<'p>,
    pub(super) quiet: &'p Inodes<'p>,
    known: HashMap<u32, Option<Vec<u8>>>,
    entries_left: u64,
}

impl<'p> Paths<'p> {
    pub(super) fn new(inodes: &'p Inodes<'p>, quiet: &'p Inodes<'p>) -> Self {
        Self { inodes, quiet, known: HashMap::new(), entries_left: ENTRIES_MAX }
    }

    /// Returns the path of an inode, given one of its names.
    pub(super) fn path(&mut self, ino: u64, parent: Option<&Parent>) -> Option<Vec<u8>> {
        if Ino(ino) == self.inodes.links.root() {
            return Some(b"/".to_vec());
        }
        let parent = parent?;
        let InodeState::Used(number) = self.inodes.chunks.find(Ino(parent.directory)) else {
            return None;
        };
        let mut path = self.directory(number)?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&parent.name);
        Some(path)
    }

    fn directory(&mut self, number: u32) -> Option<Vec<u8>> {
        // Up to a directory whose path is known, then down again.
        let (mut way, mut at) = (Vec::new(), number);
        let mut path = loop {
            if let Some(path) = self.known.get(&at) {
                break path.clone();
            }
            if self.inodes.chunks.ino(at) == self.inodes.links.root() {
                break Some(Vec::new());
            }
            way.push(at);
            match self.inodes.links.parent_of(at) {
                Some(parent) if way.len() < DEPTH_MAX => at = parent,
                _ => break None,
            }
        };
        for dir in way.into_iter().rev() {
            path = path.and_then(|mut path| {
                path.push(b'/');
                path.extend_from_slice(&self.name_of(dir)?);
                Some(path)
            });
            self.known.insert(dir, path.clone());
        }
        path.map(|path| if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// Returns the name of a directory in its parent.
    fn name_of(&mut self, number: u32) -> Option<Vec<u8>> {
        let parent = self.inodes.chunks.ino(self.inodes.links.parent_of(number)?);
        let child = self.inodes.chunks.ino(number);
        let (mut found, mut left) = (None, self.entries_left);
        for_each(self.quiet, parent, |_, name, ino| {
            if ino == child {
                found = Some(name.to_vec());
            }
            left = left.saturating_sub(1);
            found.is_none() && left > 0
        });
        self.entries_left = left;
        found
    }
}
