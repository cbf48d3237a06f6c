//! Setting extended attributes: in the inode where there is room, otherwise in a block of their
//! own.

use transaction::Corruption;
use vfs::{Error, Ino, Result};

use crate::Ext4;
use crate::format::address::Block;
use crate::format::features::Compat;
use crate::format::xattr::{
    Area, AttributeName, Entry, NewAttribute, NewValue, Value, acl_from_linux, block_refcount,
    encode_block, encode_in_inode, is_acl_index,
};
use crate::kind::Kind;
use crate::op::{Handle, Op};
use crate::read;

/// Longest name of an attribute, without its prefix, in bytes.
const NAME_LEN_MAX: usize = 255;

impl Ext4 {
    pub(crate) fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.check_writable()?;
        if !self.volume.sb.features.compat(Compat::EXT_ATTR) {
            let advice = "turn ext_attr on, or leave extended attributes out of the source";
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
            return self.store_attribute(ino, attribute, &stored);
        }
        self.store_attribute(ino, attribute, value)
    }

    fn store_attribute(&self, ino: Ino, name: AttributeName<'_>, value: &[u8]) -> Result<()> {
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load(ino)?;
        let old_tail = read::xattr::slot_area(self, &before)?;
        let new = NewAttribute { name, value: NewValue::Here(value) };
        let area = Area::in_inode(&old_tail).map_err(|c| c.of_inode(ino.0))?;
        self.atomically(|op| {
            let mut handle = before;
            let mut tail = old_tail.clone();
            let mut inside = kept(area, name);
            inside.push(new);
            if encode_in_inode(&mut tail, &mut inside) {
                op.drop_from_block(&mut handle, name)?;
            } else {
                inside.retain(|a| a.name != name);
                // What was in the inode before fits again.
                let _ = encode_in_inode(&mut tail, &mut inside);
                op.put_in_block(&mut handle, new)?;
            }
            op.stage_with_tail(handle, tail);
            Ok(())
        })
    }
}

/// The attributes of an area but one, to be written again.
fn kept<'a>(area: Option<Area<'a>>, without: AttributeName<'_>) -> Vec<NewAttribute<'a>> {
    let entries = area.into_iter().flat_map(Area::entries);
    entries.map(again).filter(|a| a.name != without).collect()
}

fn again<'a>(entry: Entry<'a>) -> NewAttribute<'a> {
    let name = AttributeName { index: entry.name_index, suffix: entry.name };
    let value = match entry.value {
        Value::Here(value) => NewValue::Here(value),
        Value::Inode { ino, size } => NewValue::Inode { ino, size, hash: entry.hash },
    };
    NewAttribute { name, value }
}

impl Op<'_> {
    /// The inode's attribute block as it is, if it has one that only it refers to.
    fn own_block(&mut self, handle: &Handle) -> Result<Option<Vec<u8>>> {
        let block = Block(handle.inode.file_acl());
        if block == Block(0) {
            return Ok(None);
        }
        self.fs.volume.check_blocks(block, 1).map_err(|c| c.of_inode(handle.ino().0))?;
        let id = self.buffer(block, Kind::Xattr.plain())?;
        let bytes = self.txn.data(id).to_vec();
        if block_refcount(&bytes) != 1 {
            return Err(Error::unsupported("changing shared attributes", "build the image anew"));
        }
        Ok(Some(bytes))
    }

    /// Adds or replaces an attribute in the inode's attribute block, which is made if need be.
    fn put_in_block(&mut self, handle: &mut Handle, new: NewAttribute<'_>) -> Result<()> {
        let old = self.own_block(handle)?;
        let mut attributes = kept(old.as_deref().map(Area::in_block), new.name);
        attributes.push(new);
        let mut bytes = vec![0; self.fs.volume.block_size()];
        if !encode_block(&mut bytes, &mut attributes) {
            return Err(Error::NoSpace);
        }
        if old.is_none() {
            let goal = self.metadata_goal(handle);
            let (block, _) = self.allocate_blocks(goal, 1)?;
            self.add_blocks(handle, 1)?;
            handle.inode.set_file_acl(block.0);
        }
        self.write_block(handle, &bytes)
    }

    /// Removes an attribute from the attribute block, because it is now in the inode.
    fn drop_from_block(&mut self, handle: &mut Handle, name: AttributeName<'_>) -> Result<()> {
        let Some(old) = self.own_block(handle)? else { return Ok(()) };
        if Area::in_block(&old).find(name).is_none() {
            return Ok(());
        }
        let mut attributes = kept(Some(Area::in_block(&old)), name);
        let mut bytes = vec![0; old.len()];
        if !encode_block(&mut bytes, &mut attributes) {
            return Err(Corruption::new("extended attributes", "they no longer fit").into());
        }
        self.write_block(handle, &bytes)
    }

    fn write_block(&mut self, handle: &Handle, bytes: &[u8]) -> Result<()> {
        let id = self.txn.create(handle.inode.file_acl(), Kind::Xattr.plain())?;
        self.txn.edit(id, 0..bytes.len()).copy_from_slice(bytes);
        Ok(())
    }
}
