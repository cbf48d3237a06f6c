//! Colour, mark and letter of a contestant, consistent within a page.

use maud::{Markup, html};

use super::coordinate;

/// Number of colours in the style sheet, as classes `c0` to `c7`.
const COLOURS: usize = 8;
/// Number of shapes. Coprime to the number of colours, so that pairs repeat late.
const SHAPES: usize = 7;
/// Half of the size of a mark.
const SIZE: f64 = 4.5;

/// Appearance of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look(usize);

/// Appearance of all contestants.
pub(crate) struct Looks<'r>(Vec<&'r str>);

impl<'r> Looks<'r> {
    /// Creates it from the names in the order of their letters.
    pub(crate) fn new(names: Vec<&'r str>) -> Self {
        Self(names)
    }

    /// Returns the appearance of a contestant.
    pub(crate) fn of(&self, name: &str) -> Look {
        Look(self.0.iter().position(|known| *known == name).unwrap_or(self.0.len()))
    }
}

impl Look {
    /// `A` to `Z`, then numbers.
    pub(crate) fn letter(self) -> String {
        match u8::try_from(self.0) {
            Ok(place @ 0..26) => char::from(b'A' + place).to_string(),
            _ => (self.0 + 1).to_string(),
        }
    }

    /// Returns the CSS classes.
    pub(crate) fn class(self) -> String {
        let dashed = if self.0 < COLOURS { "" } else { " again" };
        format!("c{}{dashed}", self.0 % COLOURS)
    }

    /// Renders its mark around a point.
    pub(crate) fn mark(self, x: f64, y: f64) -> Markup {
        let at = |points: &[(f64, f64)]| {
            let points = points.iter().map(|(dx, dy)| {
                format!("{} {}", coordinate(x + dx * SIZE), coordinate(y + dy * SIZE))
            });
            format!("M{}Z", points.collect::<Vec<_>>().join("L"))
        };
        let path = match self.0 % SHAPES {
            0 => {
                return html! { circle class="mark" cx=(coordinate(x)) cy=(coordinate(y)) r="4" {} };
            }
            1 => at(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]),
            2 => at(&[(0.0, -1.1), (1.1, 0.8), (-1.1, 0.8)]),
            3 => at(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
            4 => at(&[(0.0, 1.1), (1.1, -0.8), (-1.1, -0.8)]),
            5 => at(&[(-1.2, -0.45), (1.2, -0.45), (1.2, 0.45), (-1.2, 0.45)]),
            _ => at(&[(-0.45, -1.2), (0.45, -1.2), (0.45, 1.2), (-0.45, 1.2)]),
        };
        html! { path class="mark" d=(path) {} }
    }

    /// Renders a short piece of its line for a legend.
    pub(crate) fn swatch(self) -> Markup {
        html! {
            svg class={ "swatch " (self.class()) } viewBox="0 0 30 12" width="30" height="12" aria-hidden="true" {
                path class="line" d="M1 6H29" {}
                (self.mark(15.0, 6.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Looks;

    #[test]
    fn looks_differ() {
        let names: Vec<String> = (0..40).map(|name| name.to_string()).collect();
        let looks = Looks::new(names.iter().map(String::as_str).collect());
        let look = |name: &str| {
            let look = looks.of(name);
            (look.letter(), look.class(), look.mark(0.0, 0.0).into_string())
        };
        assert_eq!([look("0").0, look("25").0, look("26").0], ["A", "Z", "27"]);
        for one in &names {
            for other in names.iter().filter(|other| *other != one) {
                let (a, b) = (look(one), look(other));
                assert_ne!(a.0, b.0);
                assert_ne!((a.1, a.2), (b.1, b.2), "{one} and {other}");
            }
        }
    }
}
