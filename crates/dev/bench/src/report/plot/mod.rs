//! Plots as inline SVG.
//!
//! Chart libraries were rejected: plotters writes colours and fonts into every element, which prevents a dark mode, and
//! has no tooltips without scripts; charming draws with a script. Only lines and bars are needed. The templates escape
//! all text.
//!
//! Lengths are units of the view box, which the page scales to its columns.

mod bars;
mod lines;
mod look;
mod scale;

pub(super) use bars::{Bar, bars};
pub(super) use lines::{Axes, Line, Point, lines};
pub(super) use look::{Look, Looks};

/// Width of every plot.
const WIDTH: f64 = 480.0;
/// Average width of a letter in plots, rather an overestimate.
const LETTER: f64 = 7.0;

/// Formats a coordinate briefly with sufficient precision.
fn coordinate(value: f64) -> String {
    let text = format!("{:.1}", if value.is_finite() { value } else { 0.0 });
    text.trim_end_matches(".0").to_owned()
}

/// Returns the width of a text.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Truncates a text to `letters_max` letters.
fn shortened(text: &str, letters_max: usize) -> String {
    if text.chars().count() <= letters_max {
        return text.to_owned();
    }
    text.chars().take(letters_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{coordinate, shortened};

    #[test]
    fn coordinates_are_numbers_whatever_comes() {
        assert_eq!(coordinate(12.0), "12");
        assert_eq!(coordinate(0.123), "0.1");
        assert_eq!([coordinate(f64::NAN), coordinate(f64::INFINITY)], ["0", "0"]);
    }

    #[test]
    fn long_texts_show_that_they_go_on() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("äbcd", 3), "äb…");
    }
}
