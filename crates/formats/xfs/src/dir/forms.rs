//! The forms of a directory, and the conversions between them.

use operations::Outcome;
use vfs::Error;

use super::change::DirChange;
use super::find::{DirForm, Spot};
use super::node::NodeChange;
use super::state::DirState;
use super::{Entry, FoundInode};
use crate::format::dir::{DirBlockKind, data};

/// Maximum number of conversions that adding one entry can cause.
const STEPS_MAX: usize = 4;

impl<'a> DirChange<'_, 'a> {
    fn form(&mut self) -> Outcome<DirForm> {
        if self.op.dirs.has(self.handle) {
            return Ok(DirForm::Node);
        }
        Ok(self.view().form()?)
    }

    /// Adds an entry. Fails with `Exists` if the name exists.
    pub(super) fn add(&mut self, entry: Entry<'_>) -> Outcome<()> {
        for _ in 0..STEPS_MAX {
            match self.form()? {
                DirForm::Short => {
                    if self.find_short(entry.name)?.is_some() {
                        return Err(Error::Exists.into());
                    }
                    if self.add_short(entry)? {
                        return Ok(());
                    }
                    self.short_to_block()?;
                }
                DirForm::Block => {
                    if self.add_block(entry)? {
                        return Ok(());
                    }
                    self.block_to_leaf()?;
                }
                DirForm::Leaf => {
                    if self.add_leaf(entry)? {
                        return Ok(());
                    }
                    self.leaf_to_node()?;
                }
                DirForm::Node => return self.with_nodes(|nodes| nodes.add(entry)),
            }
        }
        Err(self.corrupt("directory", "an entry does not fit into any directory form"))
    }

    /// Removes an entry and returns the inode it named.
    pub(super) fn remove(&mut self, name: &[u8], hint: Option<&Spot>) -> Outcome<FoundInode> {
        match self.form()? {
            DirForm::Short => {
                let (found, offset) = self.find_short(name)?.ok_or(Error::NotFound)?;
                self.remove_short(offset)?;
                Ok(found)
            }
            DirForm::Block => self.remove_block(name),
            DirForm::Leaf => self.remove_leaf(name),
            DirForm::Node => self.with_nodes(|nodes| nodes.remove(name, hint)),
        }
    }

    /// Changes the inode of an existing entry, and returns the previous one.
    pub(super) fn replace(&mut self, entry: Entry<'_>) -> Outcome<FoundInode> {
        let form = self.form()?;
        if form == DirForm::Short {
            let (found, offset) = self.find_short(entry.name)?.ok_or(Error::NotFound)?;
            if self.replace_short(offset, entry)? {
                return Ok(found);
            }
            // A larger inode number does not fit into the shortform directory.
            self.short_to_block()?;
        }
        let layout = self.layout;
        let spot = match form {
            DirForm::Short | DirForm::Block => self.view().find_in_block(entry.name)?,
            DirForm::Leaf | DirForm::Node => self.view().search(entry.name)?.spot,
        };
        let spot = spot.ok_or(Error::NotFound)?;
        let buf = self.buffer(layout.data_at(spot.number), DirBlockKind::Data)?;
        data::replace(&layout, &mut self.held(buf), spot.offset, &entry.into());
        Ok(spot.found)
    }

    /// Runs `body` on a directory of node form with its state, which is read if it is not in memory.
    fn with_nodes<T>(
        &mut self,
        body: impl FnOnce(&mut NodeChange<'_, 'a>) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut state = self.take_state()?;
        let DirState { maps, nodes, .. } = &mut *state;
        let dir =
            DirChange { op: self.op, handle: self.handle, layout: self.layout, maps: Some(maps) };
        let outcome = body(&mut NodeChange { dir, state: nodes });
        self.op.dirs.give(state);
        outcome
    }
}
