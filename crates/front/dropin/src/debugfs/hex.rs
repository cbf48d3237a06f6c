//! Bytes in hexadecimal.

use std::fmt::Write;

/// Bytes in a line of a dump.
const LINE: usize = 16;

/// Returns bytes in hexadecimal, with octal offsets. Repeated lines are omitted.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut last, mut is_repeated) = (&[][..], false);
    for (at, line) in bytes.chunks(LINE).enumerate() {
        if line == last {
            if !is_repeated {
                out.push_str("*\n");
            }
            is_repeated = true;
            continue;
        }
        (last, is_repeated) = (line, false);
        let _ = write!(out, "{:04o}  ", at * LINE);
        for pair in line.chunks(2) {
            pair.iter().for_each(|byte| {
                let _ = write!(out, "{byte:02x}");
            });
            out.push(' ');
        }
        let missing = LINE - line.len();
        out.extend(std::iter::repeat_n(' ', missing * 2 + missing / 2 + 1));
        out.extend(
            line.iter().map(|&byte| {
                if byte.is_ascii_graphic() || byte == b' ' { byte.into() } else { '.' }
            }),
        );
        out.push('\n');
    }
    out
}
