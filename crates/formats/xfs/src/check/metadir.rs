//! Checks the metadata directory tree: its root, the types of its files, and that it shares no inode with the ordinary
//! tree. Its directories are checked like all others.

mod trees;

use std::collections::HashSet;

use vfs::Ino;
use vfs::check::{BitSet, Finding};

use super::chunks::InodeState;
use super::codes;
use super::context::Context;
use super::diagnose;
use super::inodes::Inodes;
use super::links::DIRECTORY;
use super::names;
use crate::format::features::Version;
use crate::format::inode::Inode;
use crate::format::metafile::{MetafileType, group_of_path, path_in, quota_path};
use crate::format::quota::QuotaKind;

pub(super) use trees::{Trees, root};

/// Maximum number of levels of the tree. Kernels use two.
const LEVELS_MAX: usize = 8;
/// Maximum number of files that are visited.
const FILES_MAX: usize = 1 << 23;

/// A file of the tree.
#[derive(Debug)]
pub(super) struct Metafile {
    /// Its path below the root; empty for the root.
    pub(super) path: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) inode: Inode,
}

/// Returns all files of the tree that can be reached from its root, directories before their contents. A file with several
/// names is returned once per name.
pub(super) fn walk(inodes: &Inodes<'_>) -> Vec<Metafile> {
    let mut found = Vec::new();
    diagnose::quietly(inodes, |quiet| found = walk_quietly(quiet));
    found
}

fn walk_quietly(quiet: &Inodes<'_>) -> Vec<Metafile> {
    let (mut found, mut seen): (Vec<Metafile>, _) = (Vec::new(), HashSet::new());
    let visit = |path: Vec<u8>, ino: Ino| {
        let is_used = matches!(quiet.chunks.find(ino), InodeState::Used(_));
        let inode = is_used.then(|| names::read_inode(quiet.ctx, ino))??;
        Some(Metafile { path, ino, inode })
    };
    let Some(root) = root(quiet.ctx) else { return found };
    seen.insert(root);
    found.extend(visit(Vec::new(), root));
    let mut at = 0;
    while at < found.len() {
        let dir = &found[at];
        at += 1;
        let level = dir.path.split(|byte| *byte == b'/').count();
        if !dir.inode.is_dir() || level >= LEVELS_MAX {
            continue;
        }
        let mut children = Vec::new();
        names::for_each(quiet, dir.ino, |_, name, ino| {
            children.push((name.to_vec(), ino));
            children.len() < FILES_MAX
        });
        let parent = dir.path.clone();
        for (name, ino) in children {
            if found.len() >= FILES_MAX {
                break;
            }
            let path = path_in(&parent, &name);
            let is_new = |file: &Metafile| !file.inode.is_dir() || seen.insert(ino);
            found.extend(visit(path, ino).filter(is_new));
        }
    }
    found
}

/// Returns the quota files in the tree, by kind.
pub(super) fn quota_files(inodes: &Inodes<'_>) -> [Option<Ino>; 3] {
    let files = walk(inodes);
    QuotaKind::ALL.map(|kind| {
        let path = quota_path(kind);
        files.iter().find(|file| file.path == path.as_bytes()).map(|file| file.ino)
    })
}

/// Checks the tree after all inodes were visited.
pub(super) fn check(inodes: &Inodes<'_>) {
    let (ctx, links) = (inodes.ctx, inodes.links);
    let (Some(root), Some(trees)) = (root(ctx), links.trees()) else { return };
    let is_root = match inodes.chunks.find(root) {
        InodeState::Used(number) => {
            links.kind(number) == Some(DIRECTORY)
                && !links.is_unlinked(number)
                && trees.marked.contains(number.into())
        }
        InodeState::Unknown => true,
        _ => false,
    };
    if !is_root {
        ctx.found(Finding::new(codes::METADIR_ROOT).of_inode(root.0));
    }
    for number in 0..inodes.chunks.inodes() as u32 {
        check_tree(inodes, trees, root, number);
    }
    let files = walk(inodes);
    // Below a directory with an unknown name, all names are unknown.
    let is_lost = |path: &[u8]| {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        ends.map(|end| &path[..end]).any(|dir| MetafileType::of_path(dir).is_none())
    };
    for file in files.iter().filter(|file| !is_lost(&file.path)) {
        check_file(ctx, file);
    }
}

/// Checks that an inode has the flag if and only if its names are in the tree.
fn check_tree(inodes: &Inodes<'_>, trees: &Trees, root: Ino, number: u32) {
    let is_in = |set: &BitSet| set.contains(number.into());
    let is_marked = is_in(&trees.marked);
    let ino = inodes.chunks.ino(number);
    let detail = match is_marked {
        true if is_in(&trees.named_outside) => "a directory outside of the tree refers to it",
        true if ino == inodes.links.root() => "it is the root directory",
        false if is_in(&trees.named_inside) && ino != root => {
            "a directory of the tree refers to it"
        }
        _ => return,
    };
    if inodes.links.kind(number).is_some() {
        let finding = Finding::new(codes::METADIR_FLAG).of_inode(ino.0).field("di_flags2");
        let shown = |is_set| if is_set { "the metadata flag" } else { "no metadata flag" };
        inodes.ctx.found(finding.mismatch(shown(!is_marked), shown(is_marked)).detail(detail));
    }
}

/// Checks that a file has the type that its path requires.
fn check_file(ctx: &Context<'_>, file: &Metafile) {
    let found = file.inode.metafile_type();
    let finding = || {
        let finding = Finding::new(codes::METADIR_FILE).of_inode(file.ino.0).field("di_metatype");
        finding.detail(format!("/{}", String::from_utf8_lossy(&file.path)))
    };
    if !file.inode.is_metadata() {
        return;
    }
    let groups = ctx.sb.raw.rgcount.get();
    match MetafileType::of_path_with_groups(&file.path, groups) {
        Some(expected) if expected != found => {
            ctx.found(finding().mismatch(expected.name(), found.name()));
        }
        None => {
            ctx.found(finding().mismatch("a file that kernels know", found.name()));
        }
        _ => {}
    }
    let group = group_of_path(&file.path).filter(|group| *group < groups);
    if group.is_some_and(|group| group != file.inode.projid()) {
        let number = Finding::new(codes::METADIR_FILE).of_inode(file.ino.0).field("di_projid");
        let detail = format!("/{}", String::from_utf8_lossy(&file.path));
        let expected = group.unwrap_or_default();
        ctx.found(number.detail(detail).mismatch(expected, file.inode.projid()));
    }
    let has_quota = ctx.geometry.features.version_bits.contains(Version::QUOTA);
    if found.is_quota() && !has_quota {
        let finding = Finding::new(codes::SUPERBLOCK_FIELD).in_group(0_u64).field("sb_versionnum");
        ctx.found(finding.mismatch("the quota flag", "quota files without it"));
    }
}
