//! Messages of the original for failures, because callers search the output for them. Additional advice follows in
//! parentheses.

use vfs::Error;

use crate::failure::{NO_BLOCKS, NO_INODES};

/// Message for a missing file.
pub(super) const NOT_FOUND: &str = "File not found by ext2_lookup";
/// Message for a read-only session.
pub(super) const READ_ONLY: &str = "Filesystem opened read/only";
/// Message for a file that is not a directory.
pub(super) const NOT_A_DIRECTORY: &str = "Ext2 inode is not a directory";

/// Advice for a full file system.
const ENLARGE: &str = "enlarge the image and run resize2fs, or remove files";

/// Returns the text for an error: the original's message, if there is one, and advice.
pub(super) fn words(error: &Error) -> String {
    match phrase(error) {
        Some((phrase, "")) => phrase.to_owned(),
        Some((phrase, advice)) => format!("{phrase} ({advice})"),
        None => error.to_string(),
    }
}

fn phrase(error: &Error) -> Option<(&'static str, &'static str)> {
    Some(match error {
        Error::NotFound => (NOT_FOUND, "list the directory with diskwright ls"),
        Error::NotADirectory => (NOT_A_DIRECTORY, ""),
        Error::IsADirectory => ("file is a directory", ""),
        Error::NotEmpty => ("directory not empty", ""),
        Error::Exists => ("Ext2 file already exists", ""),
        Error::NoSpace => (NO_BLOCKS, ENLARGE),
        Error::NoInodes => (NO_INODES, "remove files, or create the file system with more inodes"),
        Error::NoAttribute => ("Extended attribute key not found", ""),
        _ => return None,
    })
}
