//! Syntax of sizes.

/// Size of a sector, the unit of the letter `s`.
const SECTOR_BYTES: u64 = 512;

/// Number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Default unit of the program, without a letter.
    Units(u64),
    /// Bytes.
    Bytes(u64),
    /// File system blocks.
    Blocks(u64),
}

impl Size {
    /// Converts to bytes. `unit` is the size of the default unit.
    pub(crate) fn bytes(self, unit: u64) -> Option<u64> {
        match self {
            Self::Units(count) => count.checked_mul(unit),
            Self::Bytes(bytes) => Some(bytes),
            Self::Blocks(_) => None,
        }
    }
}

/// Same as [`parse`], but also accepts the letter `b` (blocks), as the XFS programs do.
pub(crate) fn parse_xfs(text: &str) -> Result<Size, String> {
    match text.strip_suffix(['b', 'B']).map(str::parse) {
        Some(Ok(blocks)) => Ok(Size::Blocks(blocks)),
        _ => parse(text),
    }
}

/// Parses a number with the letter `s` (sectors of 512 bytes), `k`, `m`, `g`, `t` or `p` (powers of 1024), or none.
pub(crate) fn parse(text: &str) -> Result<Size, String> {
    let problem = || "write a number, followed by s, k, m, g or t".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| problem())?;
    let unit = match &*text[end..].to_ascii_lowercase() {
        "" => return Ok(Size::Units(number)),
        "s" => SECTOR_BYTES,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        "p" | "pb" => 1 << 50,
        _ => return Err(problem()),
    };
    number.checked_mul(unit).map(Size::Bytes).ok_or_else(|| "it is too large".to_owned())
}

/// Parses a number of bytes, with or without a letter.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    parse(text)?.bytes(1).ok_or_else(|| "it is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_say_what_is_counted() {
        assert_eq!(parse("17"), Ok(Size::Units(17)));
        assert_eq!(parse("17").unwrap().bytes(1024), Some(17 << 10));
        assert_eq!(parse("8s"), Ok(Size::Bytes(4096)));
        assert_eq!(parse("3G"), Ok(Size::Bytes(3 << 30)));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_xfs("64b"), Ok(Size::Blocks(64)));
        assert_eq!(parse_xfs("64kb"), Ok(Size::Bytes(64 << 10)));
        for wrong in ["", "k", "-1", "1q", "64b", "1.5g", "20000000000000000000", "20000000000t"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Size::Units(u64::MAX).bytes(2), None);
    }
}
