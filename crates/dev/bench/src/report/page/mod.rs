//! A report as a self-contained page without scripts, for light and dark mode, phones and printing.

mod everybody;
mod summary;
mod workload;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Report;
use super::everybody::contestants;
use super::plot::Looks;
use super::table::{ColumnKind, Table};

const STYLE: &str = include_str!("style.css");

/// Prevents the page from loading or executing anything, even if a name contained markup.
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
                    (summary::summary(report, &looks))
                    (summary::headlines(report, &looks))
                    (conditions(report))
                    @for (place, workload) in report.workloads.iter().enumerate() {
                        (workload::section(place, workload, &looks))
                    }
                    (everybody::section(&contestants, &looks))
                }
            }
        }
    };
    page.into_string()
}

fn conditions(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Method" }
            pre class="command" { code { (report.command) } }
            ul { @for line in report.conditions() { li { (line) } } }
        }
    }
}

/// Renders a table that scrolls separately if it is too wide. Contestants in its titles are shown by their letters.
fn table(table: &Table, looks: &Looks<'_>) -> Markup {
    let class = |kind: ColumnKind| if kind.is_figure() { "figure" } else { "words" };
    html! {
        div class="scroll" tabindex="0" {
            table {
                thead { tr { @for (kind, title) in &table.titles {
                    @if *kind == ColumnKind::FigureOf {
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
                                    @if *kind == ColumnKind::Contestant { (looks.of(cell).swatch()) " " }
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

/// Returns whether a rule separates this line from the preceding group of lines with the same size.
fn is_new_group(table: &Table, place: usize) -> bool {
    let first = |place: usize| table.rows.get(place).and_then(|cells| cells.first());
    let has_groups = table.rows.windows(2).any(|pair| pair[0].first() == pair[1].first());
    has_groups && place > 0 && first(place - 1) != first(place)
}
