//! Parsing of numbers of files, threads and rounds.

/// Parses a count: digits, then nothing, K, M or G (powers of 1000), at least 1.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let problem = || {
        format!(
            "{text:?} is not a number: write digits, or a number such as 10k or 2M (powers of 1000)"
        )
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(problem());
    }
    let power = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        unit => return Err(format!("{unit:?} is not a unit of counts: use K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| problem())?;
    match number.checked_mul(1000_u64.pow(power)) {
        Some(0) => Err("must be at least 1".into()),
        Some(count) => Ok(count),
        None => Err(format!("{text:?} does not fit into 64 bits")),
    }
}

/// Parses a count with a smaller range, for threads and rounds.
pub(super) fn small_count(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_decimal_units() {
        for (text, expected) in [
            ("1", 1),
            ("10000", 10_000),
            ("10k", 10_000),
            ("20K", 20_000),
            ("2M", 2_000_000),
            ("3g", 3_000_000_000),
        ] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_counts_are_refused_with_a_reason() {
        for (text, reason) in [
            ("0", "at least 1"),
            ("0k", "at least 1"),
            ("", "not a number"),
            ("k", "not a number"),
            ("-1", "not a number"),
            ("+1", "not a number"),
            ("1.5M", "not a number"),
            ("é", "not a number"),
            ("10KiB", "not a unit"),
            ("18446744073709551616", "not a number"),
            ("18446744073709552K", "not fit into 64 bits"),
        ] {
            let said = count(text).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
        }
        assert!(small_count("5G").unwrap_err().contains("too large"));
        assert_eq!(small_count("128"), Ok(128));
    }
}
