//! Summary information about images.

use std::ffi::{c_char, c_int};

use crate::border::{call, check_place, host_path, put};
use crate::error::dw_error;
use crate::opening::{dw_open_options, place};

/// Information in the superblock of an image, without a replay of the journal. Strings are UTF-8, end with NUL, and are
/// truncated if necessary.
#[repr(C)]
pub struct dw_info {
    /// "ext2", "ext3", "ext4" or "xfs".
    pub format: [c_char; 8],
    /// Label, as text.
    pub label: [c_char; 64],
    /// UUID with dashes.
    pub uuid: [c_char; 40],
    /// "clean", or the state in the terms of the format.
    pub state: [c_char; 128],
    /// Block size in bytes.
    pub block_size: u32,
    /// Inode size in bytes.
    pub inode_size: u32,
    /// Number of all blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Number of inodes (XFS: those allocated at present).
    pub inodes: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// 1 if the journal or log needs recovery.
    pub needs_recovery: u64,
    /// Zeros; reserved for later versions.
    pub reserved: [u64; 4],
}

/// Truncates a string to an array with NUL, at a character boundary.
fn cut<const LEN: usize>(text: &str) -> [c_char; LEN] {
    let mut end = text.len().min(LEN - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut cut = [0; LEN];
    for (to, from) in cut.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = *from as c_char;
    }
    cut
}

/// Reads information about an image, which need not have a root directory. `open` may be NULL. Only its location and
/// DW_NORECOVERY are used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_read_info(
    image: *const c_char,
    open: *const dw_open_options,
    info: *mut dw_info,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            check_place(info, "the image information")?;
            let known = place(open)?.info(host_path(image)?)?;
            let value = dw_info {
                format: cut(known.format_name()),
                label: cut(&known.label_text()),
                uuid: cut(&known.uuid_text()),
                state: cut(known.state.text()),
                block_size: known.block_size,
                inode_size: known.inode_size,
                blocks: known.blocks,
                blocks_free: known.blocks_free,
                inodes: known.inodes,
                inodes_free: known.inodes_free,
                needs_recovery: known.needs_recovery.into(),
                reserved: [0; 4],
            };
            put(info, "the image information", value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let text = |cut: &[c_char]| -> Vec<u8> {
            cut.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect()
        };
        assert_eq!(text(&cut::<8>("ext4")), b"ext4");
        assert_eq!(text(&cut::<4>("abcdef")), b"abc");
        assert_eq!(text(&cut::<4>("aäö")), "aä".as_bytes());
        assert_eq!(text(&cut::<3>("aä")), b"a");
    }
}
