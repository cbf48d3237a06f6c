//! The table of a run.

use std::fmt::Write;
use std::time::Duration;

use workload::report::Summary;

use super::{Case, Timing};
use crate::edit::target::Contestant;

/// A whole run.
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

/// One step of a case, done by one contestant.
pub(crate) struct Row {
    case: String,
    step: &'static str,
    contestant: &'static str,
    threads: u32,
    operations: u64,
    times: Vec<Duration>,
    durable: Vec<Duration>,
}

/// Adds a timing to the row it belongs to.
pub(super) fn add(
    rows: &mut Vec<Row>,
    case: &Case,
    contestant: Contestant,
    step: &'static str,
    timing: &Timing,
) {
    let name = contestant.name();
    let at = rows.iter().position(|row| row.step == step && row.contestant == name);
    let at = at.unwrap_or_else(|| {
        rows.push(Row {
            case: case.name.clone(),
            step,
            contestant: name,
            threads: case.threads,
            operations: case.operations,
            times: Vec::new(),
            durable: Vec::new(),
        });
        rows.len() - 1
    });
    rows[at].times.push(timing.operations);
    rows[at].durable.push(timing.durable);
}

const COLUMNS: [&str; 8] =
    ["case", "step", "threads", "who", "ops/s", "us/op", "spread", "us/op to durable"];

impl Row {
    fn cells(&self) -> Option<[String; 8]> {
        let times = Summary::of(&self.times)?;
        let durable = Summary::of(&self.durable)?;
        let per_op = |seconds: f64| seconds * 1e6 / self.operations as f64;
        Some([
            self.case.clone(),
            self.step.to_owned(),
            self.threads.to_string(),
            self.contestant.to_owned(),
            format!("{:.0}", self.operations as f64 / times.median_s),
            format!("{:.2}", per_op(times.median_s)),
            format!("{:.0} %", times.spread * 100.0),
            format!("{:.2}", per_op(durable.median_s)),
        ])
    }
}

impl Report {
    pub(crate) fn text(&self, markdown: bool) -> String {
        let rows: Vec<_> = self.rows.iter().filter_map(Row::cells).collect();
        let mut text = String::new();
        if markdown {
            let _ =
                writeln!(text, "| {} |\n|---|---|--:|---|--:|--:|--:|--:|", COLUMNS.join(" | "));
            for row in rows {
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
            return text;
        }
        for row in std::iter::once(&COLUMNS.map(str::to_owned)).chain(&rows) {
            for (cell, width) in row.iter().zip([18, 10, 8, 22, 12, 9, 8, 17]) {
                let _ = write!(text, "{cell:<width$} ");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}
