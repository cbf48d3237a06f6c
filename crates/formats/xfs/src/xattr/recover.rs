//! Completing changes of attributes that a crash interrupted. Their progress is unknown: an entry may exist, may be
//! incomplete, or may be gone.

use operations::Outcome;
use vfs::Error;

use super::change::AttrChange;
use super::parent::NamedLink;
use super::read::{self, AttrForm, Key, find_entry, form};
use crate::format::hash::name_hash;

impl AttrChange<'_, '_> {
    /// Sets the value of an attribute, whatever its state. `namespace` is one of the format's.
    pub(crate) fn end_setting(
        &mut self,
        (namespace, name): (u8, &[u8]),
        value: &[u8],
    ) -> Outcome<()> {
        let key = Key { namespace, name, hash: name_hash(name), value: None };
        self.remove_incomplete(&key)?;
        self.set(&key, value)
    }

    /// Removes an attribute in any state.
    pub(crate) fn end_removing(&mut self, (namespace, name): (u8, &[u8])) -> Outcome<()> {
        let key = Key { namespace, name, hash: name_hash(name), value: None };
        self.remove_incomplete(&key)?;
        match self.remove(&key) {
            Err(why) if matches!(why.failure(), Some(Error::NoAttribute)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Adds a parent pointer unless it exists.
    pub(crate) fn end_adding_parent(&mut self, link: NamedLink<'_>) -> Outcome<()> {
        self.remove_incomplete_link(&link)?;
        if self.has_link(&link)? { Ok(()) } else { self.add_parent(link) }
    }

    /// Removes a parent pointer if it exists.
    pub(crate) fn end_removing_parent(&mut self, link: NamedLink<'_>) -> Outcome<()> {
        self.remove_incomplete_link(&link)?;
        if self.has_link(&link)? { self.remove_parent(link) } else { Ok(()) }
    }

    /// Replaces a parent pointer by another. In blocks, the old one may be incomplete.
    pub(crate) fn end_replacing_parent(
        &mut self,
        old: NamedLink<'_>,
        new: NamedLink<'_>,
    ) -> Outcome<()> {
        self.remove_incomplete_link(&old)?;
        self.remove_incomplete_link(&new)?;
        let is_done = old != new && self.has_link(&new)?;
        if !is_done && self.has_link(&old)? {
            return self.replace_parent(old, new);
        }
        if old != new {
            self.end_removing_parent(old)?;
        }
        self.end_adding_parent(new)
    }

    /// Moves attributes that the inode got in an exchange back into the inode if they fit.
    pub(crate) fn end_exchange(&mut self) -> Outcome<()> {
        if form(self.handle) == AttrForm::Blocks { self.return_to_inode() } else { Ok(()) }
    }

    fn has_link(&mut self, link: &NamedLink<'_>) -> Outcome<bool> {
        let value = link.value();
        let key = link.key(&self.op.fs.volume.geometry, &value);
        Ok(read::value_of(self.op, self.handle, &key)?.is_some())
    }

    fn remove_incomplete_link(&mut self, link: &NamedLink<'_>) -> Outcome<()> {
        let value = link.value();
        let key = link.key(&self.op.fs.volume.geometry, &value);
        self.remove_incomplete(&key)
    }

    /// Removes incomplete entries of an attribute, with the blocks of their values.
    fn remove_incomplete(&mut self, key: &Key<'_>) -> Outcome<()> {
        let mut was_there = false;
        while form(self.handle) == AttrForm::Blocks {
            let found = find_entry(self.op, self.handle, key.hash, |entry| key.is_part(entry))?;
            let Some(position) = found else { break };
            self.remove_in_blocks(position)?;
            was_there = true;
        }
        if was_there { self.return_to_inode() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use operations::Outcome;

    use super::{AttrChange, Key, NamedLink, find_entry, name_hash};
    use crate::format::attr::{flags, leaf};
    use crate::format::bytes::be16;
    use crate::format::edit::Edit;
    use crate::inode::Handle;
    use crate::op::Op;

    impl Op<'_> {
        /// Marks an entry in blocks incomplete.
        pub(crate) fn mark_attr_incomplete(
            &mut self,
            handle: &Handle,
            (namespace, name): (u8, &[u8]),
        ) -> Outcome<()> {
            let key = Key { namespace, name, hash: name_hash(name), value: None };
            self.mark_incomplete(handle, &key)
        }

        /// Marks a parent pointer in blocks incomplete.
        pub(crate) fn mark_parent_incomplete(
            &mut self,
            handle: &Handle,
            link: &NamedLink<'_>,
        ) -> Outcome<()> {
            let value = link.value();
            let key = link.key(&self.fs.volume.geometry, &value);
            self.mark_incomplete(handle, &key)
        }

        fn mark_incomplete(&mut self, handle: &Handle, key: &Key<'_>) -> Outcome<()> {
            let found = find_entry(self, handle, key.hash, |entry| entry.name == key.name)?;
            let position = found.expect("the attribute is in blocks");
            let mut handle = handle.clone();
            let mut change = AttrChange::new(self, &mut handle);
            let layout = change.layout;
            let mut block = change.block(position.path[position.path.len() - 1])?;
            let hash_at = (0..layout.block_size)
                .step_by(4)
                .filter(|at| block.bytes()[*at..].starts_with(&key.hash.to_be_bytes()))
                .find(|at| {
                    let place = usize::from(be16(block.bytes(), at + 4));
                    let entry = leaf::entry(layout, block.bytes(), position.index);
                    place > 0 && entry.is_some_and(|entry| entry.hash == key.hash)
                });
            let flags_at = hash_at.expect("every entry has a hash") + 6;
            block.edit(flags_at..flags_at + 1)[0] |= flags::INCOMPLETE;
            Ok(())
        }
    }
}
