//! Order of runs, and handling of failures.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bench::Error;
use bench::contestant::Contestant;
use bench::jobs::Case;
use bench::report::Report;
use bench::run::{Options, ScheduledJob, run};

use crate::reports::common::{
    Asked, Fake, FakeJob, Notes, SIZE, case, entry, extra, options, run_with, step,
};

/// Creates contestants with these names, which record the order of their starts.
fn started(names: &[&str]) -> (Vec<Fake>, Rc<RefCell<Vec<String>>>) {
    let starts = Rc::new(RefCell::default());
    let fake = |name: &&str| Fake { starts: Rc::clone(&starts), ..Fake::new(name) };
    (names.iter().map(fake).collect(), starts)
}

/// A job whose only step takes 100 ms in the first run, then 300, 200, 400 and so on.
fn job(cases: Vec<Case>) -> FakeJob {
    FakeJob::new(cases, |asked| {
        let wall = [100, 300, 200, 400][asked.run as usize - 1];
        Ok(vec![step("create", asked.x, [wall, wall / 2, 10])])
    })
}

fn rows(report: &Report) -> Vec<(&str, u64, usize, f64)> {
    let rows = report.workloads.iter().flat_map(|workload| &workload.rows);
    rows.map(|row| (row.contestant.as_str(), row.x, row.runs, row.wall.median_s)).collect()
}

/// Returns the final state of a progress bar: done, and total.
fn bar(notes: &Notes) -> (u64, u64) {
    (*notes.done.lock().unwrap(), *notes.totals.lock().unwrap().last().unwrap())
}

#[test]
fn contestants_take_turns_and_another_one_begins_each_round() {
    let (contestants, starts) = started(&["a", "b", "c"]);
    let notes = Notes::default();
    run_with(&[entry(job(vec![case(10, 9), case(20, 9)]), contestants)], 2, &notes);
    let order = starts.borrow().concat();
    assert_eq!(order, "abcbcacababc", "two cases of two rounds");
    assert_eq!(notes.told("begin").len(), 12);
    assert_eq!(notes.told("begin")[3], "begin create b 10 2 10");
    assert_eq!(bar(&notes), (180, 180));
}

#[test]
fn a_case_has_no_more_rounds_than_it_is_worth_and_the_median_counts() {
    let (contestants, _) = started(&["a"]);
    let notes = Notes::default();
    let cases = vec![case(10, 9), case(20, 2), case(30, 1)];
    let report = run_with(&[entry(job(cases), contestants)], 3, &notes);
    assert_eq!(rows(&report), [("a", 10, 3, 0.2), ("a", 20, 2, 0.2), ("a", 30, 1, 0.1)]);
    let first = &report.workloads[0].rows[0];
    assert_eq!((first.wall.min_s, first.wall.max_s), (0.1, 0.3));
    assert!((first.wall.spread - 1.0).abs() < 1e-9);
    assert_eq!((first.user.median_s, first.system.median_s), (0.1, 0.01));
    assert_eq!((first.operations, first.rate, first.size_bytes), (10, Some(50.0), SIZE));
    assert!(!report.cut_short);
    assert_eq!(bar(&notes), (30 + 40 + 30, 100));
}

#[test]
fn who_cannot_take_part_is_left_out_with_the_reason() {
    let (mut contestants, starts) = started(&["a", "b"]);
    contestants[0].unsupported = Some((20, "too large".to_owned()));
    let notes = Notes::default();
    let cases = vec![case(10, 9), case(20, 9), case(30, 9)];
    let report = run_with(&[entry(job(cases), contestants)], 2, &notes);
    assert_eq!(starts.borrow().concat(), "abbabbbb");
    assert_eq!(notes.told("skipped"), ["skipped a: too large"], "once");
    let skipped = &report.workloads[0].skipped;
    assert_eq!(skipped.len(), 1);
    assert_eq!(
        (&*skipped[0].contestant, skipped[0].from, &*skipped[0].why),
        ("a", 20, "too large")
    );
    let expected = [("a", 10, 2, 0.2), ("b", 10, 2, 0.2), ("b", 20, 2, 0.2), ("b", 30, 2, 0.2)];
    assert_eq!(rows(&report), expected);
    assert_eq!(bar(&notes), (2 * (10 + 10 + 20 + 30), 140), "nothing is waited for in vain");
}

#[test]
fn an_error_ends_one_case_of_one_contestant() {
    let (contestants, starts) = started(&["a", "b"]);
    let notes = Notes::default();
    let answer = |asked: &Asked<'_>| match (asked.contestant, asked.x, asked.run) {
        ("b", 10, 2) => Err(Error::Wrong("a file is missing".to_owned())),
        _ => Ok(vec![step("create", asked.x, [100, 0, 0])]),
    };
    let job = FakeJob::new(vec![case(10, 9), case(20, 9)], answer);
    let report = run_with(&[entry(job, contestants)], 3, &notes);
    assert_eq!(starts.borrow().concat(), "abbaabaabba");
    let failed = &report.workloads[0].failed;
    assert_eq!(failed.len(), 1);
    assert_eq!((&*failed[0].contestant, failed[0].x, failed[0].round), ("b", 10, 2));
    assert_eq!(failed[0].why, "wrong result: a file is missing");
    assert_eq!(notes.told("failed"), ["failed create b 10: wrong result: a file is missing"]);
    assert_eq!(rows(&report), [("a", 10, 3, 0.1), ("a", 20, 3, 0.1), ("b", 20, 3, 0.1)]);
    let (done, total) = bar(&notes);
    assert_eq!((done, total), (3 * 10 + 10 + 5 + 6 * 20, done));
}

#[test]
fn an_interrupted_comparison_reports_what_was_done() {
    let (contestants, starts) = started(&["a", "b"]);
    let notes = Notes { stop_at_begin: Some(4), ..Notes::default() };
    let entries = [entry(job(vec![case(10, 9), case(20, 9)]), contestants)];
    let (others, others_started) = started(&["c"]);
    let entries: Vec<ScheduledJob> =
        entries.into_iter().chain([entry(job(vec![case(1, 1)]), others)]).collect();
    let report = run_with(&entries, 3, &notes);
    assert!(report.cut_short);
    assert_eq!(starts.borrow().concat(), "abba");
    assert!(others_started.borrow().is_empty());
    assert_eq!(rows(&report), [("a", 10, 1, 0.1), ("b", 10, 2, 0.2)]);
    assert_eq!(report.workloads.len(), 1);
    assert!(report.text().contains("Interrupted"));
}

#[test]
fn nothing_to_run_is_an_error() {
    let notes = Notes::default();
    let nobody = || vec![entry(job(vec![case(1, 1)]), Vec::new())];
    let somebody = || vec![entry(job(vec![case(1, 1)]), vec![Fake::new("a")])];
    let nothing = vec![entry(job(Vec::new()), vec![Fake::new("a")])];
    for (entries, rounds) in [(Vec::new(), 1), (nobody(), 1), (nothing, 1), (somebody(), 0)] {
        let outcome = run(&entries, &options(rounds), &notes.stop, &notes);
        assert!(matches!(outcome, Err(Error::Unsupported(_))), "{rounds} rounds");
    }
    assert!(run(&somebody(), &options(1), &notes.stop, &notes).is_ok());
}

#[test]
fn one_run_alone_gives_its_steps() {
    let fake: Rc<dyn Contestant> = Rc::new(Fake::new("a"));
    let notes = Notes::default();
    let job = job(vec![case(10, 1)]);
    let steps = bench::run::once(&job, &case(10, 1), &*fake, 7, &notes.stop, &|_| {}).unwrap();
    assert_eq!((steps.len(), steps[0].name, steps[0].operations), (1, "create", 10));
}

/// Runs invented steps with the given milliseconds in each run, for ours and the kernel's, with up to 8 rounds.
fn compared(ours: [u64; 8], kernel: [u64; 8], notes: &Notes) -> Report {
    let job = FakeJob::new(vec![case(10, 9)], move |asked| {
        let walls = if asked.contestant == "memory:xfs" { ours } else { kernel };
        Ok(vec![step("create", asked.x, [walls[asked.run as usize - 1], 0, 0])])
    });
    let contestants = ["memory:xfs", "kernel:xfs"].map(Fake::new).into();
    let options = Options { rounds_most: 8, ..options(3) };
    run(&[entry(job, contestants)], &options, &notes.stop, notes).unwrap()
}

#[test]
fn rounds_are_added_until_a_ratio_is_told_apart() {
    let notes = Notes::default();
    let clear = compared([100, 101, 99, 0, 0, 0, 0, 0], [200, 203, 198, 0, 0, 0, 0, 0], &notes);
    assert_eq!(clear.workloads[0].rows[0].runs, 3);
    assert!(clear.text().contains("2.0 × (1.99 × to 2.0 ×)"), "{}", clear.text());
    assert_eq!(bar(&notes), (60, 60));

    let notes = Notes::default();
    let late =
        compared([100, 75, 100, 101, 99, 0, 0, 0], [200, 220, 200, 203, 198, 0, 0, 0], &notes);
    let runs = late.workloads[0].rows[0].runs;
    assert!((4..=5).contains(&runs), "{runs}");
    assert_eq!(bar(&notes), (runs as u64 * 20, runs as u64 * 20));

    let notes = Notes::default();
    let never = compared(
        [100, 60, 100, 60, 100, 60, 100, 60],
        [60, 100, 60, 100, 100, 60, 60, 100],
        &notes,
    );
    assert_eq!(never.workloads[0].rows[0].runs, 8);
    let text = never.text();
    assert!(text.contains("no significant difference (") && text.contains(", 8 runs)"), "{text}");
}

#[test]
fn one_round_says_so_at_each_ratio() {
    let job = FakeJob::new(vec![case(10, 9), case(20, 9)], |asked| {
        let wall = if asked.contestant == "memory:xfs" { 144 } else { 100 };
        Ok(vec![step("create", asked.x, [wall, 1, 1])])
    });
    let mut ours = Fake::new("memory:xfs");
    ours.description.base = Some("kernel:xfs".to_owned());
    let entries = [entry(job, vec![ours, Fake::new("kernel:xfs")])];
    let report = run_with(&entries, 1, &Notes::default());
    for text in [report.text(), report.markdown(), report.html("One")] {
        assert!(text.contains("0.69 × (one run)"), "{text}");
        assert!(text.contains("2.00 (one run)"), "flatness: {text}");
        let overheads = text.lines().filter(|line| line.contains("+44 %"));
        assert!(overheads.into_iter().all(|line| line.contains("+44 % (one run)")), "{text}");
    }
}

#[test]
fn what_is_short_is_repeated_and_one_time_of_it_counts() {
    let job = FakeJob::new(vec![case(10, 9)], |asked| {
        let wall = if asked.run % 2 == 0 { 30 } else { 10 };
        let mut step = step("create", asked.x, [wall, wall, 0]);
        step.extras.push(extra("size", "MiB", f64::from(asked.run)));
        Ok(vec![step])
    });
    let notes = Notes::default();
    let options = Options { step_least: Duration::from_millis(80), ..options(1) };
    let report = run(&[entry(job, vec![Fake::new("a")])], &options, &notes.stop, &notes).unwrap();
    let row = &report.workloads[0].rows[0];
    assert_eq!((row.runs, row.measured[0].repeats, row.operations), (1, 4, 10));
    assert_eq!(
        (row.wall.median_s, row.user.median_s, row.extras[0].median),
        (0.02, 0.02, Some(2.5))
    );
    let (done, total) = bar(&notes);
    assert_eq!(done, total);
}
