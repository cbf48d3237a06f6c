//! Copying between an open image and the host: what `diskwright cp` does.

use std::path::Path;

use vfs::Paths;

use super::{AsImagePath, Image};
use crate::Result;
use crate::build::Owner;
use crate::copy::{CopyOptions, CopyReport, From, Observer, into_image, out_of_image};
use crate::edit::{Editor, Policy};

impl Image {
    /// Copies a file or directory of the host to `to`, or into it, if it is a directory. Other threads remove no names
    /// meanwhile.
    ///
    /// # Errors
    /// If something cannot be read or made; what was copied before it stays.
    pub fn copy_in(
        &self,
        from: impl AsRef<Path>,
        to: impl AsImagePath,
        options: CopyOptions,
        observer: &mut dyn Observer,
    ) -> Result<CopyReport> {
        let (uid, gid) = self.shared.owner();
        let policy = Policy { time: super::shared::now(), ..Policy::now(Some(Owner { uid, gid })) };
        self.shared.whole(|fs| {
            let editor = Editor::new(Paths::new(fs), policy);
            into_image(editor, From::Host(from.as_ref()), to.as_image_path(), options, observer)
        })
    }

    /// Copies a file or directory to `to` on the host, or into it, if it is a directory. Files in the way are replaced.
    /// Other threads remove no names meanwhile.
    ///
    /// # Errors
    /// If something cannot be read or made; what was copied before it stays.
    pub fn copy_out(
        &self,
        from: impl AsImagePath,
        to: impl AsRef<Path>,
        options: CopyOptions,
        observer: &mut dyn Observer,
    ) -> Result<CopyReport> {
        self.shared.whole(|fs| {
            let paths = Paths::new(fs);
            out_of_image(paths, from.as_image_path(), to.as_ref(), options, observer)
        })
    }
}
