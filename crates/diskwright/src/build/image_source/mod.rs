//! The image of a file system as a source, whatever its format: as it is once its journal or log was replayed,
//! which happens in memory.

mod contents;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use source::{FileId, Source, SourceError};
use vfs::FileSystem;

use super::{Format, ImageFile};
use crate::{Image, OpenImage, Result, host};

/// Inodes that formats use themselves, at most.
const INODES_OF_FORMAT: u64 = 8;

/// How an image is opened.
pub(super) fn how(file: &ImageFile) -> OpenImage {
    OpenImage { offset: file.offset, partition: file.partition, ..OpenImage::default() }
}

/// An open image that files are taken from.
#[derive(Clone)]
pub(crate) struct ImageTree(Arc<Opened>);

struct Opened {
    path: PathBuf,
    image: Image,
    /// Whether an empty `lost+found` of ext is left out: the new format has no use for it.
    skips_lost_found: bool,
}

impl ImageTree {
    /// Opens an image for an image of another `format`. `replaced` are files that this process has locked to replace
    /// them in the end.
    ///
    /// # Errors
    /// If it cannot be opened or read, or somebody uses it.
    pub(crate) fn open(file: &ImageFile, format: Format, replaced: &[FileId]) -> Result<Self> {
        let path = &file.path;
        let is_locked = host::file_id(path).is_some_and(|found| replaced.contains(&found));
        let image = Image::open_as_source(path, &how(file), is_locked)?;
        Ok(Self::of(file, image, format))
    }

    /// The files of an open image, for an image of another `format`.
    pub(super) fn of(file: &ImageFile, image: Image, format: Format) -> Self {
        let skips_lost_found = format == Format::Xfs && image.info().format != "xfs";
        Self(Arc::new(Opened { path: file.path.clone(), image, skips_lost_found }))
    }

    fn fs(&self) -> &dyn FileSystem {
        self.0.image.file_system()
    }

    /// Reads it from its start.
    pub(super) fn source(&self) -> Box<dyn Source> {
        Box::new(walk::Walk::new(self.clone()))
    }

    /// Files there are, about.
    fn files(&self) -> u64 {
        let totals = self.fs().statfs();
        totals.map_or(0, |totals| {
            totals.inodes.saturating_sub(totals.inodes_free).saturating_sub(INODES_OF_FORMAT)
        })
    }

    /// An error of a file in the image.
    fn error(&self, file: &[u8], source: vfs::Error) -> SourceError {
        let file = (!file.is_empty()).then(|| host::path_to_show(file));
        SourceError::Image { image: crate::text::public(&self.0.path), file, source }
    }
}
