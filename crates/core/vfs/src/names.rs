//! Checks of names, labels and whiteouts that all formats share.

use crate::{Error, NAME_LEN_MAX, NewInode, RenameMode, Result};

/// Checks the name of a new entry. `Exists` for `.` and `..`.
///
/// # Errors
/// The reason why the name is invalid.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    // All bytes are checked without an early exit, so that the loop can be vectorised.
    let is_impossible = name.iter().fold(false, |any, &byte| any | (byte == b'/') | (byte == 0));
    if name.is_empty() || is_impossible {
        return Err(Error::Invalid("a name must not be empty or contain '/' or NUL"));
    }
    Ok(())
}

/// Checks whether a rename with this mode can leave a whiteout.
///
/// # Errors
/// `Invalid` for an exchange with a whiteout.
pub fn check_whiteout(mode: RenameMode, whiteout: Option<&NewInode>) -> Result<()> {
    if whiteout.is_some() && mode == RenameMode::Exchange {
        return Err(Error::Invalid("an exchange cannot leave a whiteout"));
    }
    Ok(())
}

/// Checks a new label, whose maximum length is `len_max` bytes.
///
/// # Errors
/// `Invalid` if it is too long or contains a NUL.
pub fn check_label(label: &[u8], len_max: usize) -> Result<()> {
    if label.len() > len_max || label.contains(&0) {
        return Err(Error::Invalid("the label is too long or contains NUL"));
    }
    Ok(())
}
