//! A report as text: aligned for a terminal, or in Markdown.

use super::number::{bytes, count};
use super::table::{Table, clean, escaped};
use super::{OTHERS, Report, Workload, tables};

/// How the parts of a text look.
#[derive(Clone, Copy)]
enum Style {
    Terminal,
    Markdown,
}

/// For a terminal.
pub(super) fn text(report: &Report) -> String {
    whole(report, Style::Terminal)
}

/// For documents.
pub(super) fn markdown(report: &Report) -> String {
    whole(report, Style::Markdown)
}

impl Style {
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

fn whole(report: &Report, style: Style) -> String {
    let mut text = style.command(&report.command);
    text += &style.list(&report.warnings());
    text += &style.list(&[vec![report.date.clone()], report.conditions()].concat());
    let summary = tables::summary(report);
    if !summary.rows.is_empty() {
        text += &style.heading(2, "Summary");
        text += &style.table(&summary);
    }
    for workload in &report.workloads {
        text += &self::workload(workload, style);
    }
    text.trim_start().to_owned()
}

fn workload(workload: &Workload, style: Style) -> String {
    let mut text = style.heading(2, &workload.name) + &style.paragraph(&workload.what);
    for (step, table) in tables::steps(workload) {
        // A terminal is not wide enough for a column for each contestant.
        if let (Style::Markdown, Some(table)) = (style, tables::by_size(workload, step)) {
            text += &style.heading(3, &tables::by_size_caption(workload, step));
            text += &style.table(&table);
        }
        text += &style.heading(3, step);
        text += &style.table(&table);
    }
    let bases = tables::bases(workload);
    if !bases.is_empty() {
        text += &style.paragraph(&format!("Overheads (+): {}.", bases.join("; ")));
    }
    if let Some(table) = tables::flatness(workload) {
        text += &style.heading(3, &tables::flatness_caption(workload));
        text += &style.table(&table);
    }
    text += &style.heading(3, "contestants");
    text += &style.list(&contestants(workload));
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

/// Who took part, on file systems of what size, and what is not comparable.
fn contestants(workload: &Workload) -> Vec<String> {
    let line = |one: &crate::contestant::Description| {
        let mut parts = vec![one.what.trim_end_matches('.').to_owned()];
        parts.extend(size(std::iter::once(workload), &one.name));
        parts.extend((!one.features.is_empty()).then(|| format!("features {}", one.features)));
        parts.extend(one.remarks.iter().map(|remark| format!("not comparable: {remark}")));
        parts.retain(|part| !part.is_empty());
        format!("{}: {}", one.name, parts.join("; "))
    };
    workload.contestants.iter().map(line).collect()
}

/// The sizes of the file systems that a contestant had.
pub(super) fn size<'r>(
    workloads: impl Iterator<Item = &'r Workload>,
    contestant: &str,
) -> Option<String> {
    let rows = workloads.flat_map(|workload| &workload.rows);
    let sizes: Vec<u64> =
        rows.filter(|row| row.contestant == contestant).map(|row| row.size_bytes).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    let range = if least == most { String::new() } else { format!(" to {}", bytes(most)) };
    Some(bytes(least) + &range)
}

/// Who was skipped and what failed.
pub(super) fn missing(workload: &Workload) -> Vec<String> {
    let skipped = workload.skipped.iter().map(|one| {
        format!(
            "skipped {} from {} {}: {}",
            one.contestant,
            count(one.from),
            workload.axis,
            one.why
        )
    });
    let failed = workload.failed.iter().map(|one| {
        let (at, axis) = (count(one.x), &workload.axis);
        format!("FAILED {} at {at} {axis}, run {}: {}", one.contestant, one.round, one.why)
    });
    skipped.chain(failed).collect()
}
