//! Line charts over the sizes of cases: one line for each contestant, with its letter at the end.

use maud::{Markup, html};

use super::scale::Scale;
use super::{Look, WIDTH, coordinate, text_width};
use crate::report::number::{count, short};

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = HEIGHT - 44.0;
/// Space between the axis and the first point.
const INSET: f64 = 10.0;
/// Minimum distance of the letters at the ends of lines.
const LABEL_DISTANCE: f64 = 13.0;

/// Labels of the axes.
pub(crate) struct Axes<'r> {
    /// Unit of the horizontal axis.
    pub(crate) x: &'r str,
    /// Unit of the figures.
    pub(crate) y: &'r str,
    /// Description for accessibility.
    pub(crate) title: String,
}

/// One contestant.
pub(crate) struct Line {
    pub(crate) look: Look,
    /// Sorted by size.
    pub(crate) points: Vec<Point>,
}

/// One figure.
pub(crate) struct Point {
    pub(crate) x: u64,
    pub(crate) y: f64,
    /// Minimum and maximum of the runs.
    pub(crate) range: (f64, f64),
    /// The exact figures as text.
    pub(crate) about: String,
}

struct PlotFrame {
    x: Scale,
    y: Scale,
}

impl PlotFrame {
    fn of(lines: &[Line]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let xs: Vec<f64> = points().map(|point| point.x as f64).collect();
        let ys: Vec<f64> =
            points().flat_map(|point| [point.y, point.range.0, point.range.1]).collect();
        Self { x: Scale::of_sizes(&xs), y: Scale::of_figures(&ys) }
    }

    fn x(&self, value: u64) -> f64 {
        LEFT + INSET + self.x.place(value as f64) * (RIGHT - LEFT - 2.0 * INSET)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.y.place(value) * (BOTTOM - TOP)
    }
}

/// Draws lines.
pub(crate) fn lines(axes: &Axes<'_>, lines: &[Line]) -> Markup {
    let frame = PlotFrame::of(lines);
    html! {
        svg class="plot" role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
            title { (axes.title) }
            (horizontals(&frame, axes.y))
            (sizes(&frame, lines, axes.x))
            @for line in lines { (curve(&frame, line)) }
            @for line in lines { (marks(&frame, line)) }
            @for (look, x, y) in labels(&frame, lines) {
                text class={ "end " (look.class()) } x=(coordinate(x)) y=(coordinate(y)) { (look.letter()) }
            }
        }
    }
}

/// Renders horizontal lines with their figures, and the unit above.
fn horizontals(frame: &PlotFrame, unit: &str) -> Markup {
    html! {
        text class="unit" x="4" y="14" { (unit) }
        @for tick in frame.y.ticks() {
            @let y = frame.y(tick);
            path class="grid" d={ "M" (LEFT) " " (coordinate(y)) "H" (RIGHT) } {}
            text class="tick y" x=(coordinate(LEFT - 6.0)) y=(coordinate(y + 4.0)) { (short_tick(tick)) }
        }
    }
}

/// Formats a round figure without trailing decimals.
fn short_tick(value: f64) -> String {
    let text = short(value);
    let (number, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let is_fraction = number.contains('.') && !number.contains('e');
    let number =
        if is_fraction { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {prefix}").trim_end().to_owned()
}

/// Renders the sizes, as far as there is space.
fn sizes(frame: &PlotFrame, lines: &[Line], axis: &str) -> Markup {
    let mut values: Vec<u64> =
        lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
    values.sort_unstable();
    values.dedup();
    let kept = with_room(frame, &values);
    html! {
        @for &value in &values {
            @let x = coordinate(frame.x(value));
            path class="axis" d={ "M" (x) " " (BOTTOM) "v5" } {}
            @if kept.contains(&value) {
                text class="tick x" x=(x) y=(coordinate(BOTTOM + 18.0)) { (count(value)) }
            }
        }
        path class="axis" d={ "M" (LEFT) " " (BOTTOM) "H" (RIGHT) } {}
        text class="unit x" x=(coordinate(f64::midpoint(LEFT, RIGHT))) y=(coordinate(HEIGHT - 6.0)) { (axis) }
    }
}

/// Returns the first and the last size, and those in between that do not overlap.
fn with_room(frame: &PlotFrame, sizes: &[u64]) -> Vec<u64> {
    let half = |size: u64| text_width(&count(size)) / 2.0 + LETTER_SPACE;
    let touches = |a: u64, b: u64| frame.x(b) - frame.x(a) < half(a) + half(b);
    let mut kept: Vec<u64> = sizes.first().copied().into_iter().collect();
    let Some(&last) = sizes.last() else { return kept };
    for &size in sizes {
        let is_free = kept.last().is_none_or(|&before| !touches(before, size));
        if is_free && (size == last || !touches(size, last)) {
            kept.push(size);
        }
    }
    kept
}

/// Space on each side of a label.
const LETTER_SPACE: f64 = 2.0;

fn curve(frame: &PlotFrame, line: &Line) -> Markup {
    let at = |point: &Point| {
        format!("{} {}", coordinate(frame.x(point.x)), coordinate(frame.y(point.y)))
    };
    let path = line.points.iter().map(at).collect::<Vec<_>>().join("L");
    html! {
        @if line.points.len() > 1 {
            path class={ "line " (line.look.class()) } d={ "M" (path) } {}
        }
    }
}

fn marks(frame: &PlotFrame, line: &Line) -> Markup {
    html! {
        g class=(line.look.class()) {
            @for point in &line.points {
                @let (x, y) = (frame.x(point.x), frame.y(point.y));
                @let (low, high) = (frame.y(point.range.0), frame.y(point.range.1));
                g {
                    title { (point.about) }
                    path class="range" d={ "M" (coordinate(x)) " " (coordinate(low)) "V" (coordinate(high)) } {}
                    (line.look.mark(x, y))
                    circle class="touch" cx=(coordinate(x)) cy=(coordinate(y)) r="10" {}
                }
            }
        }
    }
}

/// Returns the positions of letters next to the ends of lines, without overlaps.
fn labels(frame: &PlotFrame, lines: &[Line]) -> Vec<(Look, f64, f64)> {
    let end = |line: &Line| {
        let last = line.points.last()?;
        Some((line.look, frame.x(last.x) + 9.0, frame.y(last.y) + 4.0))
    };
    let mut labels: Vec<_> = lines.iter().filter_map(end).collect();
    labels.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)));
    for column in labels.chunk_by_mut(|a, b| a.1 == b.1) {
        let places: Vec<f64> = column.iter().map(|label| label.2).collect();
        for (label, place) in column.iter_mut().zip(apart(&places, TOP, BOTTOM)) {
            label.2 = place;
        }
    }
    labels
}

/// Moves ascending positions apart by a minimum, within limits.
fn apart(places: &[f64], least: f64, greatest: f64) -> Vec<f64> {
    let distance = LABEL_DISTANCE.min((greatest - least) / places.len().max(1) as f64);
    let mut moved: Vec<f64> = Vec::new();
    for &place in places {
        let free = moved.last().map_or(least, |before| before + distance);
        moved.push(place.max(free));
    }
    let mut limit = greatest;
    for place in moved.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - distance;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::{apart, short_tick};

    #[test]
    fn labels_keep_their_distance() {
        assert_eq!(apart(&[10.0, 50.0], 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(apart(&[50.0, 50.0, 51.0], 0.0, 100.0), [50.0, 63.0, 76.0]);
        assert_eq!(apart(&[99.0, 99.0], 0.0, 100.0), [87.0, 100.0]);
        let crowd = apart(&[5.0; 50], 0.0, 100.0);
        assert!(crowd.windows(2).all(|pair| pair[1] > pair[0]));
        assert!(crowd[0] >= 0.0 && crowd[49] <= 100.0 + 1e-9, "{crowd:?}");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [20_000.0, 1e6, 0.0, 0.5, 2.5e5].map(short_tick),
            ["20 k", "1 M", "0", "0.5", "250 k"]
        );
    }
}
