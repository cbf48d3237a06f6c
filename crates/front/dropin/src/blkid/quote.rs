//! Quoting of values in the output of blkid, so that no label can imitate another property.

/// Bytes escaped with a backslash in the full form.
const IN_QUOTES: &[u8] = b"\"\\";
/// Bytes escaped with a backslash in the form for shells.
const IN_SHELL: &[u8] = b" \\\"'$`<>";

/// Appends a byte, with control characters as `^X` and bytes above 127 as `M-X`.
fn push_visible(text: &mut Vec<u8>, mut byte: u8, special: &[u8]) {
    if byte >= 0x80 {
        text.extend_from_slice(b"M-");
        byte &= 0x7f;
    }
    if byte.is_ascii_control() {
        text.extend_from_slice(&[b'^', byte ^ 0x40]);
        return;
    }
    if special.contains(&byte) {
        text.push(b'\\');
    }
    text.push(byte);
}

fn escaped(value: &[u8], special: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    value.iter().for_each(|byte| push_visible(&mut text, *byte, special));
    text
}

/// Returns a value in quotation marks.
pub(super) fn in_quotes(value: &[u8]) -> Vec<u8> {
    escaped(value, IN_QUOTES)
}

/// Returns a value as one shell word.
pub(super) fn in_shell(value: &[u8]) -> Vec<u8> {
    escaped(value, IN_SHELL)
}

/// Returns a value with blanks, control characters and invalid UTF-8 replaced by `_`.
pub(super) fn plain(value: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for chunk in value.utf8_chunks() {
        text.extend(chunk.valid().chars().map(|c| match c {
            c if c.is_ascii_whitespace() || c.is_ascii_control() => '_',
            c => c,
        }));
        text.extend(chunk.invalid().iter().map(|_| '_'));
    }
    text.into_bytes()
}

/// Returns a value in which all bytes except letters, digits, some punctuation and UTF-8 are hexadecimal.
pub(super) fn encoded(value: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii() {
                text.push(c);
            } else {
                text.push_str(&format!("\\x{:02x}", c as u32));
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_never_ends_its_own_quotes() {
        assert_eq!(in_quotes(b"\" TYPE=\"swap"), b"\\\" TYPE=\\\"swap");
        assert_eq!(in_shell(b"a b$c"), b"a\\ b\\$c");
        assert_eq!(in_quotes("a\t\u{e9}".as_bytes()), b"a^IM-CM-)");
        assert_eq!(plain(b"a b\xff$"), b"a_b_$");
        assert_eq!(encoded("a b\u{e9}$".as_bytes()), "a\\x20b\u{e9}\\x24".as_bytes());
        assert_eq!(encoded(b"\xff"), b"\\xff");
    }
}
