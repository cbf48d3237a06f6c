//! Extended attributes: stored in the inode if there is room, else in the attribute block, else (`ea_inode`) with the
//! value in a separate inode.
//!
//! - An inode's attributes change only under its lock. A block with one reference is changed in place. In a block with
//!   several references only the count changes: an inode that needs other attributes gets a copy and drops its
//!   reference (`block`).
//! - Reference counts of value inodes change only under [`ValueInodes`], taken after the inode locks and before the
//!   operation starts. This also covers the count of a block whose entries refer to value inodes: it must be known in
//!   advance whether the last reference goes, because the block's own references are then dropped too.
//! - Changes are planned before the operation (`plan`), because an operation may run several times.

mod block;
mod inline;
mod plan;
mod read;
mod release;
#[cfg(test)]
mod tests;
mod value;

use operations::Outcome;
use operations::RunOperations;
use operations::reserve::Claim;
use vfs::{Error, FileType, Ino, Result};

use crate::Ext4Core;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::flags;
use crate::format::xattr::{
    AttributeName, acl_from_linux, block_refcount, is_acl_index, set_value_inode, value_hash,
};
use crate::inode::Handle;
use crate::op::Op;
use plan::{Present, ValueLocation, XattrChange, XattrPlan, plan};

pub(crate) use read::{
    SlotTail, block, get, get_stored, list, load_value_inode, parse_slot_area, refers_back,
    slot_tail,
};
pub(crate) use value::ValueInodes;

/// Maximum length of an attribute name without its prefix, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Maximum size of a value on Linux, in bytes (`XATTR_SIZE_MAX`).
const VALUE_LEN_MAX: usize = 1 << 16;

impl Ext4Core {
    pub(crate) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.check_writable()?;
        if !self.volume.sb.features.compat(Compat::EXT_ATTR) {
            let advice = "turn the feature ext_attr on, or leave extended attributes out of the \
                          source";
            return Err(Error::unsupported("extended attributes without ext_attr", advice));
        }
        let attribute = AttributeName::from_linux(name).ok_or_else(|| {
            Error::unsupported(
                format!("the attribute namespace of {}", String::from_utf8_lossy(name)),
                "use user., trusted., security. or POSIX ACLs",
            )
        })?;
        if attribute.suffix.len() > NAME_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        if is_acl_index(attribute.index) {
            let stored = acl_from_linux(value).ok_or(Error::Invalid("not a POSIX ACL"))?;
            return self.change_attribute(ino, attribute, Some(&stored));
        }
        self.change_attribute(ino, attribute, Some(value))
    }

    pub(crate) fn remove_attribute(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        let attribute = AttributeName::from_linux(name).ok_or(Error::NoAttribute)?;
        self.change_attribute(ino, attribute, None)
    }

    fn change_attribute(
        &self,
        ino: Ino,
        name: AttributeName<'_>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load(ino)?;
        if before.has_flag(flags::EA_INODE) {
            return Err(Error::Invalid("the inode itself is the value of an attribute"));
        }
        before.protection().check_change()?;
        let values = self.attributes_guard(&[&before])?;
        let (plan, is_shared) = self.plan_change(&before, name, value)?;
        if values.is_none() && !(plan.dropped.is_empty() && plan.copied.is_empty()) {
            let problem = "a value is stored in an inode, but the feature ea_inode is off";
            return Err(before.corrupt("extended attributes", problem));
        }
        let claim = if value.is_none() { Claim::Freeing } else { Claim::Ordinary };
        let change = |op: &mut Op<'_>| {
            let mut handle = before;
            if let Some(values) = &values {
                // Drop the old references first: creating a value writes to the device at once, which must not happen
                // if these inodes are damaged.
                op.subtract_references(values, &before, &plan.dropped)?;
                op.add_references(values, &before, &plan.copied)?;
                op.store_counted_values()?;
            }
            op.apply(&mut handle, &plan, is_shared, XattrChange { name, value })
        };
        self.atomically_with(claim, change, |()| Ok(()))
    }

    /// Returns the plan, and whether other inodes share the block of `handle`.
    fn plan_change(
        &self,
        handle: &Handle,
        name: AttributeName<'_>,
        value: Option<&[u8]>,
    ) -> Result<(XattrPlan, bool)> {
        // Read the block first: it precedes inode tables in the lock order.
        let block = block(self, handle)?;
        let tail = slot_tail(self, handle)?;
        let is_shared = block.as_ref().is_some_and(|block| block_refcount(block) > 1);
        let present = Present {
            tail: &tail,
            block: block.as_deref(),
            is_shared,
            block_size: self.volume.block_size(),
            is_link: handle.inode.file_type() == Some(FileType::Symlink),
        };
        let may_be_apart = self.volume.sb.features.incompat(Incompat::EA_INODE);
        let large = value.filter(|value| may_be_apart && value.len() <= VALUE_LEN_MAX);
        let hash = large.map(|value| value_hash(self.volume.sb.checksum_seed, value));
        let plan =
            plan(present, XattrChange { name, value }, hash).map_err(|error| match error {
                Error::Corrupt(c) => Error::Corrupt(c.of_inode(handle.ino().0)),
                other => other,
            })?;
        Ok((plan, is_shared))
    }
}

impl Op<'_> {
    /// Changes an inode and its block as planned, and creates the new value.
    fn apply(
        &mut self,
        handle: &mut Handle,
        plan: &XattrPlan,
        is_shared: bool,
        change: XattrChange<'_>,
    ) -> Outcome<()> {
        let added = i64::from(plan.value_place.is_some());
        self.usage.change_values(handle.ino(), added - plan.removed.len() as i64);
        for value in &plan.removed {
            self.subtract_clusters(handle, self.value_clusters(value.size))?;
        }
        let new = match (plan.value_place, change.value) {
            (Some(place), Some(value)) => Some((place, self.create_value(handle, value)?)),
            _ => None,
        };
        let number_for = |wanted| new.filter(|(place, _)| *place == wanted).map(|(_, ino)| ino);
        let block_number = number_for(ValueLocation::Block).map(|ino| (change.name, ino));
        self.change_block(handle, &plan.block, is_shared, block_number)?;
        let Some(tail) = &plan.tail else {
            self.stage(*handle);
            return Ok(());
        };
        let mut tail = tail.to_vec();
        if let Some(ino) = number_for(ValueLocation::Slot) {
            enter_number(&mut tail, false, change.name, ino)?;
        }
        self.stage_with_tail(*handle, tail);
        Ok(())
    }
}

/// Writes the inode number of a new value to its entry.
fn enter_number(bytes: &mut [u8], in_block: bool, name: AttributeName<'_>, ino: u32) -> Result<()> {
    if set_value_inode(bytes, in_block, name, ino) {
        return Ok(());
    }
    Err(Error::Invalid("a new attribute is missing"))
}
