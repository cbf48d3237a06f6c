//! The figures of the orphan file's author.

use crate::jobs::{Headline, Measure, Published, Theirs};

/// Number of threads from which the record of orphans is contended on any machine.
const MANY: u64 = 16;

/// The figures of the orphan file's author, in seconds. The work of each thread is unknown, but was the same for all
/// numbers of threads.
pub(super) fn tables() -> Vec<Published> {
    const ROWS_2015: [[f64; 3]; 8] = [
        [1.0, 1.6028, 1.26],
        [2.0, 4.2922, 2.455],
        [4.0, 6.2028, 3.8484],
        [8.0, 10.415, 6.8330],
        [16.0, 18.9336, 12.8832],
        [32.0, 38.5172, 25.3422],
        [64.0, 79.805, 50.9184],
        [128.0, 159.6292, 102.666],
    ];
    let first = Published {
        source: "Jan Kara, April 2015: ext4 on a RAM disk, Xeon server with 48 CPUs and 32 GB, mean of 5 \
                 runs; \"patched\" is the orphan file under a spinlock",
        columns: vec!["threads", "vanilla (s)", "patched (s)"],
        rows: ROWS_2015.iter().map(|row| row.to_vec()).collect(),
    };
    let one = Published {
        source: "Jan Kara, 2021: ext4 on an SSD, server with 80 CPUs, one process",
        columns: vec!["threads", "vanilla (s)", "orphan file (s)"],
        rows: vec![vec![1.0, 1.06, 0.95]],
    };
    let many = Published {
        source: "Jan Kara, 2021: ext4 on an SSD, server with 80 CPUs, 128 processes; the last column is \
                 the limit: no orphan is recorded at all",
        columns: vec![
            "threads",
            "vanilla (s)",
            "orphan file with a lock (s)",
            "orphan file without a lock (s)",
            "no orphan handling (s)",
        ],
        rows: vec![vec![128.0, 206.5, 122.9, 71.0, 69.3]],
    };
    vec![first, one, many]
}

/// The benefit of the orphan file, and its distance from recording nothing.
pub(super) fn headlines() -> Vec<Headline> {
    let headline = |name, [with, without]: [&'static str; 2], least_from, theirs| Headline {
        name,
        step: "truncate",
        measure: Measure::Rates { with, without, least_from },
        theirs,
    };
    let gain = vec![
        Theirs { about: "2015, 1 thread", ratio: 1.6028 / 1.26 },
        Theirs { about: "2015, 128 threads", ratio: 159.6292 / 102.666 },
        Theirs { about: "2021, 128 threads", ratio: 206.5 / 71.0 },
    ];
    let share = vec![Theirs { about: "2021, 128 threads", ratio: 69.3 / 71.0 }];
    vec![
        headline(
            "the orphan file by the list, at every truncate",
            ["orphans=always", "orphans=list"],
            Some(MANY),
            gain.clone(),
        ),
        headline(
            "the orphan file by no orphan handling at all, the limit",
            ["orphans=always", "orphans=off"],
            Some(MANY),
            share.clone(),
        ),
        headline(
            "the default, which records what has to be, by no orphan handling at all",
            ["orphans=when-needed", "orphans=off"],
            Some(MANY),
            share,
        ),
        headline(
            "the kernel's orphan file by its list",
            ["+orphan_file", "^orphan_file"],
            Some(MANY),
            gain,
        ),
    ]
}
