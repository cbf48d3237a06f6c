//! ATTRI: sets, removes or replaces an attribute or a parent pointer.
//!
//! The regions after the format: the name; for a replaced parent pointer the new name; the value if it is not empty;
//! for a replaced parent pointer the new value. Each is padded to four bytes.

use engine::Corruption;
use vfs::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Intent;
use crate::format::attr::leaf::{PARENT_SIZE, parent_of};
use crate::format::attr::{NAME_LEN_MAX, VALUE_LEN_MAX, flags};
use crate::format::features::{Incompat, LogIncompat};
use crate::format::geometry::Geometry;

/// The format of an ATTRI (`xfs_attri_log_format`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAttri {
    item_type: U16,
    /// Number of regions of the item, including this one.
    size: U16,
    /// Generation of the inode, for parent pointers.
    igen: U32,
    id: U64,
    ino: U64,
    op_flags: U32,
    /// Length of the name. For a replaced parent pointer, the length of the old name; that of the new one is in
    /// `new_name_len`.
    name_len: U16,
    /// The upper half of `name_len` otherwise.
    new_name_len: U16,
    value_len: U32,
    attr_filter: U32,
}

const _: () = assert!(size_of::<RawAttri>() == 40);
const _: () = assert!(std::mem::offset_of!(RawAttri, attr_filter) == 36);

/// Known values of `op_flags` (`XFS_ATTRI_OP_FLAGS_*`).
mod op {
    pub(super) const SET: u32 = 1;
    pub(super) const REMOVE: u32 = 2;
    pub(super) const REPLACE: u32 = 3;
    pub(super) const PARENT_SET: u32 = 4;
    pub(super) const PARENT_REMOVE: u32 = 5;
    pub(super) const PARENT_REPLACE: u32 = 6;
}

/// Alignment of regions.
const ALIGNMENT: usize = 4;

/// A change of an inode's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeChange {
    /// The inode.
    pub ino: Ino,
    /// Its generation. Checked for changes of parent pointers.
    pub generation: u32,
    /// The change.
    pub work: AttributeWork,
}

/// A parent pointer: the directory, its generation, and the name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentLink {
    /// The directory.
    pub dir: Ino,
    /// Its generation.
    pub generation: u32,
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// A change of attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeWork {
    /// Sets the value of an attribute, which may exist.
    Set {
        /// Bits of `flags::NAMESPACE`.
        namespace: u8,
        /// The name in it.
        name: Vec<u8>,
        /// The value, at most 64 KiB.
        value: Vec<u8>,
    },
    /// Removes an attribute.
    Remove {
        /// See `Set`.
        namespace: u8,
        /// See `Set`.
        name: Vec<u8>,
    },
    /// Adds a parent pointer.
    ParentSet(ParentLink),
    /// Removes a parent pointer.
    ParentRemove(ParentLink),
    /// Replaces a parent pointer by another.
    ParentReplace {
        /// The one to be removed.
        old: ParentLink,
        /// The one to be added.
        new: ParentLink,
    },
}

/// The regions after the format, to be read in order.
struct Rest<'i> {
    intent: &'i Intent,
    regions: std::slice::Iter<'i, Vec<u8>>,
}

impl<'i> Rest<'i> {
    /// Returns the next region, which must have `len` bytes before its padding.
    fn take(&mut self, what: &'static str, len: usize) -> Result<&'i [u8], Corruption> {
        let region = self.regions.next();
        let fitting = region.filter(|region| region.len() == len.next_multiple_of(ALIGNMENT));
        fitting.map(|region| &region[..len]).ok_or_else(|| {
            let found = region.map_or_else(|| "none".to_owned(), |r| r.len().to_string());
            self.intent.damage(format!("length of its {what}")).mismatch(len, found)
        })
    }

    fn name(&mut self, len: usize, is_entry: bool) -> Result<&'i [u8], Corruption> {
        if len == 0 || len > NAME_LEN_MAX {
            let expected = format_args!("1 to {NAME_LEN_MAX} bytes");
            return Err(self.intent.damage("length of a name").mismatch(expected, len));
        }
        let name = self.take("name", len)?;
        if name.contains(&0) || is_entry && name.contains(&b'/') {
            return Err(self.intent.damage("an invalid name"));
        }
        Ok(name)
    }

    fn link(&mut self, geometry: &Geometry, name: &[u8]) -> Result<ParentLink, Corruption> {
        let value = self.take("value", PARENT_SIZE)?;
        let (dir, generation) = parent_of(value).unwrap_or_default();
        self.intent.check_ino(geometry, Ino(dir))?;
        Ok(ParentLink { dir: Ino(dir), generation, name: name.to_vec() })
    }
}

impl Intent {
    pub(super) fn attribute_work(
        &self,
        geometry: &Geometry,
    ) -> Result<AttributeChange, Corruption> {
        let format = self.regions.first().map(Vec::as_slice).unwrap_or_default();
        let raw = RawAttri::ref_from_bytes(format)
            .map_err(|_| self.damage("length").mismatch(size_of::<RawAttri>(), format.len()))?;
        if usize::from(raw.size.get()) != self.regions.len() {
            return Err(self.damage("regions").mismatch(raw.size, self.regions.len()));
        }
        let ino = Ino(raw.ino.get());
        self.check_ino(geometry, ino)?;
        let mut rest = Rest { intent: self, regions: self.regions[1..].iter() };
        let work = match raw.op_flags.get() {
            op::SET | op::REPLACE | op::REMOVE => self.plain_work(geometry, raw, &mut rest)?,
            op::PARENT_SET | op::PARENT_REMOVE | op::PARENT_REPLACE => {
                self.parent_work(geometry, raw, &mut rest)?
            }
            other => {
                let damage = self.damage("unknown operation");
                return Err(damage.mismatch("1 to 6", format_args!("{other:#x}")));
            }
        };
        if rest.regions.next().is_some() {
            return Err(self.damage("more regions than it needs"));
        }
        Ok(AttributeChange { ino, generation: raw.igen.get(), work })
    }

    /// Returns the namespace in the filter. For a change in progress, the filter includes the flag for incomplete
    /// entries.
    fn namespace(&self, raw: &RawAttri) -> Result<u8, Corruption> {
        let filter = raw.attr_filter.get();
        let known = flags::NAMESPACE | flags::INCOMPLETE;
        let namespace = filter as u8 & flags::NAMESPACE;
        if filter & !u32::from(known) != 0 || namespace.count_ones() > 1 {
            let damage = self.damage("namespace");
            return Err(damage.mismatch("one namespace", format_args!("{filter:#x}")));
        }
        Ok(namespace)
    }

    fn plain_work(
        &self,
        geometry: &Geometry,
        raw: &RawAttri,
        rest: &mut Rest<'_>,
    ) -> Result<AttributeWork, Corruption> {
        if !geometry.features.log_incompat.contains(LogIncompat::XATTRS) {
            return Err(self.damage("the superblock has no feature bit for such items"));
        }
        let namespace = self.namespace(raw)?;
        if namespace == flags::PARENT {
            return Err(self.damage("a parent pointer set as an attribute"));
        }
        let name_len = u32::from(raw.new_name_len.get()) << 16 | u32::from(raw.name_len.get());
        let name = rest.name(name_len as usize, false)?.to_vec();
        let value_len = raw.value_len.get() as usize;
        let is_removal = raw.op_flags.get() == op::REMOVE;
        let len_max = if is_removal { 0 } else { VALUE_LEN_MAX };
        if value_len > len_max {
            let expected = format_args!("at most {len_max} bytes");
            return Err(self.damage("length of a value").mismatch(expected, value_len));
        }
        if is_removal {
            return Ok(AttributeWork::Remove { namespace, name });
        }
        let value = if value_len > 0 { rest.take("value", value_len)? } else { &[] };
        Ok(AttributeWork::Set { namespace, name, value: value.to_vec() })
    }

    fn parent_work(
        &self,
        geometry: &Geometry,
        raw: &RawAttri,
        rest: &mut Rest<'_>,
    ) -> Result<AttributeWork, Corruption> {
        if !geometry.features.incompat(Incompat::PARENT) {
            return Err(self.damage("the file system has no parent pointers"));
        }
        if self.namespace(raw)? != flags::PARENT {
            return Err(self.damage("a parent pointer in another namespace"));
        }
        if raw.value_len.get() as usize != PARENT_SIZE {
            return Err(self.damage("length of a value").mismatch(PARENT_SIZE, raw.value_len));
        }
        let is_replaced = raw.op_flags.get() == op::PARENT_REPLACE;
        let name = rest.name(raw.name_len.get().into(), true)?;
        let new_len = usize::from(raw.new_name_len.get());
        if !is_replaced {
            if new_len != 0 {
                return Err(self.damage("length of a name").mismatch("at most 255 bytes", new_len));
            }
            let link = rest.link(geometry, name)?;
            return Ok(match raw.op_flags.get() {
                op::PARENT_SET => AttributeWork::ParentSet(link),
                _ => AttributeWork::ParentRemove(link),
            });
        }
        let new_name = rest.name(new_len, true)?;
        let old = rest.link(geometry, name)?;
        let new = rest.link(geometry, new_name)?;
        Ok(AttributeWork::ParentReplace { old, new })
    }
}

/// Intents as the kernel writes them.
#[cfg(test)]
impl Intent {
    /// Returns an intent to change attributes.
    pub(crate) fn attribute(id: u64, change: &AttributeChange) -> Self {
        use crate::format::attr::leaf::parent_value;
        use crate::format::log::item::ItemType;

        let value_of = |link: &ParentLink| parent_value(link.dir.0, link.generation).to_vec();
        let (op, namespace, parts) = match &change.work {
            AttributeWork::Set { namespace, name, value } => {
                (op::SET, *namespace, vec![name.clone(), value.clone()])
            }
            AttributeWork::Remove { namespace, name } => {
                (op::REMOVE, *namespace, vec![name.clone()])
            }
            AttributeWork::ParentSet(link) => {
                (op::PARENT_SET, flags::PARENT, vec![link.name.clone(), value_of(link)])
            }
            AttributeWork::ParentRemove(link) => {
                (op::PARENT_REMOVE, flags::PARENT, vec![link.name.clone(), value_of(link)])
            }
            AttributeWork::ParentReplace { old, new } => {
                let parts = [old.name.clone(), new.name.clone(), value_of(old), value_of(new)];
                (op::PARENT_REPLACE, flags::PARENT, parts.to_vec())
            }
        };
        let new_name_len = if op == op::PARENT_REPLACE { parts[1].len() } else { 0 };
        let value_len = if parts.len() > 1 { parts[parts.len() - 1].len() } else { 0 };
        let padded = |mut part: Vec<u8>| {
            part.resize(part.len().next_multiple_of(ALIGNMENT), 0);
            part
        };
        let name_len = parts[0].len();
        let filled = parts.into_iter().filter(|part| !part.is_empty());
        let mut regions = vec![Vec::new()];
        regions.extend(filled.map(padded));
        let raw = RawAttri {
            item_type: (ItemType::Attri as u16).into(),
            size: (regions.len() as u16).into(),
            igen: change.generation.into(),
            id: id.into(),
            ino: change.ino.0.into(),
            op_flags: op.into(),
            name_len: (name_len as u16).into(),
            new_name_len: (new_name_len as u16).into(),
            value_len: (value_len as u32).into(),
            attr_filter: u32::from(namespace).into(),
        };
        regions[0] = raw.as_bytes().to_vec();
        Self { id, item: ItemType::Attri, regions }
    }
}
