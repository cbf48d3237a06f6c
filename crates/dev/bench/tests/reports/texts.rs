//! The report for people, whatever is in it.

use bench::jobs::Published;
use bench::report::Report;
use unicode_width::UnicodeWidthStr;

use crate::reports::common::everything::everything;
use crate::reports::common::{Fake, FakeJob, Notes, case, entry, extra, run_with, step};

/// The table after a heading, line by line.
fn table<'t>(text: &'t str, heading: &str) -> Vec<&'t str> {
    let from = text.split_once(&format!("\n{heading}\n")).expect(heading).1;
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with("File systems: ");
    from.lines().skip_while(|line| line.is_empty()).take_while(is_row).collect()
}

#[test]
fn tables_on_a_terminal_are_aligned() {
    let text = everything().text();
    let lines = table(&text, "remove, cold cache");
    assert_eq!(lines.len(), 1 + 7 * 6 + 6, "kernel:xfs has no line for 10 M files");
    // Contestants begin below their title, rates end below theirs.
    let names = lines[0].find("contestant").unwrap();
    let rates = lines[0].split_once("files/s").unwrap().0.width() + "files/s".len();
    for line in &lines[1..] {
        let name = &line[names..];
        assert!(name.starts_with("memory:") || name.starts_with("kernel:"), "{line}");
        let ends: String = line.chars().skip(rates - 1).take(2).collect();
        assert!(!ends.starts_with(' ') && ends.ends_with(' '), "{line}");
    }
    assert!(lines.iter().any(|line| line.contains("10 M  memory:ext4")), "{text}");
}

#[test]
fn a_text_says_what_its_figures_are_of() {
    let report = everything();
    for text in [report.text(), report.markdown()] {
        for said in [
            "diskwright-bench compare",
            "2 × Example CPU, 24.0 GiB of memory, virtual (Example)",
            "Linux 6.18.5",
            "2026-11-21 14:00 UTC",
            "seed 7",
            "Nothing is synced",
            "finobt=1",
            "8 GiB",
            "each operation is a system call",
            "skipped kernel:ext4 from 10 k files on: it needs root",
            "published: Dave Chinner",
            "on another machine",
            "memory:xfs against memory:xfs,^parent",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}

#[test]
fn markdown_has_the_tables_of_the_threads() {
    let text = everything().markdown();
    let lines = table(&text, "### create: wall s / files/s");
    assert!(
        lines[0].starts_with("| files | memory:xfs | memory:xfs,free-index=reverse |"),
        "{}",
        lines[0]
    );
    assert!(lines[1].chars().all(|c| "|-:".contains(c)));
    assert_eq!(lines.len(), 2 + 7);
    assert!(lines[8].starts_with("| 10 M | ") && lines[8].ends_with(" | – |"), "{}", lines[8]);
    for line in &lines {
        assert_eq!(line.matches('|').count(), 9, "{line}");
    }
}

/// Names, words and reasons that are made to break out of wherever they are put.
const HOSTILE: &str = "\"><script>alert(1)</script><svg onload='x'>|`*_\u{1b}[2J\n&amp;";

fn hostile() -> Report {
    let mut job = FakeJob::new(vec![case(10, 1), case(20, 1)], |asked| match asked.x {
        10 => Ok(vec![step("</svg><b>", 10, [1, 1, 1])]),
        _ => Err(bench::Error::Wrong(HOSTILE.to_owned())),
    });
    (job.what, job.axis, job.unit) = (HOSTILE.to_owned(), "</text>", "<b>/s");
    job.published.push(Published { source: "<i>", columns: vec!["<u>"], rows: vec![vec![1.0]] });
    let mut fake = Fake::new(HOSTILE);
    fake.description.features = HOSTILE.to_owned();
    fake.description.remarks.push(HOSTILE.to_owned());
    let mut absent = Fake::new("</title>");
    absent.unsupported = Some((0, HOSTILE.to_owned()));
    run_with(&[entry(job, vec![fake, absent])], 1, &Notes::default())
}

#[test]
fn hostile_names_stay_text() {
    let report = hostile();
    let page = report.html("</title><script>");
    assert!(!page.contains("<script") && !page.contains("<b>/s") && !page.contains("<i>"));
    assert!(!page.contains("<svg onload") && !page.contains("</svg><b>"));
    assert!(page.contains("&lt;script&gt;alert(1)"));
    for text in [report.text(), report.markdown()] {
        assert!(!text.contains('\u{1b}'), "no escape reaches a terminal");
    }
    assert!(!report.markdown().contains("<script"));
    let lines =
        table(&report.markdown(), "### \\</svg>\\<b>".replace("\\<", "&lt;").as_str()).len();
    assert_eq!(lines, 3, "a title, a rule, a line");
}

#[test]
fn figures_that_are_none_break_nothing() {
    let job = FakeJob::new(vec![case(0, 1), case(20, 1)], |asked| {
        let mut empty = step("empty", 0, [0, 0, 0]);
        empty.extras.extend([extra("nan", "x", f64::NAN), extra("endless", "x", f64::INFINITY)]);
        let wall = if asked.contestant == "a" { 0 } else { 5 };
        Ok(vec![empty, step("instant", asked.x, [wall, 0, 0])])
    });
    let mut based = Fake::new("b");
    based.description.base = Some("a".to_owned());
    let report = run_with(&[entry(job, vec![Fake::new("a"), based])], 2, &Notes::default());
    let rows = &report.workloads[0].rows;
    assert!(rows.iter().filter(|row| row.step == "empty").all(|row| row.rate.is_none()));
    assert!(rows[0].extras.iter().all(|extra| extra.median.is_none()));
    assert!(
        rows.iter().filter_map(|row| row.overhead.as_ref()).all(|one| one.wall_percent.is_none())
    );
    let page = report.html("None");
    for text in [page.clone(), report.text(), report.markdown(), report.json()] {
        assert!(!text.contains("NaN") && !text.contains(" inf"), "{text}");
    }
    assert!(page.contains("<svg class=\"plot\""));
}

#[test]
fn one_figure_is_a_report_too() {
    let job = FakeJob::new(vec![case(10, 1)], |_| Ok(vec![step("create", 10, [100, 50, 50])]));
    let report = run_with(&[entry(job, vec![Fake::new("memory:xfs")])], 1, &Notes::default());
    let workload = &report.workloads[0];
    assert_eq!((workload.rows.len(), workload.flatness.len()), (1, 0));
    let lines: Vec<String> = report.text().lines().map(str::to_owned).collect();
    assert!(
        lines
            .iter()
            .any(|line| line
                == "   10  memory:xfs     1          10      100   0.100  0.0500    0.0500"),
        "{lines:#?}"
    );
    let page = report.html("One");
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 2, "the rate and the processor time");
    assert!(!page.contains("the kernel’s rate"), "there is nothing to hold it against");
}
