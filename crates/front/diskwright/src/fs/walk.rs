//! Recursive listing of a directory.

use std::sync::Arc;

use vfs::path::{LastLink, Order, Visit, WalkSteps};

use super::path::join;
use super::{AsImagePath, Image, Metadata};
use crate::image::shared::Shared;
use crate::{Error, Result};

/// Files at and below a path: depth first, directories before their entries, in on-disk order unless [`Walk::sorted`].
/// Symbolic links are not followed. No lock is held between two steps.
///
/// After an error the walk continues after the file concerned. In damaged images a directory may have two names; the
/// second visit is an error, so every walk ends. Files created or removed meanwhile may or may not be included.
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, Image, MemoryDevice};
/// # fn main() -> diskwright::Result<()> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// image.create_dir_all("srv/www")?;
/// image.write("srv/www/index.html", "<p>hello")?;
/// let mut bytes = 0;
/// for entry in image.walk("/srv").sorted() {
///     bytes += entry?.metadata().len();
/// }
/// assert!(bytes >= 8);
/// # image.close() }
/// ```
pub struct Walk {
    shared: Arc<Shared>,
    top: Box<[u8]>,
    order: Order,
    /// `None` before the first step.
    steps: Option<WalkSteps>,
    /// Value of [`Shared::removals`] at the start.
    removals: u64,
    has_ended: bool,
}

/// File visited by a walk.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: Vec<u8>,
    name_start: usize,
    depth: usize,
    metadata: Metadata,
}

impl Image {
    /// Walks the tree at a path, starting with the path itself. A symbolic link there is followed.
    pub fn walk(&self, path: impl AsImagePath) -> Walk {
        let (shared, top) = (Arc::clone(&self.shared), path.as_image_path().into());
        Walk { shared, top, order: Order::Physical, steps: None, removals: 0, has_ended: false }
    }
}

impl Walk {
    /// Sorts the entries of each directory by the bytes of their names. Keeps the names of one directory per level in
    /// memory. Call this before the first step.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.order = Order::Sorted;
        self
    }

    /// Skips the entries of the directory returned last.
    pub fn skip_current_dir(&mut self) {
        if let Some(steps) = &mut self.steps {
            steps.skip_children();
        }
    }

    fn begin(&mut self) -> Result<WalkSteps> {
        self.removals = self.shared.removals();
        self.shared.names(&self.top, |names| {
            let top = names.paths.resolve(&self.top, LastLink::Follow)?;
            Ok(WalkSteps::new(top, self.order))
        })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let mut steps = match self.steps.take().map_or_else(|| self.begin(), Ok) {
            Ok(steps) => steps,
            Err(error) => {
                self.has_ended = true;
                return Some(Err(error));
            }
        };
        // The outer result is an error if the image is closed; the inner one is the result of the step.
        let stepped = self.shared.names(&self.top, |names| {
            loop {
                match steps.advance(names.fs) {
                    // The directory was moved during the walk, or its inode number was reused.
                    Some(Err(_))
                        if steps.came_again() && self.shared.removals() != self.removals => {}
                    step => return Ok(step),
                }
            }
        });
        let path = join(&self.top, steps.path());
        let name_start = path.len() - steps.name().len();
        self.steps = Some(steps);
        match stepped {
            Ok(Some(Ok(Visit { depth, attributes }))) => {
                let metadata = Metadata::new(attributes);
                Some(Ok(WalkEntry { path, name_start, depth, metadata }))
            }
            Ok(Some(Err(error))) => Some(Err(Error::file(&path, error))),
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(Err(error))
            }
        }
    }
}

impl std::iter::FusedIterator for Walk {}

impl WalkEntry {
    /// Returns the path: the start of the walk, followed by the names below it.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the last component of the path; empty for the start of the walk.
    pub fn file_name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// Returns the number of components below the start of the walk.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the metadata at the time of the visit.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let top = crate::text::escaped(&self.top).to_string();
        f.debug_tuple("Walk").field(&top).finish()
    }
}
