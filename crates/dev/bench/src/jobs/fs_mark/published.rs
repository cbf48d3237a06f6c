//! The tables of the thread of 2025.

use crate::jobs::{Headline, Measure, Published, Theirs};

const COLUMNS: [&str; 7] = [
    "files",
    "parent=0, real s",
    "parent=1, real s",
    "parent=0, user s",
    "parent=1, user s",
    "parent=0, sys s",
    "parent=1, sys s",
];

macro_rules! source {
    ($what:literal) => {
        concat!(
            "Darrick J. Wong, \"xfs: speed up parent pointer operations\", linux-xfs, 19 December \
             2025; 20 CPUs, 128 GiB, NVMe, 40 directories, kernel unknown: ",
            $what
        )
    };
}

/// Time of fs_mark and rm in seconds, without and with parent pointers; before the patch and with it.
pub(super) fn tables() -> Vec<Published> {
    let table = |source, figures: [f64; 6]| Published {
        source,
        columns: COLUMNS.to_vec(),
        rows: vec![std::iter::once(32e6).chain(figures).collect()],
    };
    vec![
        table(
            source!("create, before the patch (system time +28 %)"),
            [57.573, 62.934, 233.578, 233.508, 1184.440, 1514.810],
        ),
        table(
            source!("remove, before the patch (system time +56 %)"),
            [59.649, 72.505, 41.196, 47.489, 789.566, 1233.844],
        ),
        table(
            source!("create, with the patch (system time +8 %)"),
            [58.030, 60.983, 234.141, 233.758, 1197.003, 1290.605],
        ),
        table(
            source!("remove, with the patch (system time +19 %)"),
            [58.911, 64.420, 41.329, 45.169, 807.857, 958.564],
        ),
    ]
}

/// The cost of parent pointers, compared with that in the thread with its patch.
pub(super) fn headlines() -> Vec<Headline> {
    let headline = |step, processor: [f64; 2], system: [f64; 2]| Headline {
        name: "parent pointers: processor time (user + system) with them by that without",
        step,
        measure: Measure::Processor { with: "+parent", without: "^parent" },
        theirs: vec![
            Theirs { about: "2025, with the patch", ratio: processor[1] / processor[0] },
            Theirs { about: "its system time alone", ratio: system[1] / system[0] },
        ],
    };
    vec![
        headline("create", [234.141 + 1197.003, 233.758 + 1290.605], [1197.003, 1290.605]),
        headline("remove", [41.329 + 807.857, 45.169 + 958.564], [807.857, 958.564]),
    ]
}
