//! What `diskwright dump` does: shows structures of an image as they lie on disk.
//!
//! Names of fields are those of the format's documents. What is damaged is shown as far as it goes,
//! and the damage is named beside it. Nothing is replayed, and nothing is written.

mod block;
mod directory;
mod inode;
mod journal;
mod node;
mod superblock;

use std::path::Path;
use std::sync::Arc;

use blockdev::BlockDevice;
use ext4::Ext4;
use ext4::format::address::{Block, Group};
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::geometry::Geometry;
use ext4::format::group::{GroupDescriptor, GroupFlags};
use ext4::format::superblock::Superblock;
use serde::Serialize;
use vfs::path::LastLink;
use vfs::{Error as FsError, Ino, Paths};

use crate::image::{Kind, no_xfs, open_device, probe_kind};
use crate::{Error, OpenImage, Outcome, Result};

pub use node::{Fields, Node};

/// An inode, by number or by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The inode of this number.
    Number(u64),
    /// What this path leads to; a symbolic link at its end is not followed.
    Path(Vec<u8>),
}

impl Target {
    /// A number, or a path.
    pub fn parse(text: &[u8]) -> Self {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.map_or_else(|| Self::Path(text.to_vec()), Self::Number)
    }
}

/// What to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The superblock.
    Superblock,
    /// A group's descriptor.
    Group(u32),
    /// An inode.
    Inode(Target),
    /// The blocks of a directory.
    Directory(Target),
    /// A block's bytes, and what it is.
    Block(u64),
    /// The journal's superblock and the blocks of its log.
    Journal,
}

/// A structure of an image.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Dump {
    /// Its fields.
    #[serde(flatten)]
    pub fields: Fields,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl Dump {
    /// How the command ends.
    pub fn outcome(&self) -> Outcome {
        if self.problems.is_empty() { Outcome::Done } else { Outcome::Image }
    }

    fn problem(&mut self, problem: impl ToString) {
        self.problems.push(problem.to_string());
    }
}

/// Reads a structure of an image. Its journal is not replayed.
///
/// # Errors
/// If the image cannot be read or has no such structure. Damage of the structure itself is in
/// [`Dump::problems`].
pub fn dump(path: &Path, options: &OpenImage, what: &What) -> Result<Dump> {
    let device = open_device(path, options)?;
    let at = |source| Error::Image { image: path.to_owned(), source };
    if *what == What::Superblock {
        // Shown even if it is not recognised.
        return superblock::dump(&*device).map_err(at);
    }
    if probe_kind(path, &device, options)? == Kind::Xfs {
        return Err(at(no_xfs()));
    }
    let open = ext4::OpenOptions { stale: true, ..ext4::OpenOptions::default() };
    let fs = Ext4::open(device.clone(), &open).map_err(at)?;
    let volume = Volume { device, fs };
    match what {
        What::Superblock => superblock::dump(&*volume.device).map_err(at),
        What::Group(group) => volume.group(*group).map_err(at),
        What::Inode(target) => volume.inode(volume.find(target)?).map_err(at),
        What::Directory(target) => volume.directory(volume.find(target)?).map_err(at),
        What::Block(block) => volume.block(Block(*block)).map_err(at),
        What::Journal => volume.journal().map_err(at),
    }
}

/// An image to be shown.
struct Volume {
    device: Arc<dyn BlockDevice>,
    fs: Ext4,
}

impl Volume {
    fn sb(&self) -> &Superblock {
        self.fs.superblock()
    }

    fn geometry(&self) -> &Geometry {
        self.fs.geometry()
    }

    fn find(&self, target: &Target) -> Result<Ino> {
        match target {
            Target::Number(number) => Ok(Ino(*number)),
            Target::Path(path) => {
                Paths::new(&self.fs).resolve(path, LastLink::Keep).map_err(|e| Error::file(path, e))
            }
        }
    }

    /// The bytes of a block, as they are.
    fn bytes(&self, block: Block) -> vfs::Result<Vec<u8>> {
        if block.0 >= self.geometry().blocks_count {
            return Err(FsError::Invalid("there is no such block: the superblock says how many"));
        }
        let mut bytes = vec![0; self.geometry().block_size() as usize];
        self.device.read_at(self.geometry().byte_of(block), &mut bytes).map_err(FsError::Device)?;
        Ok(bytes)
    }

    /// Reads a group's descriptor: with what is wrong with it, if it can be taken for one at all.
    fn descriptor(&self, group: Group) -> vfs::Result<(Option<GroupDescriptor>, Option<String>)> {
        let (block, offset) = self.geometry().descriptor_position(group);
        let bytes = self.bytes(block)?;
        let size = usize::from(self.sb().desc_size);
        let bytes = bytes.get(offset..offset + size).unwrap_or_default();
        let damage = match GroupDescriptor::parse(bytes, self.sb(), group) {
            Ok(descriptor) => return Ok((Some(descriptor), None)),
            Err(damage) => damage.to_string(),
        };
        let mut lenient = self.sb().clone();
        lenient.features.ro_compat.remove(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM);
        Ok((GroupDescriptor::parse(bytes, &lenient, group).ok(), Some(damage)))
    }

    fn group(&self, number: u32) -> vfs::Result<Dump> {
        let geometry = self.geometry();
        if number >= geometry.groups_count {
            return Err(FsError::Invalid("there is no such group: the superblock says how many"));
        }
        let group = Group(number);
        let mut dump = Dump::default();
        let (block, offset) = geometry.descriptor_position(group);
        let fields = &mut dump.fields;
        fields.add("group", number);
        fields.add("descriptor_block", block.0);
        fields.add("descriptor_offset", offset as u64);
        fields.add("first_block", geometry.first_block(group).0);
        fields.add("blocks", geometry.blocks_in(group));
        fields.add("has_superblock", geometry.has_superblock(group));
        let (descriptor, damage) = self.descriptor(group)?;
        if let Some(d) = &descriptor {
            fields.add("block_bitmap", d.block_bitmap.0);
            fields.add("inode_bitmap", d.inode_bitmap.0);
            fields.add("inode_table", d.inode_table.0);
            fields.add("free_blocks_count", d.free_blocks);
            fields.add("free_inodes_count", d.free_inodes);
            fields.add("used_dirs_count", d.used_dirs);
            fields.add("itable_unused", d.itable_unused);
            fields.add("flags", flag_names(d.flags));
            fields.hex("block_bitmap_csum", d.block_bitmap_csum);
            fields.hex("inode_bitmap_csum", d.inode_bitmap_csum);
        }
        match damage {
            Some(damage) => dump.problem(damage),
            None if self.sb().features.group_csum() => dump.fields.add("checksum", "right"),
            None => dump.fields.add("checksum", "none"),
        }
        if let Some(d) = descriptor {
            self.bitmaps(group, &d, &mut dump)?;
        }
        Ok(dump)
    }

    /// Checks the bitmaps that a group has initialised.
    fn bitmaps(&self, group: Group, d: &GroupDescriptor, dump: &mut Dump) -> vfs::Result<()> {
        if !d.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bitmap = self.bytes(d.block_bitmap)?;
            if let Err(damage) = d.check_block_bitmap(&bitmap, self.sb(), group) {
                dump.problem(damage.at_block(d.block_bitmap.0));
            }
        }
        if !d.flags.contains(GroupFlags::INODE_UNINIT) {
            let bitmap = self.bytes(d.inode_bitmap)?;
            if let Err(damage) = d.check_inode_bitmap(&bitmap, self.sb(), group) {
                dump.problem(damage.at_block(d.inode_bitmap.0));
            }
        }
        Ok(())
    }

    /// The seed of checksums of what belongs to an inode; `None` without checksums.
    fn seed_of(&self, ino: Ino, generation: u32) -> Option<u32> {
        let sb = self.sb();
        let seed = ext4::format::checksum::inode_seed(sb.checksum_seed, ino, generation);
        sb.features.metadata_csum().then_some(seed)
    }

    fn has_filetype(&self) -> bool {
        self.sb().features.incompat(Incompat::FILETYPE)
    }
}

fn flag_names(flags: GroupFlags) -> Vec<String> {
    flags.iter_names().map(|(name, _)| name.to_owned()).collect()
}
