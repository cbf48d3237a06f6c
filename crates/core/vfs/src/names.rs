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
    if name.is_empty() || has_slash_or_nul(name) {
        return Err(Error::Invalid("a name must not be empty or contain '/' or NUL"));
    }
    Ok(())
}

/// Checks eight bytes at a time, because every operation on a name calls it.
fn has_slash_or_nul(name: &[u8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; 8]);
    // The subtraction sets the high bit of a byte of zero, and of other bytes only above a byte of zero.
    let has_zero = |word: u64| word.wrapping_sub(LOW) & !word & HIGH != 0;
    let (words, rest) = name.as_chunks();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    words.any(|word| has_zero(word) || has_zero(word ^ SLASHES))
        || rest.iter().any(|&byte| byte == b'/' || byte == 0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_or_nul_is_found_at_any_position_among_any_bytes() {
        for len in 1..=20 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    for other in [1, b'.', b'0', 0x7f, 0x80, 0xff] {
                        let mut name = vec![other; len];
                        name[at] = byte;
                        let expected = byte == 0 || byte == b'/';
                        assert_eq!(has_slash_or_nul(&name), expected, "{name:?}");
                    }
                }
            }
        }
    }
}
