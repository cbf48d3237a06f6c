//! Compares the contents of a repaired image with those before the damage.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use disk::MemoryDevice;
use testkit::fs_tree::{FsTree, Inode, Rules};
use vfs::{FileSystem, Ino};
use xfs::{OpenOptions, Xfs};

use super::RepairSample;
use crate::common::layout::Structure;

/// The tree of a valid image.
pub(super) struct Kept(FsTree);

impl Kept {
    pub(super) fn of(device: &MemoryDevice) -> Self {
        Self(tree(device.fork()).expect("a sound image").0)
    }

    /// Compares with a repaired image. Everything that does not belong to inodes in `spoilt` must be unchanged; if
    /// there are none, names, too.
    ///
    /// # Errors
    /// The differences.
    pub(super) fn check(
        &self,
        image: &RepairSample,
        device: MemoryDevice,
        spoilt: &[Range<usize>],
    ) -> Result<(), String> {
        let owners: HashSet<Ino> = spoilt.iter().flat_map(|range| owners(image, range)).collect();
        let (found, lost) = tree(device)?;
        if owners.is_empty() {
            let differences = self.0.differences(&found, Rules::default());
            return match differences.is_empty() {
                true => Ok(()),
                false => Err(differences.iter().take(5).cloned().collect::<Vec<_>>().join("; ")),
            };
        }
        let by_ino = |tree: &FsTree| -> BTreeMap<Ino, Inode> {
            tree.inodes.iter().map(|inode| (inode.attributes.ino, inode.clone())).collect()
        };
        let mut after = by_ino(&found);
        after.extend(lost.iter().flat_map(by_ino));
        for (ino, before) in by_ino(&self.0) {
            if owners.contains(&ino) {
                continue;
            }
            let path = self.0.paths_of(ino).next().unwrap_or_default().escape_ascii().to_string();
            let Some(inode) = after.get(&ino) else {
                return Err(format!("inode {ino} ({path}) is gone"));
            };
            let is_same = before.contents == inode.contents
                && before.xattrs == inode.xattrs
                && before.target == inode.target
                && before.attributes.file_type == inode.attributes.file_type;
            if !is_same {
                return Err(format!("inode {ino} ({path}) is another"));
            }
        }
        Ok(())
    }
}

/// Returns the trees in an image: from the root, and in `lost+found`.
fn tree(device: MemoryDevice) -> Result<(FsTree, Option<FsTree>), String> {
    // Opened writable it has a cache, so blocks are verified only once. Version 4 is read-only.
    let (device, options) = (Arc::new(device), OpenOptions::default());
    let fs = Xfs::open_writable(device.clone(), &options).or_else(|_| Xfs::open(device, &options));
    let fs = fs.map_err(|error| error.to_string())?;
    let lost = match fs.lookup(fs.root(), b"lost+found") {
        Ok(ino) => Some(FsTree::below(&fs, ino)?),
        Err(_) => None,
    };
    Ok((FsTree::of(&fs)?, lost))
}

/// Returns the inodes that own the structures in a range.
fn owners(image: &RepairSample, range: &Range<usize>) -> Vec<Ino> {
    let owner = |structure: &Structure| {
        let bytes = &image.bytes[structure.start..structure.start + structure.len];
        let at = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let owner = match &bytes[..4] {
            [b'I', b'N', ..] => at(152),
            _ if is_of_group(bytes) => return None,
            b"BMA3" => at(56),
            b"XDB3" | b"XDD3" | b"XDF3" => at(40),
            b"XSLM" | b"XARM" => at(32),
            _ => at(48),
        };
        Some(Ino(owner))
    };
    let is_in = |s: &&Structure| s.start < range.end && range.start < s.start + s.len;
    image.layout.structures.iter().filter(is_in).filter_map(owner).collect()
}

/// Returns whether a structure is a superblock, or a header or tree of a group.
pub(super) fn is_of_group(bytes: &[u8]) -> bool {
    matches!(
        &bytes[..4],
        b"XFSB"
            | b"XAGF"
            | b"XAGI"
            | b"XAFL"
            | b"AB3B"
            | b"AB3C"
            | b"IAB3"
            | b"FIB3"
            | b"RMB3"
            | b"R3FC"
    )
}
