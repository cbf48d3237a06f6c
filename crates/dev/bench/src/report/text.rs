//! A report as text: aligned for a terminal, or in Markdown.

use super::number::count_of;
use super::table::{Table, clean, escaped};
use super::{HeadlineRow, HeadlineValue, OTHERS, Report, Workload, everybody, tables};

/// Style of a text.
#[derive(Clone, Copy)]
enum TextStyle {
    Terminal,
    Markdown,
}

/// For a terminal.
pub(super) fn text(report: &Report) -> String {
    whole(report, TextStyle::Terminal)
}

/// For documents.
pub(super) fn markdown(report: &Report) -> String {
    whole(report, TextStyle::Markdown)
}

impl TextStyle {
    fn heading(self, depth: usize, title: &str) -> String {
        match self {
            Self::Terminal if depth == 2 => {
                let title = clean(title);
                format!("\n{title}\n{}\n", "=".repeat(title.chars().count()))
            }
            Self::Terminal => format!("\n{}\n", clean(title)),
            Self::Markdown => format!("\n{} {}\n\n", "#".repeat(depth), escaped(title)),
        }
    }

    fn paragraph(self, text: &str) -> String {
        match self {
            Self::Terminal => format!("{}\n", clean(text)),
            Self::Markdown => format!("{}\n\n", escaped(text)),
        }
    }

    fn list(self, items: &[String]) -> String {
        let item = |item: &String| match self {
            Self::Terminal => format!("  {}\n", clean(item)),
            Self::Markdown => format!("- {}\n", escaped(item)),
        };
        items.iter().map(item).collect()
    }

    fn table(self, table: &Table) -> String {
        match self {
            Self::Terminal => table.text(),
            Self::Markdown => table.markdown() + "\n",
        }
    }

    fn command(self, command: &str) -> String {
        match self {
            Self::Terminal => format!("$ {}\n", clean(command)),
            Self::Markdown => format!("```sh\n{}\n```\n\n", clean(command)),
        }
    }
}

fn whole(report: &Report, style: TextStyle) -> String {
    let mut text = style.command(&report.command);
    text += &style.list(&report.warnings());
    text += &style.list(&[vec![report.date.clone()], report.conditions()].concat());
    let summary = tables::summary(report);
    if !summary.rows.is_empty() {
        text += &style.heading(2, "Summary");
        text += &style.table(&summary);
    }
    text += &headlines(report, style);
    for workload in &report.workloads {
        text += &self::workload(workload, style);
    }
    text += &everybody(report, style);
    text.trim_start().to_owned()
}

fn workload(workload: &Workload, style: TextStyle) -> String {
    let mut text = style.heading(2, &workload.name) + &style.paragraph(&workload.what);
    for (step, table) in tables::steps(workload) {
        // A terminal is too narrow for a column for each contestant.
        if let (TextStyle::Markdown, Some(table)) = (style, tables::by_size(workload, step)) {
            text += &style.heading(3, &tables::by_size_caption(workload, step));
            text += &style.table(&table);
        }
        text += &style.heading(3, step);
        text += &style.table(&table);
    }
    let sizes = everybody::sizes(workload);
    if !sizes.is_empty() {
        text += &style.paragraph(&format!("File systems: {}.", sizes.join(", ")));
    }
    let bases = tables::bases(workload);
    if !bases.is_empty() {
        text += &style.paragraph(&format!("Overheads (+): {}.", bases.join("; ")));
    }
    if let Some(table) = tables::flatness(workload) {
        text += &style.heading(3, &tables::flatness_caption(workload));
        text += &style.table(&table);
    }
    let missing = missing(workload);
    if !missing.is_empty() {
        text += &style.heading(3, "not in the tables");
        text += &style.list(&missing);
    }
    for published in &workload.published {
        text += &style.heading(3, &format!("published: {}", published.source));
        text += &style.paragraph(OTHERS);
        text += &style.table(&tables::published(published));
    }
    text
}

/// Lists the contestants, with remarks on their comparability.
fn everybody(report: &Report, style: TextStyle) -> String {
    let all = everybody::contestants(report);
    if all.is_empty() {
        return String::new();
    }
    let list = |kind: Vec<everybody::CommonProperty<'_>>| {
        let line = |one: &everybody::CommonProperty<'_>| {
            let what = one.what.trim_end_matches('.');
            format!("{}: {what}", everybody::names(&one.names, &all))
        };
        kind.iter().map(line).collect::<Vec<_>>()
    };
    let mut text = style.heading(2, "Contestants");
    for (title, lines) in [
        ("contestants", list(everybody::kinds(&all))),
        ("features", list(everybody::features(&all))),
        ("not comparable", list(everybody::remarks(&all))),
    ] {
        if !lines.is_empty() {
            text += &style.heading(3, title);
            text += &style.list(&lines);
        }
    }
    text
}

/// Lists the main comparisons.
fn headlines(report: &Report, style: TextStyle) -> String {
    let of = |workload: &Workload| {
        let lines = workload.headlines.iter().map(|row| headline(workload, row, style));
        lines.collect::<String>()
    };
    let lines: String = report.workloads.iter().map(of).collect();
    if lines.is_empty() {
        lines
    } else {
        style.heading(2, "Results by mailing-list thread") + &lines
    }
}

fn headline(workload: &Workload, row: &HeadlineRow, style: TextStyle) -> String {
    let value = |value: &HeadlineValue| {
        let where_ = row.where_(value, &workload.axis);
        let ratio = row.shown_value(value);
        let by = value.against.as_ref().map(|name| format!(" against {name}")).unwrap_or_default();
        format!("{ratio} {where_}: {}{by}", value.contestant)
    };
    let lines: Vec<String> = row.values.iter().map(value).chain(row.thread()).collect();
    let title = format!("{}, {}: {}", workload.name, row.step, row.name);
    style.heading(3, &title) + &style.list(&lines)
}

/// Lists skipped contestants and failures.
pub(super) fn missing(workload: &Workload) -> Vec<String> {
    let skipped = workload.skipped.iter().map(|one| {
        format!(
            "skipped {} from {} on: {}",
            one.contestant,
            count_of(one.from, &workload.axis),
            one.why
        )
    });
    let failed = workload.failed.iter().map(|one| {
        let at = count_of(one.x, &workload.axis);
        format!("FAILED {} at {at}, run {}: {}", one.contestant, one.round, one.why)
    });
    skipped.chain(failed).collect()
}
