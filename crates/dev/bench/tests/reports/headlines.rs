//! Headlines of a report.

use bench::jobs::{FsMark, Headline, Job, Measure, Theirs};
use bench::report::{HeadlineKind, Report};

use crate::reports::common::everything::everything;
use crate::reports::common::{Fake, FakeJob, Notes, case, entry, run_with, step};

fn contestant(name: &str, deviations: u32) -> Fake {
    let mut fake = Fake::new(name);
    fake.description.deviations = deviations;
    fake.description.remarks = vec!["shared by all".to_owned(), format!("only {deviations}")];
    fake.description.features = "one, two".to_owned();
    fake
}

/// Orphans with four policies: the list becomes slower with more threads.
fn orphans() -> Report {
    let cases = [1, 16, 64, 128].map(|threads| case(threads, 1)).to_vec();
    let mut job = FakeJob::new(cases, |asked| {
        let wall = match (asked.contestant, asked.x) {
            ("memory:ext4,orphans=off", _) => 80,
            ("memory:ext4,orphans=list", 1) => 90,
            ("memory:ext4,orphans=list", 64) => 150,
            ("memory:ext4,orphans=list", _) => 300,
            // Faster than the default, by chance.
            ("memory:ext4,orphans=always", _) => 100,
            _ => 110,
        };
        Ok(vec![step("truncate", 1000, [wall, wall / 2, wall / 10])])
    });
    (job.axis, job.unit) = ("threads", "truncates/s");
    let rates = |with, without| Headline {
        name: "a ratio",
        step: "truncate",
        measure: Measure::Rates { with, without, least_from: Some(16) },
        theirs: vec![Theirs { about: "2021", ratio: 2.9 }],
    };
    let processor = Measure::Processor { with: "orphans=list", without: "orphans=off" };
    job.headlines = vec![
        rates("orphans=always", "orphans=list"),
        rates("orphans=always", "nobody has this"),
        Headline { measure: processor, ..rates("", "") },
        Headline { measure: Measure::Flatness, ..rates("", "") },
    ];
    let contestants = vec![
        contestant("memory:ext4,orphans=off", 1),
        contestant("memory:ext4,orphans=list", 1),
        contestant("memory:ext4,orphans=always", 1),
        contestant("memory:ext4,orphans=when-needed", 0),
    ];
    run_with(&[entry(job, contestants)], 1, &Notes::default())
}

#[test]
fn headlines_hold_one_setting_against_another() {
    let report = orphans();
    let all = &report.workloads[0].headlines;
    assert_eq!(all.len(), 3, "nobody has the setting of the second");
    let first = &all[0].values[0];
    assert_eq!(all[0].values.len(), 1);
    assert_eq!(
        (&*first.contestant, first.against.as_deref(), first.x),
        ("memory:ext4,orphans=always", Some("memory:ext4,orphans=list"), 128)
    );
    assert!((first.ratio - 3.0).abs() < 1e-9, "{first:?}");
    let least = first.least.as_ref().unwrap();
    // With one thread the list is faster, which does not count.
    assert!(least.from == 16 && (least.ratio - 1.5).abs() < 1e-9, "{least:?}");
    assert_eq!(all[1].kind, HeadlineKind::Processor);
    assert!((all[1].values[0].ratio - 180.0 / 48.0).abs() < 1e-9, "{:?}", all[1]);
    let flat = &all[2].values;
    assert_eq!((flat.len(), &*flat[0].contestant), (1, "memory:ext4,orphans=when-needed"));
    assert_eq!((flat[0].from, flat[0].x, flat[0].ratio), (Some(1), 128, 1.0));
}

#[test]
fn headlines_stand_beside_those_of_the_thread() {
    let report = orphans();
    for text in [report.text(), report.markdown(), report.html("Headlines")] {
        assert!(text.contains("3.0 ×"), "{text}");
        assert!(text.contains("at 128 threads, at least 1.50 × from 16 threads"), "{text}");
        assert!(text.contains("1.00") && text.contains("128 threads by 1 thread"), "{text}");
        assert!(text.contains("+275 %"), "{text}");
        assert!(
            text.contains("the thread\u{2019}s: 2.9 ×") || text.contains("the thread's: 2.9 ×")
        );
        assert!(!text.contains("1 threads") && !text.contains("1 runs"), "{text}");
    }
    let text = everything().text();
    for said in ["0.88 (2018", "0.74 (2019", "1.27 × (2015, 1", "0.98 × (2021"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // As in the mails: 8 and 19 per cent of system time.
    let parents = FsMark::SEED.headlines();
    let percent = parents.iter().flat_map(|one| &one.theirs);
    let percent: Vec<f64> = percent.map(|one| ((one.ratio - 1.0) * 100.0).round()).collect();
    assert_eq!(percent, [7.0, 8.0, 18.0, 19.0]);
}

#[test]
fn the_default_stands_in_the_summary_and_not_the_fastest() {
    let text = orphans().text();
    let summary = text.split("\nSummary\n").nth(1).unwrap().lines().nth(2).unwrap();
    assert!(summary.contains("memory:ext4,orphans=when-needed"), "{summary}");
}

#[test]
fn formats_are_held_against_themselves() {
    let of_format = |name: &str, format: &str| {
        let mut fake = contestant(name, 0);
        fake.description.format = format.to_owned();
        fake
    };
    let job = FakeJob::new(vec![case(10, 1)], |asked| {
        let wall = if asked.contestant.ends_with("ext4") { 100 } else { 300 };
        Ok(vec![step("make", 1000, [wall, wall, 0])])
    });
    let names = ["memory:ext4", "memory:xfs", "kernel:xfs", "kernel:ext4"];
    let fakes = names.map(|name| of_format(name, name.split(':').nth(1).unwrap()));
    let text = run_with(&[entry(job, fakes.into())], 1, &Notes::default()).text();
    let summary: Vec<_> =
        text.split("\nSummary\n").nth(1).unwrap().lines().skip(2).take(2).collect();
    assert!(summary[0].contains("memory:ext4") && summary[0].contains("kernel:ext4"), "{text}");
    assert!(summary[1].contains("memory:xfs") && summary[1].contains("kernel:xfs"), "{text}");
    assert!(summary.iter().all(|line| line.contains("1.00 ×")), "{text}");
}

#[test]
fn what_several_share_is_said_once() {
    let report = orphans();
    for text in [report.text(), report.markdown(), report.html("Once")] {
        for said in ["shared by all", "one, two", "only 0"] {
            assert_eq!(text.matches(said).count(), 1, "{said}: {text}");
        }
    }
    let text = report.text();
    assert!(text.contains("all: shared by all"), "{text}");
    assert!(text.contains("memory:ext4,orphans=when-needed: only 0"), "{text}");
    assert!(text.contains("File systems: 8 GiB (all)."), "{text}");
    let everything = everything().text();
    assert!(everything.contains("kernel:ext4… (all 3)") || everything.contains("(all 2)"));
}
