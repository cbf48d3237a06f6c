//! ATTRI: changes of attributes and parent pointers.

use vfs::{Corruption, Result};

use crate::attr::parent::Link;
use crate::format::log::intent::{AttributeChange, AttributeWork, ParentLink};
use crate::inode::Handle;
use crate::op::Op;

fn link_of(link: &ParentLink) -> Link<'_> {
    Link { dir: link.dir, generation: link.generation, name: &link.name }
}

/// Refuses an inode whose number was used again since an intent named it.
pub(super) fn check_generation(handle: &Handle, expected: u32) -> Result<()> {
    let found = handle.inode.generation();
    if found == expected {
        return Ok(());
    }
    let damage = Corruption::new("intent", "the inode's generation");
    Err(damage.of_inode(handle.ino().0).mismatch(expected, found).into())
}

impl Op<'_> {
    /// Changes attributes.
    pub(super) fn finish_attribute_change(
        &mut self,
        before: &Handle,
        change: &AttributeChange,
    ) -> Result<()> {
        let mut handle = before.clone();
        let is_plain =
            matches!(change.work, AttributeWork::Set { .. } | AttributeWork::Remove { .. });
        if !is_plain {
            check_generation(before, change.generation)?;
        }
        match &change.work {
            AttributeWork::Set { namespace, name, value } => {
                self.end_setting_attr(&mut handle, (*namespace, name), value)?;
            }
            AttributeWork::Remove { namespace, name } => {
                self.end_removing_attr(&mut handle, (*namespace, name))?;
            }
            AttributeWork::ParentSet(link) => {
                self.end_adding_parent(&mut handle, link_of(link))?;
            }
            AttributeWork::ParentRemove(link) => {
                self.end_removing_parent(&mut handle, link_of(link))?;
            }
            AttributeWork::ParentReplace { old, new } => {
                self.end_replacing_parent(&mut handle, link_of(old), link_of(new))?;
            }
        }
        self.stage_if_changed(handle, before);
        Ok(())
    }
}
