//! Inodes by the tree that they belong to: the metadata directory tree or the ordinary one.

use vfs::Ino;
use vfs::check::BitSet;

use super::super::context::Context;
use crate::format::features::Incompat;

/// Inodes by the trees that they belong to: one bit per inode each.
pub(in super::super) struct Trees {
    /// Inodes with the metadata flag.
    pub(super) marked: BitSet,
    /// Inodes with a name in a directory with the flag.
    pub(super) named_inside: BitSet,
    /// Inodes with a name in a directory without it.
    pub(super) named_outside: BitSet,
}

impl Trees {
    /// Returns `None` for an image without the tree.
    pub(in super::super) fn new(ctx: &Context<'_>, inodes: usize) -> Option<Self> {
        let set = || BitSet::new(inodes as u64);
        let trees = || Self { marked: set(), named_inside: set(), named_outside: set() };
        ctx.geometry.features.incompat(Incompat::METADIR).then(trees)
    }

    /// Records an inode with the metadata flag.
    pub(in super::super) fn mark(&self, number: u32) {
        self.marked.insert(number.into());
    }

    /// Records an entry for an inode in a directory, which has the flag if `is_inside`.
    pub(in super::super) fn name(&self, number: u32, is_inside: bool) {
        let set = if is_inside { &self.named_inside } else { &self.named_outside };
        set.insert(number.into());
    }
}

/// Returns the root of the tree; `None` for an image without it.
pub(in super::super) fn root(ctx: &Context<'_>) -> Option<Ino> {
    let has_tree = ctx.geometry.features.incompat(Incompat::METADIR);
    has_tree.then(|| Ino(ctx.sb.raw.metadirino.get()))
}
