//! Plots as inline SVG: what is drawn, and how the contestants look.
//!
//! Chart libraries were looked at and left aside: plotters writes colours and fonts into every element,
//! so that a page cannot be dark and has no tooltips without scripts; charming draws with a script.
//! What is drawn here is lines and bars. All text is escaped by the templates.
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
/// Width of a letter, on average, in the text of plots. Rather too wide than too narrow.
const LETTER: f64 = 7.0;

/// A coordinate, as short as it can be and still be exact enough.
fn coordinate(value: f64) -> String {
    let text = format!("{:.1}", if value.is_finite() { value } else { 0.0 });
    text.trim_end_matches(".0").to_owned()
}

/// The room that a text takes.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// A text of at most so many letters.
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
