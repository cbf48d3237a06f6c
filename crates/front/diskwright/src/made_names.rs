//! Detection of source names that are equal in the image.
//!
//! In a directory that folds names, the second name would silently replace the first file, or merge two directories.

use std::borrow::Cow;
use std::collections::HashMap;

use vfs::{FileSystem, Ino, Result};

/// Names created by one command in directories that fold names. Empty for other directories.
#[derive(Debug, Default)]
pub struct MadeNames {
    /// Spelling in the source, by directory and folded name.
    spellings: HashMap<(Ino, Vec<u8>), Vec<u8>>,
}

impl MadeNames {
    /// Records a name to be created in `dir`. Returns the name of another source file that is equal there.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn note(
        &mut self,
        fs: &dyn FileSystem,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if !fs.folds_names() {
            return Ok(None);
        }
        let Cow::Owned(folded) = fs.folded_name(dir, name)? else { return Ok(None) };
        let known = self.spellings.entry((dir, folded)).or_insert_with(|| name.to_vec());
        Ok((known != name).then(|| known.clone()))
    }
}
