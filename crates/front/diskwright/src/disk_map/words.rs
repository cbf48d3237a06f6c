//! Human-readable kinds, sizes and names.

use std::fmt::{self, Write};

use vfs::survey::{BlockUse, LogState};

use crate::disk_map::histogram::Bucket;

/// Returns the name of a kind.
pub fn word(kind: BlockUse) -> &'static str {
    match kind {
        BlockUse::Headers => "superblocks and headers",
        BlockUse::Allocation => "bitmaps and trees of groups",
        BlockUse::Inodes => "inodes",
        BlockUse::Log => "journal or log",
        BlockUse::Directories => "directories",
        BlockUse::Attributes => "extended attributes",
        BlockUse::Maps => "maps of files",
        BlockUse::Data => "file data",
        BlockUse::Shared => "file data that is shared",
        BlockUse::Preallocated => "allocated, never written",
        BlockUse::System => "quota and other system files",
        BlockUse::Bad => "bad blocks",
        BlockUse::Free => "free",
        BlockUse::Unknown => "in use, unknown purpose",
    }
}

/// Returns the machine-readable name of a kind.
pub(crate) fn key(kind: BlockUse) -> &'static str {
    match kind {
        BlockUse::Headers => "headers",
        BlockUse::Allocation => "allocation",
        BlockUse::Inodes => "inodes",
        BlockUse::Log => "log",
        BlockUse::Directories => "directories",
        BlockUse::Attributes => "attributes",
        BlockUse::Maps => "maps",
        BlockUse::Data => "data",
        BlockUse::Shared => "shared",
        BlockUse::Preallocated => "preallocated",
        BlockUse::System => "system",
        BlockUse::Bad => "bad",
        BlockUse::Free => "free",
        BlockUse::Unknown => "unknown",
    }
}

/// Returns the state of the log, human-readable and machine-readable.
pub(crate) fn log_words(state: LogState) -> (&'static str, &'static str) {
    match state {
        LogState::None => ("there is none", "none"),
        LogState::Elsewhere => ("on another device", "elsewhere"),
        LogState::Clean => ("clean", "clean"),
        LogState::Replayed => {
            ("must be replayed; the map shows the image after replay", "replayed")
        }
        LogState::Ignored => {
            ("must be replayed; the map shows the image without replay", "ignored")
        }
        LogState::Unreadable => {
            ("cannot be read; the map shows the image without it", "unreadable")
        }
    }
}

/// Formats a number of bytes as `12.3 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut power = 0;
    while power + 1 < units.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    match power {
        0 => format!("{bytes} bytes"),
        _ => {
            let value = bytes as f64 / (1_u64 << (10 * power)) as f64;
            let shown = format!("{value:.1}");
            format!("{} {}", shown.strip_suffix(".0").unwrap_or(&shown), units[power])
        }
    }
}

/// Formats a share in per cent. A share above 0 is never shown as 0, and a share below 100 never as 100.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    let per_cent = part as f64 * 100.0 / whole as f64;
    match () {
        () if part == whole => "100 %".into(),
        () if per_cent < 0.01 => "< 0.01 %".into(),
        () if per_cent < 1.0 => format!("{per_cent:.2} %"),
        () if per_cent >= 99.95 => "> 99.9 %".into(),
        () => format!("{per_cent:.1} %"),
    }
}

/// Formats a number with its digits in groups of three.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number of items.
pub(crate) fn things(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a range of fragment counts.
pub(crate) fn pieces(bucket: &Bucket) -> String {
    match (bucket.from, bucket.to) {
        (1, _) => "1 piece".into(),
        (from, to) if to < 1000 => format!("{from} to {to}"),
        (from, _) => format!("{} or more", count(from)),
    }
}

/// Text for markup or quoted attributes. Replaces characters that are invalid in documents or that change the
/// appearance of the text around them.
pub(crate) struct Escaped<'t>(pub(crate) &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if c.is_control() || is_odd(c) => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Returns whether a character is invalid in documents, invisible, or changes the direction of text.
fn is_odd(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Formats a path. Bytes that are not UTF-8 are shown as numbers.
pub(crate) fn path_text(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_odd(c) {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(
            (size(0), size(1536), size(1 << 40)),
            ("0 bytes".into(), "1.5 KiB".into(), "1 TiB".into())
        );
        assert_eq!(
            (count(7), count(1234), count(1_234_567)),
            ("7".into(), "1,234".into(), "1,234,567".into())
        );
        let shares = [(0, 5), (5, 5), (1, 1 << 40), (1, 3), (999_999, 1_000_000), (1, 200)];
        let shown: Vec<String> =
            shares.into_iter().map(|(part, whole)| share(part, whole)).collect();
        assert_eq!(shown, ["0 %", "100 %", "< 0.01 %", "33.3 %", "> 99.9 %", "0.50 %"]);
        assert_eq!(things(1, "file", "files"), "1 file");
    }

    #[test]
    fn names_are_never_interpreted_as_markup() {
        let name = "<script>'\"&\u{0}\u{202e}\u{ffff}";
        let shown = Escaped(name).to_string();
        assert_eq!(shown, "&lt;script&gt;&#39;&quot;&amp;\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(path_text(b"/a\n\xff\xc3\xa4"), "/a\\u{a}\\xff\u{e4}");
    }
}
