//! The contents of an image by inode and by name, for a comparison before and after a repair.

use std::collections::BTreeMap;

use ext4::{Ext4, OpenOptions};
use vfs::{FileSystem, FileType, Ino};

use crate::common::image::device;

/// Attributes and contents of an inode.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TreeInode {
    kind: FileType,
    permissions: u16,
    owner: (u32, u32),
    size: u64,
    pub(super) contents: u32,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl TreeInode {
    /// Checks whether both are the same, except for the size of a directory.
    pub(super) fn is_same(&self, now: &Self, with_xattrs: bool) -> bool {
        let is_directory = self.kind == FileType::Directory;
        self.kind == now.kind
            && self.permissions == now.permissions
            && self.owner == now.owner
            && (is_directory || self.size == now.size)
            && self.contents == now.contents
            && (!with_xattrs || self.xattrs == now.xattrs)
    }
}

/// Everything that is reachable from the root.
#[derive(Debug, Default)]
pub(super) struct ReachableTree {
    pub(super) inodes: BTreeMap<u64, TreeInode>,
    /// Inodes by directory and name.
    pub(super) names: BTreeMap<(u64, Vec<u8>), u64>,
}

/// Losses found by a comparison of trees.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Inodes that are unreachable or changed.
    pub(super) inodes: Vec<u64>,
    /// Lost names in directories that were not damaged.
    pub(super) names: Vec<(u64, String)>,
}

impl ReachableTree {
    /// Reads all of an image.
    pub(super) fn of(image: &[u8]) -> vfs::Result<Self> {
        let options = OpenOptions { norecovery: true, ..OpenOptions::default() };
        let fs = Ext4::open(device(image), &options)?;
        let mut tree = Self::default();
        let mut pending = vec![fs.root()];
        while let Some(ino) = pending.pop() {
            if tree.inodes.contains_key(&ino.0) {
                continue;
            }
            let held = hold(&fs, ino)?;
            if held.kind == FileType::Directory {
                fs.for_each_entry(ino, &mut |entry| {
                    if !matches!(entry.name, b"." | b"..") {
                        tree.names.insert((ino.0, entry.name.to_vec()), entry.ino.0);
                        pending.push(entry.ino);
                    }
                    std::ops::ControlFlow::Continue(())
                })?;
            }
            tree.inodes.insert(ino.0, held);
        }
        Ok(tree)
    }

    /// Returns what is missing in another tree, except what belongs to the damaged inode.
    pub(super) fn lost_in(&self, after: &Self, touched: Option<u64>, with_xattrs: bool) -> Lost {
        let is_kept = |(ino, before): &(&u64, &TreeInode)| {
            after.inodes.get(ino).is_some_and(|now| before.is_same(now, with_xattrs))
        };
        let others = self.inodes.iter().filter(|(ino, _)| Some(**ino) != touched);
        let inodes = others.filter(|pair| !is_kept(pair)).map(|(ino, _)| *ino).collect();
        let names = self.names.iter().filter(|((directory, name), ino)| {
            let is_touched = Some(*directory) == touched || Some(**ino) == touched;
            !is_touched && after.names.get(&(*directory, name.clone())) != Some(*ino)
        });
        let show = |((directory, name), _): (&(u64, Vec<u8>), &u64)| {
            (*directory, String::from_utf8_lossy(name).into_owned())
        };
        Lost { inodes, names: names.map(show).collect() }
    }
}

fn hold(fs: &Ext4, ino: Ino) -> vfs::Result<TreeInode> {
    let attributes = fs.attributes(ino)?;
    let mut xattrs = BTreeMap::new();
    let mut names = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
    for name in names {
        let value = fs.get_xattr(ino, &name)?;
        xattrs.insert(name, value);
    }
    let contents = match attributes.file_type {
        FileType::Regular => checksum(fs, ino, attributes.size)?,
        FileType::Symlink => crc(&fs.readlink(ino)?),
        _ => 0,
    };
    Ok(TreeInode {
        kind: attributes.file_type,
        permissions: attributes.permissions,
        owner: (attributes.uid, attributes.gid),
        size: attributes.size,
        contents,
        xattrs,
    })
}

fn crc(bytes: &[u8]) -> u32 {
    ext4::format::checksum::crc32c(u32::MAX, bytes)
}

fn checksum(fs: &Ext4, ino: Ino, size: u64) -> vfs::Result<u32> {
    /// Maximum number of bytes read per file. The rest is usually a hole.
    const READ_MAX: u64 = 4 << 20;
    let mut bytes = vec![0; size.min(READ_MAX) as usize];
    fs.read(ino, 0, &mut bytes)?;
    Ok(crc(&bytes))
}
