//! Images of inodes in the log.
//!
//! An inode item always has the core, and a fork only if it changed. So the images of an inode are built up in the order
//! of the log. A fork that the log does not contain is taken from the inode's slot later.

use std::collections::HashMap;

use vfs::Ino;
use vfs::deleted::{DeletedSource, IMAGES_MAX};

use super::Search;
use crate::format::btree::TreeShape;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::log::Lsn;
use crate::format::log::inode::{InodeItem, write_fork};
use crate::format::log::item::{Item, RawItem};
use crate::log::each_old_transaction;

/// Maximum number of generations of one inode.
const GENERATIONS_MAX: usize = 64;

/// Usefulness of an image: the order of the variants is ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ImageValue {
    /// No contents, and no name.
    Empty,
    /// No contents: an empty file or a device.
    Named,
    /// Contents, but no name.
    Contents,
    /// Contents and a name.
    Whole,
}

impl ImageValue {
    pub(super) fn of(inode: &Inode) -> Self {
        let has_contents = inode.size() > 0
            && match inode.format() {
                ForkFormat::Extents => inode.extents(Fork::Data) > 0,
                ForkFormat::Local | ForkFormat::Btree => true,
                ForkFormat::Device | ForkFormat::MetaBtree => false,
            };
        match (has_contents, inode.nlink() > 0) {
            (true, true) => Self::Whole,
            (true, false) => Self::Contents,
            (false, true) => Self::Named,
            (false, false) => Self::Empty,
        }
    }
}

/// The most useful image of one generation of an inode.
#[derive(Clone, Debug)]
pub(super) struct LoggedImage {
    pub(super) inode: Inode,
    /// False if the log does not contain the data fork of this image.
    pub(super) has_fork: bool,
    value: ImageValue,
    at: Lsn,
}

impl LoggedImage {
    pub(super) fn source(&self) -> DeletedSource {
        DeletedSource::Log { block: self.at.block.into(), sequence: self.at.cycle.into() }
    }
}

/// Images of one inode.
#[derive(Default)]
struct InodeHistory {
    /// The last image, and whether its data fork is known.
    last: Option<(Inode, bool)>,
    best: Vec<LoggedImage>,
}

/// Images of all inodes in the log.
#[derive(Default)]
pub(super) struct LoggedInodes {
    inodes: HashMap<Ino, InodeHistory>,
    is_full: bool,
}

impl LoggedInodes {
    /// Removes and returns the images of an inode, one for each generation.
    pub(super) fn take(&mut self, ino: Ino) -> Vec<LoggedImage> {
        self.inodes.remove(&ino).map_or_else(Vec::new, |history| history.best)
    }

    /// Returns the inodes whose images were not taken, in ascending order.
    pub(super) fn left(&self) -> Vec<Ino> {
        let mut left: Vec<Ino> = self.inodes.keys().copied().collect();
        left.sort_unstable();
        left
    }

    /// Adds an item. Returns the image after it if that is one of a shortform directory.
    fn add(&mut self, item: &InodeItem<'_>, inode_size: usize, at: Lsn) -> Option<Inode> {
        if self.inodes.len() >= IMAGES_MAX && !self.inodes.contains_key(&item.ino) {
            self.is_full = true;
            return None;
        }
        let history = self.inodes.entry(item.ino).or_default();
        let (inode, has_fork) = applied(history.last.take(), item, inode_size, at)?;
        history.last = Some((inode.clone(), has_fork));
        inode.file_type()?;
        let is_short = inode.is_dir() && inode.format() == ForkFormat::Local && has_fork;
        let short = is_short.then(|| inode.clone());
        let value = ImageValue::of(&inode);
        let generation = inode.generation();
        let found = LoggedImage { inode, has_fork, value, at };
        let best = &mut history.best;
        match best.iter().position(|best| best.inode.generation() == generation) {
            Some(at) if found.value >= best[at].value => best[at] = found,
            Some(_) => {}
            None if best.len() < GENERATIONS_MAX => best.push(found),
            None => self.is_full = true,
        }
        short
    }
}

/// Returns the image after an item, and whether its data fork is known.
fn applied(
    last: Option<(Inode, bool)>,
    item: &InodeItem<'_>,
    inode_size: usize,
    at: Lsn,
) -> Option<(Inode, bool)> {
    let (old, mut has_fork) =
        last.unwrap_or_else(|| (Inode::from_slot(&vec![0; inode_size]), false));
    let mut inode = old.clone();
    item.write_core(inode.as_mut_bytes(), at);
    if inode.has_attr_fork() && inode.forkoff_bytes() >= inode.literal_size() {
        return None;
    }
    if old.generation() != inode.generation() {
        let core = inode.core_size();
        inode.as_mut_bytes()[core..].fill(0);
        has_fork = false;
    }
    if let Some(fork) = item.data {
        write_fork(fork, &TreeShape::BMBT, inode.fork_mut(Fork::Data)).ok()?;
        has_fork = true;
    }
    // An empty fork is never logged.
    has_fork |= inode.format() == ForkFormat::Extents && inode.extents(Fork::Data) == 0;
    Some((inode, has_fork))
}

impl Search<'_> {
    /// Collects the images of inodes in the log, and reports the names in it.
    pub(super) fn read_log(&mut self) {
        let mut logged = LoggedInodes::default();
        let inode_size = self.fs.geometry().inode_size();
        let superblock = self.fs.superblock_found();
        let read = each_old_transaction(self.evidence, superblock, &mut |transaction, at| {
            for raw in transaction.items() {
                self.log_item(&raw, at, inode_size, &mut logged);
            }
        });
        if let Err(error) = read {
            self.sink.remark(format!("the log was not searched: {error}"));
        }
        if logged.is_full {
            self.sink.remark(format!("the log has images of more than {IMAGES_MAX} inodes"));
        }
        self.logged = logged;
    }

    fn log_item(&mut self, raw: &RawItem<'_>, at: Lsn, inode_size: usize, to: &mut LoggedInodes) {
        match Item::parse(raw) {
            Ok(Item::Inode(item)) if self.fs.geometry().split_ino(item.ino).is_some() => {
                if let Some(dir) = to.add(&item, inode_size, at) {
                    self.logged_short_names(item.ino, &dir, at);
                }
            }
            Ok(Item::Buffer(item)) if !item.is_cancel() => self.logged_names(&item, at),
            // Damaged items and those without inodes or names.
            Ok(_) | Err(_) => {}
        }
    }
}
