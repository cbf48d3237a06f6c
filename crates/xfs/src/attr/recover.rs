//! Ending changes of attributes that were under way when the file system crashed. What of them happened
//! already is not known: an entry may be there, may not count yet or any more, or may be gone.

use vfs::{Error, Result};

use super::parent::Link;
use super::read::{self, Form, Key, find_entry, form};
use crate::format::hash::name_hash;
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Gives an attribute a value, whatever there is of it. `namespace` is one of the format's.
    pub(crate) fn end_setting_attr(
        &mut self,
        handle: &mut Handle,
        (namespace, name): (u8, &[u8]),
        value: &[u8],
    ) -> Result<()> {
        let key = Key { namespace, name, hash: name_hash(name), value: None };
        self.remove_incomplete(handle, &key)?;
        self.set_stored(handle, &key, value)
    }

    /// Removes what there is of an attribute.
    pub(crate) fn end_removing_attr(
        &mut self,
        handle: &mut Handle,
        (namespace, name): (u8, &[u8]),
    ) -> Result<()> {
        let key = Key { namespace, name, hash: name_hash(name), value: None };
        self.remove_incomplete(handle, &key)?;
        match self.remove_stored(handle, &key) {
            Err(Error::NoAttribute) => Ok(()),
            outcome => outcome,
        }
    }

    /// Enters a link into the inode it leads to, unless it is there.
    pub(crate) fn end_adding_parent(&mut self, child: &mut Handle, link: Link<'_>) -> Result<()> {
        if self.has_link(child, &link)? { Ok(()) } else { self.add_parent(child, link) }
    }

    /// Takes a link out of the inode it led to, if it is there.
    pub(crate) fn end_removing_parent(&mut self, child: &mut Handle, link: Link<'_>) -> Result<()> {
        if self.has_link(child, &link)? { self.remove_parent(child, link) } else { Ok(()) }
    }

    /// Puts a link in the place of another.
    pub(crate) fn end_replacing_parent(
        &mut self,
        child: &mut Handle,
        old: Link<'_>,
        new: Link<'_>,
    ) -> Result<()> {
        let is_done = old != new && self.has_link(child, &new)?;
        if !is_done && self.has_link(child, &old)? {
            return self.replace_parent(child, old, new);
        }
        if old != new {
            self.end_removing_parent(child, old)?;
        }
        self.end_adding_parent(child, new)
    }

    /// Brings attributes that another inode had back into the inode if they fit.
    pub(crate) fn settle_exchanged_attrs(&mut self, handle: &mut Handle) -> Result<()> {
        if form(handle) == Form::Blocks { self.settle_attr_blocks(handle) } else { Ok(()) }
    }

    fn has_link(&mut self, child: &Handle, link: &Link<'_>) -> Result<bool> {
        let value = link.value();
        let key = link.key(&self.fs.volume.geometry, &value);
        Ok(read::value_of(self, child, &key)?.is_some())
    }

    /// Removes entries of an attribute that do not count, with the blocks of their values.
    fn remove_incomplete(&mut self, handle: &mut Handle, key: &Key<'_>) -> Result<()> {
        let mut was_there = false;
        while form(handle) == Form::Blocks {
            let found = find_entry(self, handle, key.hash, |entry| key.is_part(entry))?;
            let Some(position) = found else { break };
            self.remove_attr_in_blocks(handle, position)?;
            was_there = true;
        }
        if was_there { self.settle_attr_blocks(handle) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use vfs::Result;

    use super::{Key, find_entry, name_hash};
    use crate::format::attr::{Layout, flags, leaf};
    use crate::format::bytes::be16;
    use crate::format::edit::Edit;
    use crate::inode::Handle;
    use crate::op::Op;

    impl Op<'_> {
        /// Makes an entry in blocks one that does not count.
        pub(crate) fn mark_attr_incomplete(
            &mut self,
            handle: &Handle,
            (namespace, name): (u8, &[u8]),
        ) -> Result<()> {
            let key = Key { namespace, name, hash: name_hash(name), value: None };
            let found = find_entry(self, handle, key.hash, |entry| entry.name == key.name)?;
            let position = found.expect("the attribute is in blocks");
            let layout: Layout = self.attr_layout();
            let mut block = self.attr_block(handle, position.path[position.path.len() - 1])?;
            let hash_at = (0..layout.block_size)
                .step_by(4)
                .filter(|at| block.bytes()[*at..].starts_with(&key.hash.to_be_bytes()))
                .find(|at| {
                    let place = usize::from(be16(block.bytes(), at + 4));
                    let entry = leaf::entry(layout, block.bytes(), position.index);
                    place > 0 && entry.is_some_and(|entry| entry.hash == key.hash)
                });
            let flags_at = hash_at.expect("an entry has its hash") + 6;
            block.edit(flags_at..flags_at + 1)[0] |= flags::INCOMPLETE;
            Ok(())
        }
    }
}
