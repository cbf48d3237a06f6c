//! Reports as text.

use std::fmt::Display;
use std::io::{self, Write};

use vfs::check::{Finding, FindingPlace, Severity, Summary};

use super::{DamagedFiles, FindingsOfKind, Report};
use crate::text::escaped;
use crate::text::shown;

impl Report {
    /// Writes the report as text: each kind of finding with its number and first findings, and a summary line.
    /// Deceptive characters are escaped.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for kind in &self.kinds {
            write_kind(kind, out)?;
        }
        if let Some(damaged) = self.damaged_files.as_ref().filter(|damaged| damaged.count > 0) {
            write_damaged(damaged, out)?;
        }
        writeln!(out, "{}: {}", shown(&self.image), self.sentence())
    }

    /// Returns the summary line.
    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if !self.kinds.is_empty() {
            parts.push(self.findings());
        }
        if let Some(damaged) = &self.damaged_files {
            let list = if damaged.is_complete { "" } else { ", and perhaps more" };
            parts.push(format!("{} on bad areas{list}", plural(damaged.count, "file")));
        }
        parts.extend(looked_at(&self.summary));
        match self.summary.transactions_replayed {
            0 => {}
            1 => parts.push("1 transaction of its journal or log replayed in memory".into()),
            count => {
                parts
                    .push(format!("{count} transactions of its journal or log replayed in memory"));
            }
        }
        if let Some(why) = self.why_incomplete() {
            let word = if self.kinds.is_empty() { "" } else { "incomplete, as " };
            parts.push(format!("{word}{why}"));
        }
        format!("{}: {}", self.verdict().word(), parts.join("; "))
    }

    fn why_incomplete(&self) -> Option<String> {
        match (self.is_interrupted, &self.device_error, self.summary.is_complete) {
            (true, ..) => Some("it was interrupted".into()),
            (false, Some(error), _) => {
                Some(format!("the device failed: {}", escaped(error.as_bytes())))
            }
            (false, None, false) => Some("damage prevented the check of the rest".into()),
            (false, None, true) => None,
        }
    }

    /// Returns the number of findings by severity.
    fn findings(&self) -> String {
        let severities = [Severity::Unusable, Severity::AtRisk, Severity::Harmless];
        let counts = severities.map(|severity| (self.count_of(severity), severity.word()));
        let counts = counts.into_iter().filter(|&(count, _)| count > 0);
        let counts: Vec<_> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        let findings = plural(self.count(), "finding");
        format!("{findings} of {} ({})", plural(self.kinds.len() as u64, "kind"), counts.join(", "))
    }
}

/// Returns the extent of the check, if known.
fn looked_at(summary: &Summary) -> Option<String> {
    let &Summary { inodes, directories, blocks_used, blocks, .. } = summary;
    (blocks > 0).then(|| {
        let inodes = plural(inodes, "inode");
        format!(
            "{inodes} ({directories} of them directories), {blocks_used} of {blocks} blocks in use"
        )
    })
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Writes the files on bad areas, one in a line.
fn write_damaged(damaged: &DamagedFiles, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "files on bad areas ({}):", damaged.count)?;
    for file in &damaged.files {
        writeln!(out, "  {}", file.line())?;
    }
    match damaged.count.saturating_sub(damaged.files.len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn write_kind(kind: &FindingsOfKind, out: &mut dyn Write) -> io::Result<()> {
    let code = kind.code;
    let (severity, count) = (code.severity.word(), kind.count);
    writeln!(out, "{severity}: {} ({count}): {}: {}", code.name, code.structure, code.meaning)?;
    let mut line = |name: &str, value: &dyn Display| writeln!(out, "  {name:<8}{value}");
    if let Some(first) = kind.findings.first() {
        let what = if kind.count == 1 { "found:" } else { "first:" };
        match said(first) {
            text if text.is_empty() => {}
            text => line(what, &text)?,
        }
        if let Some(path) = &first.path {
            line("path:", &escaped(path))?;
        }
    }
    line("repair:", &code.repair)
}

/// Returns a finding without its path as one line.
fn said(finding: &Finding) -> String {
    let Finding { place, detail, expected, found, .. } = finding;
    let text =
        |text: &Option<String>| text.as_ref().map(|text| escaped(text.as_bytes()).to_string());
    let difference = match (text(expected), text(found)) {
        (Some(expected), Some(found)) => Some(format!("expected {expected}, found {found}")),
        (Some(expected), None) => Some(format!("expected {expected}")),
        (None, Some(found)) => Some(format!("found {found}")),
        (None, None) => None,
    };
    let parts = [where_it_is(place), text(detail), difference];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

/// Formats a location from large to small units.
pub(crate) fn where_it_is(place: &FindingPlace) -> Option<String> {
    let number = |name: &str, number: Option<u64>| number.map(|number| format!("{name} {number}"));
    let parts = [
        number("group", place.group),
        number("inode", place.inode),
        number("block", place.block),
        place.field.map(|field| format!("field {field}")),
        place.name.as_ref().map(|name| format!("name {}", escaped(name))),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::samples;

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        report.write_text(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_kind_is_shown_by_its_first_finding() {
        let expected = "\
unusable: ext4-tree-gone (1): extent tree: It is gone.
  found:  inode 12, block 77, field eh_magic, name n\\xffme\\n: a \"detail\"\\x1b: expected 0xf30a, found 0
  path:   /dir/n\\xffme\\n
  repair: Nothing can be done.
harmless: ext4-count-off (5): group descriptor: It is off.
  first:  group 0
  repair: It is counted.
dir/a.img: damaged: 6 findings of 2 kinds (1 unusable, 5 harmless); 12 inodes (3 of them directories), 70 of 100 \
blocks in use; 2 transactions of its journal or log replayed in memory
";
        assert_eq!(text(&samples::report()), expected);
    }

    #[test]
    fn a_clean_image_takes_one_line() {
        let mut report = samples::report();
        report.kinds.clear();
        report.summary.transactions_replayed = 0;
        let line = "12 inodes (3 of them directories), 70 of 100 blocks in use";
        assert_eq!(text(&report), format!("dir/a.img: clean: {line}\n"));
    }

    #[test]
    fn a_complete_check_says_so() {
        let mut report = samples::report();
        report.summary = Summary::default();
        let kept = "incomplete, as damage prevented the check of the rest";
        assert!(text(&report).ends_with(&format!("(1 unusable, 5 harmless); {kept}\n")));
        report.is_interrupted = true;
        report.kinds.clear();
        assert_eq!(text(&report), "dir/a.img: incomplete: it was interrupted\n");
    }
}
