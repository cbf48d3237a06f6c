//! Formatting of bytes as text.

use super::DumpValue;
use crate::text::hex;

/// Bytes on a line.
const LINE_BYTES: usize = 16;

/// Returns bytes as text, or as `0x` and hexadecimal digits if they are not UTF-8.
pub(super) fn bytes_text(bytes: &[u8]) -> DumpValue {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.unwrap_or_else(|_| format!("0x{}", hex(bytes))).into()
}

/// Formats bytes as lines of offset, hexadecimal and text. Repeated lines are omitted.
pub(super) fn hex_lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut before: &[u8] = &[];
    let mut is_skipping = false;
    for (number, line) in bytes.chunks(LINE_BYTES).enumerate() {
        if line == before {
            text.push_str(if is_skipping { "" } else { "*\n" });
            is_skipping = true;
            continue;
        }
        (before, is_skipping) = (line, false);
        let shown = |&byte: &u8| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' };
        let letters: String = line.iter().map(shown).collect();
        let digits: Vec<String> = line.chunks(4).map(hex).collect();
        text.push_str(&format!("{:06x}  {:<36}{letters}\n", number * LINE_BYTES, digits.join(" ")));
    }
    text
}
