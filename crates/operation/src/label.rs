//! Labels of file systems: what may become one, and how its field in a superblock is read.

use vfs::Result;
use vfs::names::check_label;

use crate::Mode;

/// The field of `LEN` bytes that holds a label which a file system is to get: the bytes behind it are
/// zeros.
///
/// # Errors
/// `ReadOnly`; `Invalid` while the file system is being made, or if the label does not fit or has a NUL.
pub fn field<const LEN: usize>(mode: Mode, label: &[u8]) -> Result<[u8; LEN]> {
    mode.check_relabel()?;
    check_label(label, LEN)?;
    let mut field = [0; LEN];
    field[..label.len()].copy_from_slice(label);
    Ok(field)
}

/// The label that a field holds.
pub fn parse(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}
