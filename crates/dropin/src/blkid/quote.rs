//! Values as blkid prints them, so that no label looks like another property.

/// Bytes before which the full form has a backslash.
const IN_QUOTES: &[u8] = b"\"\\";
/// Bytes before which the form for shells has a backslash.
const IN_SHELL: &[u8] = b" \\\"'$`<>";

/// Appends a byte: control characters as `^X`, bytes above 127 as `M-X`.
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

/// A value between quotation marks.
pub(super) fn in_quotes(value: &[u8]) -> Vec<u8> {
    escaped(value, IN_QUOTES)
}

/// A value as one word of a shell.
pub(super) fn in_shell(value: &[u8]) -> Vec<u8> {
    escaped(value, IN_SHELL)
}

/// A value without blanks, control characters and bytes that are not UTF-8, which become `_`.
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

/// A value in which all but letters, digits, some marks and UTF-8 are hexadecimal.
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
