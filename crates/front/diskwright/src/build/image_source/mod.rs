//! File system image as a source, independent of its format. Its journal or log is replayed in memory.

mod contents;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use import::{FileId, Source, SourceError};
use vfs::FileSystem;

use super::{Format, ImageFile};
use crate::{FileSystemRef, Image, ImageOptions, Result, host};

/// Maximum number of inodes used by the formats themselves.
const INODES_OF_FORMAT: u64 = 8;

/// Returns the options for opening an image.
pub(super) fn how(file: &ImageFile) -> ImageOptions {
    let ImageFile { offset, partition, ref devices, .. } = *file;
    ImageOptions { offset, partition, devices: devices.clone(), ..ImageOptions::default() }
}

/// Open source image.
#[derive(Clone)]
pub(crate) struct ImageTree(Arc<Opened>);

struct Opened {
    path: PathBuf,
    fs: FileSystemRef<'static>,
    /// True to skip an empty `lost+found` of ext, which the new format does not use.
    skips_lost_found: bool,
}

impl ImageTree {
    /// Opens a source for a new image of `format`. `replaced` are files that this process has locked in order to
    /// replace them.
    ///
    /// # Errors
    /// If the image cannot be opened or read, or is in use.
    pub(crate) fn open(file: &ImageFile, format: Format, replaced: &[FileId]) -> Result<Self> {
        let path = &file.path;
        let is_locked = host::file_id(path).is_some_and(|found| replaced.contains(&found));
        let image = how(file).open_as_source(path, is_locked)?;
        Self::of(file, image, format)
    }

    /// Wraps an open image as a source for a new image of `format`.
    ///
    /// # Errors
    /// If the image is closed.
    pub(super) fn of(file: &ImageFile, image: Image, format: Format) -> Result<Self> {
        let skips_lost_found = format == Format::Xfs && image.info()?.format() == Format::Ext4;
        let fs = image.into_file_system()?;
        Ok(Self(Arc::new(Opened { path: file.path.clone(), fs, skips_lost_found })))
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.0.fs
    }

    /// Starts reading from the beginning.
    pub(super) fn source(&self) -> Box<dyn Source> {
        Box::new(walk::TreeCursor::new(self.clone()))
    }

    /// Returns the approximate number of files.
    fn files(&self) -> u64 {
        let totals = self.fs().statfs();
        totals.map_or(0, |totals| {
            totals.inodes.saturating_sub(totals.inodes_free).saturating_sub(INODES_OF_FORMAT)
        })
    }

    /// Creates an error for a file in the image.
    fn error(&self, file: &[u8], source: vfs::Error) -> SourceError {
        let file = (!file.is_empty()).then(|| host::path_to_show(file));
        SourceError::Image { image: crate::text::public(&self.0.path), file, source }
    }
}
