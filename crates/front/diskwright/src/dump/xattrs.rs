//! Extended attributes of an inode, in the same form for both formats.

use vfs::{FileSystem, Ino};

use super::Fields;
use super::bytes::bytes_text;
use crate::text::hex;

/// Adds the names, sizes and values of an inode's attributes, if there are any.
pub(super) fn add_xattrs(fs: &dyn FileSystem, ino: Ino, fields: &mut Fields) -> vfs::Result<()> {
    let mut names = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
    let mut list = Vec::new();
    for name in names {
        let value = fs.get_xattr(ino, &name)?;
        let mut xattr = Fields::default();
        xattr.add("name", bytes_text(&name));
        xattr.add("size", value.len() as u64);
        xattr.add("value", format!("0x{}", hex(&value)));
        list.push(xattr);
    }
    if !list.is_empty() {
        fields.add("xattrs", list);
    }
    Ok(())
}
