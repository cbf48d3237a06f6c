//! The section with the most important figures.

use maud::{Markup, html};

use crate::report::number::{NONE, count_of, rate};
use crate::report::plot::Looks;
use crate::report::sides::{Sides, sides};
use crate::report::{HeadlineRow, HeadlineValue, Report, Row, Workload};

/// Renders our figures next to the kernel's.
pub(super) fn summary(report: &Report, looks: &Looks<'_>) -> Markup {
    let sides = sides(report);
    if sides.is_empty() {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Summary" }
            p { "One of ours and one of the kernel’s of the same format, set up as they are by default where such ones took "
                "part, at the largest size that both ran. A flatness of 1 means that a contestant’s rate at "
                "its largest size is that at its smallest." }
            div class="tiles" { @for sides in &sides { (tile(report, sides, looks)) } }
        }
    }
}

/// Returns the anchor of a workload's section.
fn address(report: &Report, workload: &Workload) -> String {
    let place = report.workloads.iter().position(|one| std::ptr::eq(one, workload));
    format!("#w{}", place.unwrap_or_default())
}

fn tile(report: &Report, sides: &Sides<'_>, looks: &Looks<'_>) -> Markup {
    let unit = &sides.workload.unit;
    let one = |row: Option<&Row>, whose: &str| {
        html! {
            div class="side" {
                @match row {
                    Some(row) => {
                        (looks.of(&row.contestant).swatch()) " " span class="who" { (row.contestant) } br;
                        b { (rate(row.rate, unit)) }
                        @if let Some(flatness) = sides.flatness(Some(row)) { ", flatness " (flatness.shown()) }
                    }
                    None => { span class="none" { (whose) ": " (NONE) } }
                }
            }
        }
    };
    html! {
        a class="tile" href=(address(report, sides.workload)) {
            div class="where" { b { (sides.workload.name) } ": " (sides.step) ", "
                (count_of(sides.x, &sides.workload.axis)) }
            @if let Some(ratio) = sides.times() {
                div class="times" { (ratio.times()) small { " the kernel’s rate" } }
            }
            (one(sides.ours, "ours"))
            (one(sides.kernel, "the kernel’s"))
        }
    }
}

/// Renders the main comparisons.
pub(super) fn headlines(report: &Report, looks: &Looks<'_>) -> Markup {
    if report.workloads.iter().all(|workload| workload.headlines.is_empty()) {
        return Markup::default();
    }
    html! {
        section {
            h2 { "Results by mailing-list thread" }
            p { "Ratios, which are comparable between machines." }
            div class="tiles" { @for workload in &report.workloads {
                @for row in &workload.headlines { (headline(report, workload, row, looks)) }
            } }
        }
    }
}

fn headline(report: &Report, workload: &Workload, row: &HeadlineRow, looks: &Looks<'_>) -> Markup {
    let value = |value: &HeadlineValue| {
        html! {
            div class="side" {
                (looks.of(&value.contestant).swatch()) " " span class="who" { (value.contestant) }
                @if let Some(against) = &value.against { " against " span class="who" { (against) } }
                br;
                b class="ratio" { (row.shown_value(value)) } " " (row.where_(value, &workload.axis))
            }
        }
    };
    html! {
        a class="tile headline" href=(address(report, workload)) {
            div class="where" { b { (workload.name) } ": " (row.step) ", " (row.name) }
            @for one in &row.values { (value(one)) }
            @if let Some(thread) = row.thread() { div class="side none" { (thread) } }
        }
    }
}
