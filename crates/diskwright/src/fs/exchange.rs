//! Files that come from the host, or go to it.

use std::path::Path;

use vfs::Paths;

use super::shared::now;
use super::{AsImagePath, Image};
use crate::copy::{self, CopyOptions, CopyReport, From};
use crate::edit::{Editor, Policy};
use crate::extract::{ExtractOptions, ExtractReport, Observer, extract_to_directory};
use crate::{Result, build};

/// What the observer does must not use the image: the call holds it.
impl Image {
    /// Copies a file or directory of the host to `to`, or into it, if it is a directory. A file that is there is
    /// replaced; without [`CopyOptions::preserve`], the new one takes over its permissions, owner and attributes.
    ///
    /// No name is removed meanwhile: calls that do so wait.
    ///
    /// # Errors
    /// If something cannot be read or made, or the observer ends it; what was copied before it stays.
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

    /// Copies a file or directory to `to` on the host, or into it, if it is a directory. Files in the way are
    /// replaced.
    ///
    /// No name is removed meanwhile: calls that do so wait.
    ///
    /// # Errors
    /// If something cannot be read or made, or the observer ends it; what was copied before it stays.
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

    /// Copies all that is in a directory of the image, or a file, into a directory of the host, which is made if it is
    /// not there.
    ///
    /// No name is removed meanwhile: calls that do so wait.
    ///
    /// # Errors
    /// If the image cannot be read or the directory not be written, or the observer ends it; what was extracted
    /// before it stays.
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
