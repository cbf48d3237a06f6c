//! State of each inode in use, 8 bytes per inode.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use vfs::{FileType, Ino};

use crate::format::address::Group;
use crate::format::dirent::file_type_code;
use crate::format::geometry::Geometry;

/// Bits of [`InodeState::facts`]: the lowest three are the type code of directory entries.
const TYPE: u16 = 7;
const USED: u16 = 1 << 3;
/// It stores the value of an attribute.
pub(super) const VALUE: u16 = 1 << 4;
/// It belongs to the file system itself and must not have a name.
pub(super) const HIDDEN: u16 = 1 << 5;
/// It is in use as an orphan.
pub(super) const ORPHAN: u16 = 1 << 6;
/// It is a directory with an index.
pub(super) const INDEXED: u16 = 1 << 7;
/// Its contents or names are encrypted.
pub(super) const ENCRYPTED: u16 = 1 << 8;

const _: () = assert!(size_of::<InodeState>() == 8);

/// State of an inode.
#[derive(Debug, Default)]
pub(super) struct InodeState {
    /// Its link count minus the names found; wraps around.
    left: AtomicU32,
    facts: u16,
    links: u16,
}

impl InodeState {
    pub(super) fn new(file_type: Option<FileType>, links: u16, facts: u16) -> Self {
        let code = file_type.map_or(0, |file_type| u16::from(file_type_code(file_type)));
        Self { left: AtomicU32::new(links.into()), facts: USED | code | facts, links }
    }

    pub(super) const fn is_used(&self) -> bool {
        self.facts & USED != 0
    }

    pub(super) const fn has(&self, facts: u16) -> bool {
        self.facts & facts != 0
    }

    /// Returns the type code of directory entries; 0 for an invalid mode.
    pub(super) const fn type_code(&self) -> u8 {
        (self.facts & TYPE) as u8
    }

    pub(super) const fn is_dir(&self) -> bool {
        self.type_code() == file_type_code(FileType::Directory)
    }

    /// Returns whether it is a regular file, a directory or a symbolic link.
    pub(super) fn has_contents(&self) -> bool {
        let of_contents = [FileType::Regular, FileType::Directory, FileType::Symlink];
        of_contents.iter().any(|file_type| file_type_code(*file_type) == self.type_code())
    }

    pub(super) const fn links(&self) -> u16 {
        self.links
    }

    /// Returns whether it was removed while it was open, so that recovery frees it.
    pub(super) const fn is_removed(&self) -> bool {
        self.has(ORPHAN) && self.links == 0
    }

    /// Counts a name.
    pub(super) fn count_name(&self) {
        self.left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of names found.
    pub(super) fn names(&self) -> u32 {
        u32::from(self.links).wrapping_sub(self.left.load(Ordering::Relaxed))
    }
}

/// The inodes in use of all groups.
pub(super) struct Inodes {
    groups: Vec<OnceLock<Box<[InodeState]>>>,
    geometry: Geometry,
}

impl Inodes {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let groups = std::iter::repeat_with(OnceLock::new);
        Self { groups: groups.take(geometry.groups_count as usize).collect(), geometry: *geometry }
    }

    /// Stores the inodes of a group, up to the last one in use.
    pub(super) fn set(&self, group: Group, states: Vec<InodeState>) {
        if let Some(place) = self.groups.get(group.0 as usize) {
            let _ = place.set(states.into_boxed_slice());
        }
    }

    /// Returns the inodes of a group, up to the last one in use.
    pub(super) fn of(&self, group: Group) -> &[InodeState] {
        let states = self.groups.get(group.0 as usize).and_then(OnceLock::get);
        states.map_or(&[], |states| states)
    }

    /// Returns the state of an inode in use.
    pub(super) fn get(&self, ino: u32) -> Option<&InodeState> {
        let (group, index) = self.geometry.place_of(Ino(ino.into()))?;
        self.of(group).get(index as usize).filter(|state| state.is_used())
    }
}
