//! Check of the root directory.

use std::ops::ControlFlow;

use crate::{Corruption, Error, FileSystem, FileType, Result};

/// Checks that the root is a directory in use whose first block can be read.
///
/// # Errors
/// `Corrupt` if it is something else; otherwise the error of the read.
pub fn check_root(fs: &dyn FileSystem) -> Result<()> {
    let root = fs.root();
    let damage = |found: String| {
        let damage = Corruption::new("root directory", "not a directory").of_inode(root.0);
        Error::from(damage.mismatch("a directory in use", found))
    };
    let found = match fs.attributes(root) {
        Err(Error::NotFound) => return Err(damage("an inode that is not in use".into())),
        found => found?.file_type,
    };
    if found != FileType::Directory {
        return Err(damage(format!("a file of type {found:?}")));
    }
    match fs.for_each_entry(root, &mut |_| ControlFlow::Break(())) {
        Err(Error::NotFound) => Err(damage("a removed directory".into())),
        listed => listed,
    }
}
