//! Bar charts: one figure for each contestant.

use maud::{Markup, html};

use super::{Look, WIDTH, coordinate, shortened, text_width};

/// Height of a bar with its name above it.
const ROW: f64 = 38.0;
const MARGIN: f64 = 6.0;
const THICKNESS: f64 = 12.0;

/// One contestant.
pub(crate) struct Bar<'r> {
    pub(crate) look: Look,
    pub(crate) name: &'r str,
    /// Parts of a stacked bar, at most two.
    pub(crate) parts: Vec<f64>,
    /// Minimum and maximum of the runs, for the total.
    pub(crate) range: Option<(f64, f64)>,
    /// The figure as text.
    pub(crate) label: String,
    /// The exact figures as text.
    pub(crate) about: String,
}

/// Draws bars from zero.
pub(crate) fn bars(title: &str, bars: &[Bar<'_>]) -> Markup {
    let height = ROW * bars.len() as f64 + MARGIN;
    let ends = bars.iter().flat_map(|bar| {
        [drawable(bar.parts.iter().sum()), bar.range.map_or(0.0, |range| drawable(range.1))]
    });
    let longest = ends.fold(0.0, f64::max);
    let scale = if longest > 0.0 { (WIDTH - 2.0 * MARGIN) / longest } else { 0.0 };
    html! {
        svg class="plot" role="img" viewBox={ "0 0 " (WIDTH) " " (coordinate(height)) } {
            title { (title) }
            @for (place, bar) in bars.iter().enumerate() {
                (draw(bar, ROW * place as f64 + MARGIN, scale))
            }
        }
    }
}

/// Values that cannot be drawn have length 0.
fn drawable(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

fn draw(bar: &Bar<'_>, top: f64, scale: f64) -> Markup {
    let room = WIDTH - 2.0 * MARGIN - text_width(&bar.label) - 12.0;
    let letters = (room.max(0.0) / super::LETTER) as usize;
    let name = format!("{} {}", bar.look.letter(), bar.name);
    let baseline = coordinate(top + 12.0);
    let bar_top = top + 18.0;
    let middle = coordinate(bar_top + THICKNESS / 2.0);
    let mut from = MARGIN;
    let parts = bar.parts.iter().map(|part| {
        let length = drawable(*part) * scale;
        from += length;
        (from - length, length)
    });
    let parts: Vec<(f64, f64)> = parts.collect();
    html! {
        g class=(bar.look.class()) {
            title { (bar.about) }
            text class="name" x=(MARGIN) y=(baseline) { (shortened(&name, letters)) }
            text class="value" x=(coordinate(WIDTH - MARGIN)) y=(baseline) { (bar.label) }
            @for (place, (x, length)) in parts.iter().enumerate() {
                rect class={ "bar p" (place) } x=(coordinate(*x)) y=(coordinate(bar_top))
                    width=(coordinate(length.max(0.5))) height=(THICKNESS) {}
            }
            @if let Some((low, high)) = bar.range {
                @let (low, high) = (MARGIN + drawable(low) * scale, MARGIN + drawable(high) * scale);
                path class="range" d={ "M" (coordinate(low)) " " (middle) "H" (coordinate(high)) } {}
            }
        }
    }
}
