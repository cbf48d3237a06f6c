//! Which names, labels and whiteouts there can be: checks that every format makes alike.

use crate::{Error, NAME_LEN_MAX, NewInode, RenameMode, Result};

/// Checks a name that is to be made: `Exists` for `.` and `..`.
///
/// # Errors
/// Why no entry can have the name.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name must not be empty or contain '/' or NUL"));
    }
    Ok(())
}

/// Checks that a rename that is to leave a whiteout leaves a place for it.
///
/// # Errors
/// `Invalid` if the names change places.
pub fn check_whiteout(mode: RenameMode, whiteout: Option<&NewInode>) -> Result<()> {
    if whiteout.is_some() && mode == RenameMode::Exchange {
        return Err(Error::Invalid("an exchange leaves no place for a whiteout"));
    }
    Ok(())
}

/// Checks a label that a file system is to get, which has room for `len_max` bytes.
///
/// # Errors
/// `Invalid` if it does not fit or has a NUL.
pub fn check_label(label: &[u8], len_max: usize) -> Result<()> {
    if label.len() > len_max || label.contains(&0) {
        return Err(Error::Invalid("a label fits into its place and has no NUL"));
    }
    Ok(())
}
