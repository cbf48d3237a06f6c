//! The phrases of the original for failures: callers search the output for them. Our own words follow in parentheses.

use diskwright::Error;

use crate::failure::{Failure, STATUSES};

/// There is no such file.
pub(super) const NOT_FOUND: &str = "File not found by ext2_lookup";

/// Returns the failure of a request, for what the library reports.
pub(super) fn failed(error: Error) -> Failure {
    let ours = error.with_advice();
    STATUSES
        .failed(phrase(&error).map_or_else(|| ours.clone(), |phrase| format!("{phrase} ({ours})")))
}

fn phrase(error: &Error) -> Option<&'static str> {
    let (Error::File { source, .. } | Error::Image { source, .. }) = error else { return None };
    Some(match source {
        vfs::Error::NotFound => NOT_FOUND,
        vfs::Error::NotADirectory => "Ext2 inode is not a directory",
        vfs::Error::IsADirectory => "file is a directory",
        vfs::Error::NotEmpty => "directory not empty",
        vfs::Error::Exists => "Ext2 file already exists",
        vfs::Error::NoSpace => "Could not allocate block in ext2 filesystem",
        vfs::Error::NoInodes => "Could not allocate inode in ext2 filesystem",
        vfs::Error::NoAttribute => "Extended attribute key not found",
        _ => return None,
    })
}
