//! Human-readable numbers with three significant digits, which exceed the precision of a measurement.

/// Placeholder for a missing figure.
pub(crate) const NONE: &str = "–";

const PREFIXES: [(f64, &str); 4] = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// Formats three significant digits, and all digits before the point: `0.0321`, `18.5`, `3913`.
pub(crate) fn plain(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size == 0.0 {
        "0".to_owned()
    } else if size < 1e-4 {
        format!("{value:.2e}")
    } else {
        // 9.996 is rounded to 10.0, which needs one decimal less.
        let digits = (size * 1.0005).log10().floor() as i32;
        format!("{value:.*}", usize::try_from(2 - digits).unwrap_or(0))
    }
}

/// Formats three significant digits with a prefix: `1.23 M`.
pub(crate) fn short(value: f64) -> String {
    // From here on three digits round up to the next prefix.
    let fits = |unit: f64| value.abs() >= unit * 0.9995;
    let prefix = PREFIXES.into_iter().find(|&(unit, _)| fits(unit));
    match prefix {
        Some((unit, prefix)) if value.is_finite() && unit > 1.0 => {
            format!("{} {prefix}", plain(value / unit))
        }
        _ => plain(value),
    }
}

/// Formats a rate with its unit: `1.23 M files/s`.
pub(crate) fn rate(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{} {unit}", short(value)))
}

/// Formats a count exactly: `20 k`, `3.2 M`, `262,144`.
pub(crate) fn count(value: u64) -> String {
    let prefix = PREFIXES.iter().find(|&&(unit, _)| unit > 1.0 && value >= unit as u64);
    let Some(&(unit, prefix)) = prefix else { return value.to_string() };
    // With more than two decimals it would not be shorter.
    let hundredth = unit as u64 / 100;
    if !value.is_multiple_of(hundredth) {
        return grouped(value);
    }
    let (whole, rest) = (value / unit as u64, value / hundredth % 100);
    let fraction = format!(".{rest:02}");
    format!("{}{} {prefix}", grouped(whole), fraction.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats a count with a unit given in the plural: `1 thread`, `20 k files`.
pub(crate) fn count_of(value: u64, plural: &str) -> String {
    let name = match plural.strip_suffix("ies") {
        _ if value != 1 => plural.to_owned(),
        Some(stem) => format!("{stem}y"),
        None => plural.strip_suffix('s').unwrap_or(plural).to_owned(),
    };
    format!("{} {name}", count(value))
}

/// Formats seconds with three significant digits, at a resolution of 10 µs.
pub(crate) fn seconds(value: f64) -> String {
    if value > 0.0 && value < 1e-5 {
        "<0.00001".to_owned()
    } else if value > 0.0 && value < 1e-2 {
        format!("{value:.5}")
    } else {
        plain(value)
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a difference in per cent with its sign: `+8.3 %`.
pub(crate) fn change(percent: Option<f64>) -> String {
    percent.map_or_else(
        || NONE.to_owned(),
        |percent| {
            let digits = if percent.abs() < 10.0 { 1 } else { 0 };
            format!("{percent:+.digits$} %")
        },
    )
}

/// Formats a share in per cent.
pub(crate) fn share(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:.0} %", ratio * 100.0) } else { NONE.to_owned() }
}

/// Formats a ratio: `7.0 ×`, `0.94 ×`, `128 ×`.
pub(crate) fn times(ratio: Option<f64>) -> String {
    match ratio.filter(|ratio| ratio.is_finite()) {
        None => NONE.to_owned(),
        Some(ratio) if ratio < 1.995 => format!("{ratio:.2} ×"),
        Some(ratio) if ratio < 99.95 => format!("{ratio:.1} ×"),
        Some(ratio) => format!("{} ×", plain(ratio)),
    }
}

/// Formats a size: `8 GiB`, `1.5 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| value >= 1 << shift);
    unit.map_or_else(
        || format!("{value} B"),
        |(shift, unit)| {
            let number = format!("{:.1}", value as f64 / (1_u64 << shift) as f64);
            format!("{} {unit}", number.trim_end_matches(".0"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{NONE, bytes, change, count, count_of, plain, rate, seconds, share, short, times};

    #[test]
    fn three_digits_count() {
        let cases = [
            (0.0, "0"),
            (0.03214, "0.0321"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (18.54, "18.5"),
            (99.97, "100"),
            (3913.4, "3913"),
            (-1.5, "-1.50"),
            (0.000_012_34, "1.23e-5"),
        ];
        for (value, expected) in cases {
            assert_eq!(plain(value), expected);
        }
        let cases = [
            (1_234_567.0, "1.23 M"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (18_540.0, "18.5 k"),
            (2.5e9, "2.50 G"),
            (0.5, "0.500"),
            (999_600.0, "1.00 M"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
        for strange in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(plain(strange), NONE);
            assert_eq!(short(strange), NONE);
            assert_eq!(share(strange), NONE);
            assert_eq!(times(Some(strange)), NONE);
        }
    }

    #[test]
    fn counts_are_exact() {
        let cases = [
            (0, "0"),
            (128, "128"),
            (10_000, "10 k"),
            (262_144, "262,144"),
            (2_000_000, "2 M"),
            (1_234_000, "1,234,000"),
            (3_200_000, "3.2 M"),
            (1_250, "1.25 k"),
            (2_501, "2,501"),
            (4_096, "4,096"),
            (10_000_000_000, "10 G"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ];
        for (value, expected) in cases {
            assert_eq!(count(value), expected);
        }
    }

    #[test]
    fn one_thing_is_no_plural() {
        let one = ["threads", "files", "entries"].map(|axis| count_of(1, axis));
        assert_eq!(one, ["1 thread", "1 file", "1 entry"]);
        assert_eq!([count_of(0, "files"), count_of(20_000, "files")], ["0 files", "20 k files"]);
    }

    #[test]
    fn seconds_have_no_digits_that_nobody_measured() {
        let shown = [0.0, 3e-6, 0.001_234_5, 0.0567, 18.54, 3913.4, f64::NAN].map(seconds);
        assert_eq!(shown, ["0", "<0.00001", "0.00123", "0.0567", "18.5", "3913", NONE]);
    }

    #[test]
    fn units_stand_behind() {
        assert_eq!(rate(Some(20_700.0), "files/s"), "20.7 k files/s");
        assert_eq!(rate(None, "files/s"), NONE);
        assert_eq!(
            [change(Some(8.26)), change(Some(-27.9)), change(None)],
            ["+8.3 %", "-28 %", NONE]
        );
        assert_eq!(times(Some(7.02)), "7.0 ×");
        assert_eq!(times(Some(0.938)), "0.94 ×");
        assert_eq!(times(Some(128.9)), "129 ×");
        assert_eq!([bytes(512), bytes(1536), bytes(8 << 30)], ["512 B", "1.5 KiB", "8 GiB"]);
    }
}
