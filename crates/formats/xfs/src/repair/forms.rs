//! Repairs types and fork formats of inodes: invalid values are derived from the contents of the forks.

use vfs::{FileType, Ino};

use super::fields::is_special;
use super::inode::{Mapped, Repairer};
use super::map::{self, ExtentSpace};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::attr::shortform;
use crate::format::btree::{LEVELS_MAX, ROOT_HEADER_SIZE, TreeShape};
use crate::format::bytes::{be32, be64};
use crate::format::dir::short::Short;
use crate::format::dir::{DirLayout, magic};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::symlink;

/// Size of a data fork with a device number, in bytes.
const DEVICE_FORK: usize = 8;
/// Minimum size of another data fork next to attributes, in bytes: the minimum root of a tree
/// (`XFS_BMDR_SPACE_CALC(MINDBTPTRS)`, rounded up).
const DATA_FORK_MIN: usize = 56;
/// Byte offset of `di_format` and of `di_aformat`.
const FORMAT_OFFSET: usize = 5;
const ATTR_FORMAT_OFFSET: usize = 83;

impl Repairer<'_, '_> {
    /// Returns the type of an inode with blocks, according to the first one.
    pub(super) fn type_of(&self, ino: Ino, extents: &[Extent]) -> FileType {
        let geometry = self.geometry();
        let Some(first) = extents.first() else { return FileType::Regular };
        let mut data = vec![0; geometry.block_size()];
        if !self.view.read(geometry.device_block(first.start), &mut data) {
            return FileType::Regular;
        }
        let kind = be32(&data, 0);
        let is_own = |at: usize| !geometry.features.crc() || be64(&data, at) == ino.0;
        if (magic::BLOCK.contains(&kind) || magic::DATA.contains(&kind)) && is_own(40) {
            FileType::Directory
        } else if kind == symlink::MAGIC && is_own(32) {
            FileType::Symlink
        } else {
            FileType::Regular
        }
    }

    /// Returns the size of a file with these extents.
    pub(super) fn size_of(&self, file_type: FileType, extents: &[Extent]) -> u64 {
        let geometry = self.geometry();
        let end = match file_type {
            FileType::Directory => {
                let leaves = self.view.layout().leaf_first();
                let data = extents.iter().filter(|extent| extent.offset < leaves);
                data.map(|extent| extent.end().0.min(leaves.0)).max()
            }
            _ => extents.last().map(|extent| extent.end().0),
        };
        let size = end.unwrap_or_default() << geometry.block_log;
        match file_type {
            FileType::Symlink => size.min(symlink::TARGET_LEN_MAX as u64),
            _ => size.min(i64::MAX as u64),
        }
    }

    /// Guesses the type of an inode whose mode has none, from its data fork.
    pub(super) fn guess_type(&self, inode: &Inode, ino: Ino, mapped: &Mapped) -> Option<FileType> {
        let geometry = self.geometry();
        let bytes = inode.as_bytes();
        let size = usize::try_from(inode.size()).ok();
        match bytes[FORMAT_OFFSET] {
            1 => {
                let contents = inode.fork(Fork::Data).get(..size?)?;
                if Short::parse(self.view.layout(), &geometry, contents).is_ok() {
                    return Some(FileType::Directory);
                }
                (!contents.is_empty() && !contents.contains(&0)).then_some(FileType::Symlink)
            }
            2 | 3 => {
                // Read like that of a file, whose blocks may have any contents.
                let mut as_file = inode.clone();
                as_file.set_mode(FileType::Regular, 0);
                let space = ExtentSpace::of(&geometry, &as_file, Fork::Data);
                let mut extents = mapped.extents(&geometry, Fork::Data, space);
                if extents.is_empty() {
                    extents = map::read(self.view, ino, &as_file, Fork::Data).extents;
                }
                let is_in_use = inode.nlink() > 0 || !extents.is_empty() || inode.size() > 0;
                if matches!(space, ExtentSpace::Realtime(_)) {
                    return is_in_use.then_some(FileType::Regular);
                }
                is_in_use.then(|| self.type_of(ino, &extents))
            }
            _ => None,
        }
    }

    /// Finds the boundary between the forks and the format of the attribute fork, if the stored values are invalid.
    pub(super) fn boundary(&self, inode: &mut Inode, file_type: FileType) {
        self.find_boundary(inode, file_type);
        make_room(inode, file_type);
    }

    fn find_boundary(&self, inode: &mut Inode, file_type: FileType) {
        let geometry = self.geometry();
        let literal = inode.literal_size();
        let said = (inode.forkoff_bytes(), inode.as_bytes()[ATTR_FORMAT_OFFSET]);
        let is_special = is_special(file_type);
        let can_be = |at: usize| at < literal && (!is_special || at == DEVICE_FORK);
        let has_none = said.0 == 0 && said.1 == 2 && inode.extents(Fork::Attr) == 0;
        if has_none || said.0 > 0 && can_be(said.0) && makes_sense(&geometry, inode) {
            return;
        }
        let places = std::iter::once(said.0).chain((8..literal).step_by(8));
        // The data fork contains lists that look like those of attributes.
        let first = if said.0 == 0 { data_end(inode) } else { 0 };
        for at in places.filter(|at| *at > 0 && *at >= first && can_be(*at)) {
            for format in [said.1, 1, 2, 3] {
                let mut other = inode.clone();
                other.set_forkoff_bytes(at);
                other.as_mut_bytes()[ATTR_FORMAT_OFFSET] = format;
                let has_some = format == 1 || other.extents(Fork::Attr) > 0;
                if has_some && makes_sense(&geometry, &other) {
                    *inode = other;
                    return;
                }
            }
        }
        // If the boundary is plausible, as many attributes after it as possible are read later.
        if said.0 > 0 && can_be(said.0) && said.1 == 1 {
            return;
        }
        remove_attributes(inode);
    }

    /// Sets a format of the data fork that fits the type.
    pub(super) fn data_form(
        &self,
        inode: &mut Inode,
        file_type: FileType,
        mapped: &Mapped,
    ) -> Option<()> {
        let geometry = self.geometry();
        if is_special(file_type) {
            inode.set_format(Fork::Data, ForkFormat::Device);
            inode.set_size(0);
            return inode.set_extents(Fork::Data, 0).then_some(());
        }
        if inode.is_metadata() && inode.metafile_type().shape().is_some() {
            // The tree is rebuilt from the extents of files.
            empty_tree(inode);
            return Some(());
        }
        let said = inode.as_bytes()[FORMAT_OFFSET];
        let fitting: &[ForkFormat] = match file_type {
            FileType::Regular => &[ForkFormat::Extents, ForkFormat::Btree],
            FileType::Directory => &[ForkFormat::Local, ForkFormat::Extents, ForkFormat::Btree],
            _ => &[ForkFormat::Local, ForkFormat::Extents],
        };
        let fits = fitting.iter().any(|format| *format as u8 == said);
        if !(fits && self.is_data_right(inode, file_type, &geometry)) {
            let right = fitting.iter().find(|format| {
                let mut other = inode.clone();
                other.set_format(Fork::Data, **format);
                // An empty list is not evidence for its format.
                let is_empty = **format == ForkFormat::Extents && other.extents(Fork::Data) == 0;
                !is_empty && self.is_data_right(&other, file_type, &geometry)
            });
            match right {
                Some(format) => inode.set_format(Fork::Data, *format),
                None if fits => {}
                None if file_type == FileType::Regular || !mapped.is_empty() => {
                    inode.set_format(Fork::Data, ForkFormat::Extents);
                    let _ = inode.set_extents(Fork::Data, 0);
                }
                None => return None,
            }
        }
        let room = inode.fork(Fork::Data).len() as u64;
        if inode.format() == ForkFormat::Local {
            if file_type == FileType::Directory {
                let size = inode.size();
                if size > room || size == 0 {
                    inode.set_size(short_end(self.view.layout(), inode.fork(Fork::Data)));
                }
            }
            return inode.set_extents(Fork::Data, 0).then_some(());
        }
        if file_type != FileType::Regular && inode.size() == 0 || inode.size() > i64::MAX as u64 {
            let space = ExtentSpace::of(&geometry, inode, Fork::Data);
            let extents = mapped.extents(&geometry, Fork::Data, space);
            let size = self.size_of(file_type, &extents);
            inode.set_size(size.max(geometry.block_size() as u64));
        }
        Some(())
    }

    pub(super) fn is_data_right(
        &self,
        inode: &Inode,
        file_type: FileType,
        geometry: &Geometry,
    ) -> bool {
        let (fork, size) = (inode.fork(Fork::Data), inode.size());
        match inode.format() {
            ForkFormat::Local => {
                let Some(contents) = fork.get(..usize::try_from(size).unwrap_or(usize::MAX)) else {
                    return false;
                };
                match file_type {
                    FileType::Directory => {
                        Short::parse(self.view.layout(), geometry, contents).is_ok()
                    }
                    _ => !contents.is_empty() && !contents.contains(&0),
                }
            }
            ForkFormat::Extents => {
                let space = ExtentSpace::of(geometry, inode, Fork::Data);
                is_list(&space, fork, inode.extents(Fork::Data))
            }
            ForkFormat::Btree => is_root(geometry, fork),
            // The tree of a realtime group is not an ordinary file.
            ForkFormat::Device | ForkFormat::MetaBtree => false,
        }
    }
}

/// Makes an inode the root of an empty tree of a realtime group.
pub(super) fn empty_tree(inode: &mut Inode) {
    inode.set_format(Fork::Data, ForkFormat::MetaBtree);
    inode.fork_mut(Fork::Data).fill(0);
    let _ = inode.set_extents(Fork::Data, 0);
    inode.set_size(0);
}

/// Moves the attributes of an inode that was a device. The fork boundary of a device leaves no room for other data
/// forks. Attributes that cannot be moved are lost.
fn make_room(inode: &mut Inode, file_type: FileType) {
    let boundary = inode.forkoff_bytes();
    if is_special(file_type) || !(1..DATA_FORK_MIN).contains(&boundary) {
        return;
    }
    let attributes = inode.fork(Fork::Attr).to_vec();
    let len = match inode.as_bytes()[ATTR_FORMAT_OFFSET] {
        1 => shortform::total(&attributes).ok(),
        2 => usize::try_from(inode.extents(Fork::Attr)).ok().map(|count| count * EXTENT_SIZE),
        _ => None,
    };
    let room = inode.literal_size() - DATA_FORK_MIN;
    let Some(len) = len.filter(|len| (1..=room.min(attributes.len())).contains(len)) else {
        return remove_attributes(inode);
    };
    inode.set_forkoff_bytes(DATA_FORK_MIN);
    inode.fork_mut(Fork::Data)[boundary..].fill(0);
    let fork = inode.fork_mut(Fork::Attr);
    fork[..len].copy_from_slice(&attributes[..len]);
    fork[len..].fill(0);
}

fn remove_attributes(inode: &mut Inode) {
    let bytes = inode.as_mut_bytes();
    bytes[82] = 0;
    bytes[ATTR_FORMAT_OFFSET] = ForkFormat::Extents as u8;
    let _ = inode.set_extents(Fork::Attr, 0);
}

/// Returns the number of bytes in the data fork that its list of extents or its contents use; 0 if they do not fit.
fn data_end(inode: &Inode) -> usize {
    let end = match inode.format() {
        ForkFormat::Extents => inode.extents(Fork::Data).saturating_mul(EXTENT_SIZE as u64),
        ForkFormat::Local => inode.size(),
        // The root of a tree takes the whole fork.
        ForkFormat::Btree | ForkFormat::MetaBtree => inode.literal_size() as u64,
        ForkFormat::Device => 0,
    };
    usize::try_from(end).ok().filter(|end| *end <= inode.literal_size()).unwrap_or(0)
}

/// Returns whether the bytes after the boundary can be attributes in the stored format.
fn makes_sense(geometry: &Geometry, inode: &Inode) -> bool {
    let fork = inode.fork(Fork::Attr);
    match inode.as_bytes()[ATTR_FORMAT_OFFSET] {
        1 => {
            let Ok(mut entries) = shortform::entries(fork) else { return false };
            let mut end = shortform::HEADER_SIZE;
            let are_right = entries.all(|entry| entry.map(|entry| end += entry.size()).is_ok());
            are_right && shortform::total(fork).is_ok_and(|total| total == end)
        }
        2 => is_list(&ExtentSpace::Groups(geometry), fork, inode.extents(Fork::Attr)),
        3 => is_root(geometry, fork),
        _ => false,
    }
}

/// Returns whether a fork can be a list of `count` extents.
fn is_list(space: &ExtentSpace<'_>, fork: &[u8], count: u64) -> bool {
    let mut end = FileBlock(0);
    count <= (fork.len() / EXTENT_SIZE) as u64
        && fork.chunks_exact(EXTENT_SIZE).take(count as usize).all(|record| {
            let extent = Extent::parse(record);
            let is_right = space.is_valid(&extent) && extent.offset >= end;
            end = extent.end();
            is_right
        })
}

/// Returns whether a fork can be the root of a tree.
fn is_root(geometry: &Geometry, fork: &[u8]) -> bool {
    if fork.len() < ROOT_HEADER_SIZE {
        return false;
    }
    let area = TreeShape::BMBT.root_area(fork.len());
    let count = area.count(fork);
    (1..LEVELS_MAX).contains(&usize::from(area.level(fork)))
        && (1..=area.max).contains(&count)
        && (0..count).all(|at| geometry.contains(FsBlock(area.pointer(fork, at)), 1))
}

/// Returns the end of the entries of a shortform directory.
fn short_end(layout: &DirLayout, fork: &[u8]) -> u64 {
    let (Some(&count), Some(&wide)) = (fork.first(), fork.get(1)) else { return 0 };
    let ino_size = if wide > 0 { 8 } else { 4 };
    let mut at = 2 + ino_size;
    for _ in 0..count {
        let Some(&len) = fork.get(at) else { break };
        let end = at + 3 + usize::from(len) + usize::from(layout.ftype) + ino_size;
        if len == 0 || end > fork.len() {
            break;
        }
        at = end;
    }
    at.min(fork.len()) as u64
}
