//! Copying files between host and image.

use std::path::Path;

use vfs::Paths;

use super::{AsImagePath, Image};
use crate::copy::{self, CopyOptions, CopyReport, From};
use crate::edit::{Editor, Policy};
use crate::extract::{ExtractOptions, ExtractReport, Observer, extract_to_directory};
use crate::image::shared::now;
use crate::{Result, build};

/// Observers passed to these methods must not use the image, because the call holds its gate.
impl Image {
    /// Copies a host file or directory to `to`, or into it if it is a directory. An existing file is replaced. Without
    /// [`CopyOptions::preserve`], the new file inherits its permissions, owner and attributes.
    ///
    /// Calls that remove names wait until the copy ends.
    ///
    /// # Errors
    /// If reading or creating a file fails, or the observer cancels. Files copied before remain.
    pub fn copy_in(
        &self,
        from: impl AsRef<Path>,
        to: impl AsImagePath,
        options: CopyOptions,
        observer: &mut dyn Observer,
    ) -> Result<CopyReport> {
        let to = to.as_image_path();
        let (uid, gid) = self.shared.owner();
        let policy = Policy { owner: build::Owner { uid, gid }, time: now() };
        self.shared.whole(|fs| {
            let editor = Editor::new(Paths::new(fs), policy);
            copy::into_image(editor, From::Host(from.as_ref()), to, options, observer)
        })
    }

    /// Copies a file or directory to `to` on the host, or into it if it is a directory. Existing files are replaced.
    ///
    /// Calls that remove names wait until the copy ends.
    ///
    /// # Errors
    /// If reading or creating a file fails, or the observer cancels. Files copied before remain.
    pub fn copy_out(
        &self,
        from: impl AsImagePath,
        to: impl AsRef<Path>,
        options: CopyOptions,
        observer: &mut dyn Observer,
    ) -> Result<CopyReport> {
        let from = from.as_image_path();
        self.shared
            .whole(|fs| copy::out_of_image(Paths::new(fs), from, to.as_ref(), options, observer))
    }

    /// Extracts a file or the contents of a directory to a host directory, which is created if missing.
    ///
    /// Calls that remove names wait until the extraction ends.
    ///
    /// # Errors
    /// If the image cannot be read or the directory not written, or the observer cancels. Files extracted before
    /// remain.
    pub fn extract_to(
        &self,
        directory: impl AsRef<Path>,
        options: &ExtractOptions,
        observer: &mut dyn Observer,
    ) -> Result<ExtractReport> {
        self.shared
            .whole(|fs| extract_to_directory(Paths::new(fs), directory.as_ref(), options, observer))
    }
}
