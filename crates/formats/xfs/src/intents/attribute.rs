//! ATTRI intents: changes of attributes and parent pointers.

use operations::Outcome;
use vfs::{Corruption, Result};

use crate::format::log::intent::{AttributeChange, AttributeWork, ParentLink};
use crate::inode::Handle;
use crate::op::Op;
use crate::xattr::AttrChange;
use crate::xattr::parent::NamedLink;

fn link_of(link: &ParentLink) -> NamedLink<'_> {
    NamedLink { dir: link.dir, generation: link.generation, name: &link.name }
}

/// Refuses an inode whose number was reused since the intent was logged.
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
    ) -> Outcome<()> {
        let mut handle = before.clone();
        let is_plain =
            matches!(change.work, AttributeWork::Set { .. } | AttributeWork::Remove { .. });
        if !is_plain {
            check_generation(before, change.generation)?;
        }
        let mut attrs = AttrChange::new(self, &mut handle);
        match &change.work {
            AttributeWork::Set { namespace, name, value } => {
                attrs.end_setting((*namespace, name), value)?;
            }
            AttributeWork::Remove { namespace, name } => {
                attrs.end_removing((*namespace, name))?;
            }
            AttributeWork::ParentSet(link) => {
                attrs.end_adding_parent(link_of(link))?;
            }
            AttributeWork::ParentRemove(link) => {
                attrs.end_removing_parent(link_of(link))?;
            }
            AttributeWork::ParentReplace { old, new } => {
                attrs.end_replacing_parent(link_of(old), link_of(new))?;
            }
        }
        self.stage_if_changed(handle, before);
        Ok(())
    }
}
