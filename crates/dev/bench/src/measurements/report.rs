//! The result as a table, in Markdown and as JSON.

use std::fmt::Write;

use crate::Machine;
use crate::report::Summary;
use serde::Serialize;

use crate::measurements::sources::Census;

/// A whole run.
#[derive(Serialize)]
pub(crate) struct BuildReport {
    pub(crate) machine: Machine,
    pub(crate) cases: Vec<CaseReport>,
    pub(crate) skipped: Vec<String>,
}

/// All contestants on one source; the first row is the program under test.
#[derive(Serialize)]
pub(crate) struct CaseReport {
    name: String,
    entries: u64,
    bytes: u64,
    rows: Vec<ContestantRow>,
}

/// One contestant on one source.
#[derive(Serialize)]
pub(crate) struct ContestantRow {
    pub(crate) program: &'static str,
    pub(crate) times: Summary,
    pub(crate) peak_memory_bytes: Option<u64>,
}

impl CaseReport {
    pub(crate) fn new(name: String, census: Census, rows: Vec<ContestantRow>) -> Self {
        CaseReport { name, entries: census.entries, bytes: census.bytes, rows }
    }

    /// Returns the entries per second of the program under test.
    fn rate(&self) -> Option<f64> {
        self.rows.first().map(|row| self.entries as f64 / row.times.median_s)
    }
}

const COLUMNS: [&str; 9] = [
    "source",
    "program",
    "runs",
    "median s",
    "min s",
    "spread",
    "entries/s",
    "peak MiB",
    "vs ours",
];

impl BuildReport {
    fn cells(&self) -> Vec<[String; 9]> {
        let mut cells = Vec::new();
        for case in &self.cases {
            let ours = case.rows.first().map_or(f64::NAN, |row| row.times.median_s);
            for row in &case.rows {
                let times = &row.times;
                let peak =
                    row.peak_memory_bytes.map(|bytes| format!("{:.0}", bytes as f64 / 1048576.0));
                cells.push([
                    case.name.clone(),
                    row.program.to_owned(),
                    times.runs.to_string(),
                    format!("{:.3}", times.median_s),
                    format!("{:.3}", times.min_s),
                    format!("{:.0} %", times.spread * 100.0),
                    format!("{:.0}", case.entries as f64 / times.median_s),
                    peak.unwrap_or_default(),
                    format!("{:.2}x", times.median_s / ours),
                ]);
            }
        }
        cells
    }

    fn header(&self) -> Vec<String> {
        self.machine.lines()
    }

    /// Remarks below the table.
    fn footer(&self) -> Vec<String> {
        let mut lines = vec![
            "vs ours: how many times as long as diskwright took; above 1 it was slower.".to_owned(),
        ];
        lines.extend(self.cases.iter().filter(|case| case.bytes > 0).map(|case| {
            let gib = case.bytes as f64 / f64::from(1 << 30);
            format!("{}: {} entries, {gib:.2} GiB", case.name, case.entries)
        }));
        let directories: Vec<_> = self.cases.iter().filter(|case| case.bytes == 0).collect();
        if let [first, .., last] = directories[..]
            && let (Some(small), Some(large)) = (first.rate(), last.rate())
        {
            let (from, to) = (first.entries, last.entries);
            lines.push(format!("rate at {to} files / rate at {from}: {:.2}", large / small));
        }
        lines.extend(self.skipped.iter().map(|reason| format!("SKIPPED {reason}")));
        lines
    }

    pub(crate) fn text(&self) -> String {
        let rows = self.cells();
        let mut widths = COLUMNS.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.len());
            }
        }
        let mut text = self.header().join("\n");
        text.push_str("\n\n");
        for row in std::iter::once(&COLUMNS.map(str::to_owned)).chain(&rows) {
            for (index, (width, cell)) in widths.iter().zip(row).enumerate() {
                let _ = match index {
                    0 | 1 => write!(text, "{cell:width$}  "),
                    _ => write!(text, "{cell:>width$}  "),
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text + "\n" + &self.footer().join("\n") + "\n"
    }

    pub(crate) fn markdown(&self) -> String {
        let list =
            |lines: Vec<String>| lines.iter().map(|line| format!("- {line}\n")).collect::<String>();
        let mut text = list(self.header());
        let _ = writeln!(text, "\n| {} |", COLUMNS.join(" | "));
        text.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
        for row in self.cells() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text + "\n" + &list(self.footer())
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }
}
