//! A report as one page: no scripts, nothing from anywhere else, light and dark, on a phone and on
//! paper.

mod workload;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::headline::{Headline, headlines};
use super::make::distinct;
use super::number::{NONE, count, rate, times};
use super::plot::Looks;
use super::table::{Kind, Table};
use super::{Report, Row, text};
use crate::contestant::Description;

const STYLE: &str = include_str!("style.css");

/// Lets the page load and run nothing at all, whatever names in it look like.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page.
pub(super) fn page(report: &Report, title: &str) -> String {
    let contestants = contestants(report);
    let looks = Looks::new(contestants.iter().map(|one| one.name.as_str()).collect());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    p class="date" { (report.date) }
                }
                @for warning in report.warnings() { p class="warning" { (warning) } }
                main {
                    (summary(report, &looks))
                    (conditions(report))
                    @for (place, workload) in report.workloads.iter().enumerate() {
                        (workload::section(place, workload, &looks))
                    }
                    (everybody(report, &contestants, &looks))
                }
            }
        }
    };
    page.into_string()
}

/// Everyone that was to take part in something, each once.
fn contestants(report: &Report) -> Vec<&Description> {
    let all = || report.workloads.iter().flat_map(|workload| &workload.contestants);
    let names = distinct(all().map(|one| &one.name));
    names.into_iter().filter_map(|name| all().find(|one| one.name == *name)).collect()
}

fn summary(report: &Report, looks: &Looks<'_>) -> Markup {
    let headlines = headlines(report);
    if headlines.is_empty() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Summary" }
            p { "The best of ours and the best of the kernel’s, at the largest size that both ran. A "
                "flatness of 1 means that a contestant’s rate at its largest size is that at its smallest." }
            div class="tiles" {
                @for headline in &headlines { (tile(report, headline, looks)) }
            }
        }
    }
}

fn tile(report: &Report, headline: &Headline<'_>, looks: &Looks<'_>) -> Markup {
    let place = report.workloads.iter().position(|one| std::ptr::eq(one, headline.workload));
    let unit = &headline.workload.unit;
    let one = |row: Option<&Row>, whose: &str| {
        html! {
            div class="side" {
                @match row {
                    Some(row) => {
                        (looks.of(&row.contestant).swatch()) " " span class="who" { (row.contestant) } br;
                        b { (rate(row.rate, unit)) }
                        @if let Some(ratio) = headline.flatness(Some(row)) { ", flatness " (format!("{ratio:.2}")) }
                    }
                    None => { span class="none" { (whose) ": " (NONE) } }
                }
            }
        }
    };
    html! {
        a class="tile" href={ "#w" (place.unwrap_or_default()) } {
            div class="where" { b { (headline.workload.name) } ": " (headline.step) ", "
                (count(headline.x)) " " (headline.workload.axis) }
            @if headline.times().is_some() {
                div class="times" { (times(headline.times())) small { " the kernel’s rate" } }
            }
            (one(headline.ours, "ours"))
            (one(headline.kernel, "the kernel’s"))
        }
    }
}

fn conditions(report: &Report) -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            pre class="command" { code { (report.command) } }
            ul { @for line in report.conditions() { li { (line) } } }
        }
    }
}

/// Who is who, and what is not comparable.
fn everybody(report: &Report, contestants: &[&Description], looks: &Looks<'_>) -> Markup {
    html! {
        section {
            h2 id="contestants" { "Contestants" }
            dl {
                @for one in contestants {
                    @let look = looks.of(&one.name);
                    dt { (look.swatch()) " " b { (look.letter()) } " " span class="who" { (one.name) } }
                    dd {
                        p { (one.what) }
                        @if let Some(base) = &one.base { p { "Overheads against " span class="who" { (base) } "." } }
                        @if let Some(size) = text::size(report.workloads.iter(), &one.name) {
                            p { "File system: " (size) "." }
                        }
                        @if !one.features.is_empty() { p { "Features: " span class="who" { (one.features) } } }
                        @if !one.remarks.is_empty() {
                            p { "Not comparable:" }
                            ul { @for remark in &one.remarks { li { (remark) } } }
                        }
                    }
                }
            }
        }
    }
}

/// A table that scrolls by itself where it is too wide. Contestants in its titles are shown by their
/// letters, which the legend has.
fn table(table: &Table, looks: &Looks<'_>) -> Markup {
    let class = |kind: Kind| if kind.is_figure() { "figure" } else { "words" };
    html! {
        div class="scroll" tabindex="0" {
            table {
                thead { tr { @for (kind, title) in &table.titles {
                    @if *kind == Kind::FigureOf {
                        @let look = looks.of(title);
                        th class="figure" scope="col" title=(title) { (look.swatch()) " " (look.letter()) }
                    } @else {
                        th class=(class(*kind)) scope="col" { (title) }
                    }
                } } }
                tbody {
                    @for (place, cells) in table.rows.iter().enumerate() {
                        tr class=[is_new_group(table, place).then_some("group")] {
                            @for (cell, (kind, _)) in cells.iter().zip(&table.titles) {
                                td class=(class(*kind)) {
                                    @if *kind == Kind::Contestant { (looks.of(cell).swatch()) " " }
                                    (cell)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Where several lines are about the same size, a rule parts them from the next ones.
fn is_new_group(table: &Table, place: usize) -> bool {
    let first = |place: usize| table.rows.get(place).and_then(|cells| cells.first());
    let has_groups = table.rows.windows(2).any(|pair| pair[0].first() == pair[1].first());
    has_groups && place > 0 && first(place - 1) != first(place)
}
