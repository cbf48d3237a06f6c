//! The part of a page about one workload.

use maud::{Markup, html};

use super::table;
use crate::report::make::distinct;
use crate::report::number::{NONE, count_of, rate, seconds, share};
use crate::report::plot::{self, Axes, Bar, Line, Looks, Point};
use crate::report::{OTHERS, Row, Workload, everybody, tables, text};

/// Renders plots, then tables, then published figures.
pub(super) fn section(place: usize, workload: &Workload, looks: &Looks<'_>) -> Markup {
    let steps = distinct(workload.rows.iter().map(|row| row.step.as_str()));
    let bases = tables::bases(workload);
    html! {
        section {
            h2 id={ "w" (place) } { (workload.name) }
            p { (workload.what) }
            @let missing = text::missing(workload);
            @if !missing.is_empty() { ul class="missing" { @for line in missing { li { (line) } } } }
            (legend(workload, looks))
            div class="plots" { @for step in steps { (plots(workload, step, looks)) } }
            div class="tables" {
                @for (step, all) in tables::steps(workload) {
                    @let by_size = tables::by_size(workload, step);
                    @if let Some(by_size) = &by_size {
                        details open {
                            summary { (tables::by_size_caption(workload, step)) }
                            (table(by_size, looks))
                        }
                    }
                    // Collapsed if the other table exists: this one has hundreds of lines.
                    details open[by_size.is_none()] {
                        summary { (step) @if by_size.is_some() { ": all figures" } }
                        (table(&all, looks))
                    }
                }
                @let sizes = everybody::sizes(workload);
                @if !sizes.is_empty() { p class="note" { "File systems: " (sizes.join(", ")) "." } }
                @if !bases.is_empty() { p class="note" { "Overheads (+): " (bases.join("; ")) "." } }
                @if let Some(flatness) = tables::flatness(workload) {
                    details open { summary { (tables::flatness_caption(workload)) } (table(&flatness, looks)) }
                }
                @for published in &workload.published {
                    details open class="others" {
                        summary { "published: " (published.source) }
                        p class="note" { (OTHERS) }
                        (table(&tables::published(published), looks))
                    }
                }
            }
        }
    }
}

fn legend(workload: &Workload, looks: &Looks<'_>) -> Markup {
    let names = distinct(workload.rows.iter().map(|row| row.contestant.as_str()));
    html! {
        ul class="legend" {
            @for name in names {
                @let look = looks.of(name);
                li { (look.swatch()) " " b { (look.letter()) } " " span class="who" { (name) } }
            }
        }
    }
}

/// Renders the plots of a step: lines for several sizes, otherwise bars.
fn plots(workload: &Workload, step: &str, looks: &Looks<'_>) -> Markup {
    let rows: Vec<&Row> = workload.rows.iter().filter(|row| row.step == step).collect();
    let sizes = distinct(rows.iter().map(|row| row.x));
    let figure = |caption: String, plot: Markup| {
        html! {
            figure { figcaption { (caption) } (plot) }
        }
    };
    match sizes[..] {
        [size] => {
            let at = count_of(size, &workload.axis);
            let (rates, times) = (rates(workload, &rows, looks), processor_times(&rows, looks));
            html! {
                (figure(format!("{step}: {}, {at}", workload.unit), rates))
                (figure(format!("{step}: processor time, {at} (solid: in the kernel)"), times))
            }
        }
        _ => {
            let title = format!("{step}: {} by {}", workload.unit, workload.axis);
            let axes = Axes { x: &workload.axis, y: &workload.unit, title };
            figure(step.to_owned(), plot::lines(&axes, &lines(workload, &rows, looks)))
        }
    }
}

fn lines(workload: &Workload, rows: &[&Row], looks: &Looks<'_>) -> Vec<Line> {
    let point = |row: &Row| {
        let y = row.rate?;
        Some(Point { x: row.x, y, range: range(row), about: about(workload, row) })
    };
    let line = |name| {
        let mine = rows.iter().filter(|row| row.contestant == name);
        let mut points: Vec<Point> = mine.filter_map(|row| point(row)).collect();
        points.sort_by_key(|point| point.x);
        Line { look: looks.of(name), points }
    };
    distinct(rows.iter().map(|row| row.contestant.as_str())).into_iter().map(line).collect()
}

/// Returns the rates of the slowest and of the fastest run.
fn range(row: &Row) -> (f64, f64) {
    let operations = row.operations as f64;
    (operations / row.wall.max_s, operations / row.wall.min_s)
}

/// Returns the exact figures of a row.
fn about(workload: &Workload, row: &Row) -> String {
    let (runs, spread) = (row.wall.runs, share(row.wall.spread));
    let rate =
        row.rate.map_or_else(|| NONE.to_owned(), |rate| format!("{rate:.0} {}", workload.unit));
    format!(
        "{}\n{}, {}: {rate}\nwall {:.6} s, user {:.6} s, system {:.6} s\nruns {runs}, spread {spread}",
        row.contestant,
        row.step,
        count_of(row.x, &workload.axis),
        row.wall.median_s,
        row.user.median_s,
        row.system.median_s,
    )
}

fn rates(workload: &Workload, rows: &[&Row], looks: &Looks<'_>) -> Markup {
    let bars = rows.iter().map(|row| Bar {
        look: looks.of(&row.contestant),
        name: &row.contestant,
        parts: vec![row.rate.unwrap_or(0.0)],
        range: Some(range(row)),
        label: rate(row.rate, &workload.unit),
        about: about(workload, row),
    });
    plot::bars("rates", &bars.collect::<Vec<_>>())
}

/// System time comes first, because it is the relevant part for a file system.
fn processor_times(rows: &[&Row], looks: &Looks<'_>) -> Markup {
    let bars = rows.iter().map(|row| {
        let (user, system) = (row.user.median_s, row.system.median_s);
        let more = row
            .overhead
            .as_ref()
            .and_then(|overhead| overhead.processor)
            .map(|sure| format!(" ({})", sure.change()));
        let more = more.unwrap_or_default();
        let label = format!("{} s system, {} s user{more}", seconds(system), seconds(user));
        let about = format!("{}\nsystem {system:.6} s, user {user:.6} s", row.contestant);
        let (look, name) = (looks.of(&row.contestant), row.contestant.as_str());
        Bar { look, name, parts: vec![system, user], range: None, label, about }
    });
    plot::bars("processor times", &bars.collect::<Vec<_>>())
}
