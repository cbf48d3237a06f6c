//! Human-readable names, sizes, types and modes.

use std::fmt;

use crate::{Attributes, FileType};

/// Formats bytes as text. Escapes invalid UTF-8, control characters and characters that reorder or hide text (`\n`,
/// `\xff`, `\u{202e}`), and `\` itself.
pub fn escaped(bytes: &[u8]) -> impl fmt::Display + '_ {
    FromFn(move |f: &mut fmt::Formatter<'_>| {
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if c.is_control() || is_deceptive(c) => write!(f, "{}", c.escape_unicode())?,
                    c => fmt::Write::write_char(f, c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    })
}

/// Formats a value by a function, as `std::fmt::from_fn` does from Rust 1.93 on.
struct FromFn<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// Returns whether a character changes the appearance of the text around it.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}')
}

/// Formats bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a number of bytes as `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut power = 0;
    while power + 1 < units.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    match power {
        0 => format!("{bytes} bytes"),
        _ => format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * power)) as f64, units[power]),
    }
}

/// Formats type and permissions as `ls -l` does: `-rwsr-xr-t`.
pub fn mode(attributes: &Attributes) -> String {
    let permissions = attributes.permissions;
    let mut text = String::with_capacity(10);
    text.push(attributes.file_type.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// Returns the word for a type in JSON.
pub fn type_word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_escaped() {
        assert_eq!(escaped("ärger".as_bytes()).to_string(), "ärger");
        assert_eq!(escaped(b"a\n\x1b[2J\\\xff").to_string(), "a\\n\\x1b[2J\\\\\\xff");
        assert_eq!(
            escaped("a\u{202e}b\u{85}\u{61c}".as_bytes()).to_string(),
            "a\\u{202e}b\\u{85}\\u{61c}"
        );
    }

    #[test]
    fn sizes_are_shown_in_powers_of_1024() {
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }
}
