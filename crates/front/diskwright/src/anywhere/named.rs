//! Files that virtual disks refer to.

use std::fs::File;
use std::io;
use std::path::Path;

use remote::place::NamedFiles;

use super::reading;
use crate::lock;

/// Opens and locks a file that a virtual disk refers to.
pub(super) fn open_named(path: &Path, is_written: bool, unlocked: bool) -> io::Result<File> {
    let opened =
        if is_written { lock::open_to_write(path) } else { lock::open_to_read(path, unlocked) };
    opened.map_err(io::Error::from)
}

/// Returns the rules for files that a virtual disk refers to.
pub(super) fn named(open: &dyn Fn(&Path, bool) -> io::Result<File>) -> NamedFiles<'_> {
    NamedFiles { open, allow_data_files: reading::allows_data_files() }
}
