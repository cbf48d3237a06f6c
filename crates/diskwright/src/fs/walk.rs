//! Going through everything below a directory.

use std::sync::Arc;

use vfs::path::{LastLink, Order, Visit, WalkSteps};

use super::path::join;
use super::shared::Shared;
use super::{AsImagePath, Image, Metadata};
use crate::{Error, Result};

/// Everything from a path down: depth first, directories before what is in them, in each directory its own order
/// unless [`Walk::sorted`]. Symbolic links are not followed. No lock is held between two of them.
///
/// After an error the walk goes on behind what it concerns. A directory that has two names, as in damaged images, is an
/// error the second time, so that every walk ends. What comes or goes meanwhile may be among it or not.
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
    /// [`Shared::removals`] when it began.
    removals: u64,
    has_ended: bool,
}

/// A file that a walk came to.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: Vec<u8>,
    name_start: usize,
    depth: usize,
    metadata: Metadata,
}

impl Image {
    /// Everything from a path down, that itself first. A symbolic link there is followed.
    pub fn walk(&self, path: impl AsImagePath) -> Walk {
        let (shared, top) = (Arc::clone(&self.shared), path.as_image_path().into());
        Walk { shared, top, order: Order::Physical, steps: None, removals: 0, has_ended: false }
    }
}

impl Walk {
    /// Gives the entries of each directory in the order of the bytes of their names. It holds the names of one
    /// directory of each level in memory. Asked for before the first step.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.order = Order::Sorted;
        self
    }

    /// Leaves out what is below the directory that was given last.
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
        // The outer result says whether the image is open, the inner one what became of the step.
        let stepped = self.shared.names(&self.top, |names| {
            loop {
                match steps.advance(names.fs) {
                    // It was moved while the walk went on, or another one has its number now.
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
    /// Its path: the one that the walk began at, and the names from there.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The last name of the path; empty for what the walk began at.
    pub fn file_name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// How many names it is below what the walk began at.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// What was known of it when the walk came to it.
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
