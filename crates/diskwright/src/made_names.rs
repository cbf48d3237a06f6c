//! Finding two names of a source that are one name in the image.
//!
//! In a directory that folds names, the second of two such names would replace the first, or fill it if both are
//! directories, and nothing would tell.

use std::borrow::Cow;
use std::collections::HashMap;

use vfs::{FileSystem, Ino, Result};

/// Names that one command gave to files, in directories that fold names. Empty everywhere else.
#[derive(Debug, Default)]
pub struct MadeNames {
    /// The spelling of the source, by directory and folded name.
    spellings: HashMap<(Ino, Vec<u8>), Vec<u8>>,
}

impl MadeNames {
    /// Notes that something of the source is about to get a name in `dir`. Returns the name of another file of the
    /// source that is the same one there.
    ///
    /// # Errors
    /// Those of the file system.
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
