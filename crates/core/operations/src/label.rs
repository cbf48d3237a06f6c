//! Labels of file systems: validation, and the field in the superblock.

use vfs::Result;
use vfs::names::check_label;

use crate::Mode;

/// Returns the superblock field of `LEN` bytes for a new label, padded with zeros.
///
/// # Errors
/// `ReadOnly`; `Invalid` for an image in progress, or if the label is too long or contains a NUL.
pub fn field<const LEN: usize>(mode: Mode, label: &[u8]) -> Result<[u8; LEN]> {
    mode.check_relabel()?;
    check_label(label, LEN)?;
    let mut field = [0; LEN];
    field[..label.len()].copy_from_slice(label);
    Ok(field)
}

/// Returns the label in a superblock field.
pub fn parse(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}
