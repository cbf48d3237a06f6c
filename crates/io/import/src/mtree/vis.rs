//! Names in manifests, with the escapes of vis(3). No I/O.

use crate::rule_file::fault::RuleFault;

/// Decodes a name: `\ooo` octal, `\s` and similar as in C, `\^A` control characters, `\M-a` and `\M^A` with the highest
/// bit.
pub(super) fn decode(field: &[u8]) -> Result<Vec<u8>, RuleFault> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let (byte, len) = escape(after).ok_or_else(|| {
            RuleFault::expected("name", "escapes of vis(3), such as \\040 or \\s", field)
        })?;
        bytes.extend(byte);
        rest = &after[len..];
    }
    Ok(bytes)
}

/// Decodes the text after a backslash: the byte, if there is one, and the length of the escape.
fn escape(after: &[u8]) -> Option<(Option<u8>, usize)> {
    let digits = after.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
    if digits > 0 {
        let value =
            after[..digits].iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
        return u8::try_from(value).ok().map(|byte| (Some(byte), digits));
    }
    let byte = match *after {
        [b'M', b'-', byte, ..] => return Some((Some(byte | 0x80), 3)),
        [b'M', b'^', byte, ..] => return Some((Some(control(byte) | 0x80), 3)),
        [b'^', byte, ..] => return Some((Some(control(byte)), 2)),
        [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
            return Some((Some(digit(high)? << 4 | digit(low)?), 3));
        }
        // An escape without a byte.
        [b'$', ..] => return Some((None, 1)),
        [byte, ..] => byte,
        [] => return None,
    };
    let byte = match byte {
        b's' => b' ',
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'E' => 27,
        byte if byte.is_ascii_alphanumeric() => return None,
        byte => byte,
    };
    Some((Some(byte), 1))
}

fn control(byte: u8) -> u8 {
    if byte == b'?' { 0x7f } else { byte & 0x1f }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn escapes_stand_for_bytes() {
        for (field, name) in [
            (&br"l\040k"[..], &b"l k"[..]),
            (br"l\sk\#\\", b"l k#\\"),
            (br"nl\nx\012", b"nl\nx\n"),
            (br"\M^?\^A\M-a\M^A", b"\xff\x01\xe1\x81"),
            (br"\377\0a", b"\xff\0a"),
            (br"\x41\$b", b"Ab"),
        ] {
            assert_eq!(decode(field).unwrap(), name);
        }
        for field in [&b"a\\"[..], br"\777", br"\q", br"\M"] {
            assert!(decode(field).is_err());
        }
    }
}
