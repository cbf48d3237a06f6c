//! Workload sets of `compare`, written as command lines.

use clap::Parser;

use super::Workloads;
use super::planned::Workload;

/// A set of workloads.
pub(super) struct Set {
    /// Name on the command line.
    pub(super) name: &'static str,
    /// Default number of runs per case.
    pub(super) rounds: u32,
    lines: &'static [&'static str],
}

/// All sets, the smallest first.
pub(super) const SETS: [Set; 3] = [
    Set {
        name: "quick",
        rounds: 1,
        lines: &[
            "create --files 20k --free-index reverse,tree",
            "remove --files 20k --cold",
            "change --files 20k",
            "fs-mark -D 10 -n 2k -L 2 -t 2 --cold",
            "find --tree generated:2k --walks 5",
            "stress-orphan --threads 1,4 --file-size 256 --files 4",
            "stress-unlink --threads 1,4 --files 10",
            "fserver --tasks 1,5 --jobs 24 --file-size 64K --pool-size 1M",
        ],
    },
    Set {
        name: "seeds",
        rounds: 3,
        lines: &[
            "create --files 10k,20k,100k,200k --free-index all",
            "create --files 10k,20k,100k,200k,1M",
            "remove --files 10k,20k,100k,200k --cold",
            "change --files 10k,100k",
            "fs-mark -n 5k --cold",
            "find --walks 20",
            "stress-orphan --files 2",
            "stress-unlink",
            "fserver --tasks 1,25,97,193 --jobs 24 --file-size 256K --pool-size 8M",
        ],
    },
    Set {
        name: "full",
        rounds: 5,
        lines: &[
            "create --files 10k,20k,100k,200k,1M,2M --free-index all",
            "create --files 10k,20k,100k,200k,1M,2M,10M",
            "remove --files 10k,20k,100k,200k,1M,2M,10M --cold",
            "change --files 10k,100k,1M",
            "fs-mark --cold",
            "find",
            "stress-orphan --files 160",
            "stress-unlink --files 1k",
            "fserver",
        ],
    },
];

/// A line of a set, as arguments.
#[derive(Parser)]
struct SetLine {
    #[command(subcommand)]
    workload: Workloads,
}

impl Set {
    /// Returns the workloads. Lines that cannot be parsed are skipped; a test checks that there are
    /// none.
    pub(super) fn workloads(&self) -> Vec<Workload> {
        self.lines.iter().filter_map(|line| workload(line).ok()).collect()
    }
}

fn workload(line: &str) -> Result<Workload, String> {
    let words = std::iter::once("workload").chain(line.split(' '));
    let line = SetLine::try_parse_from(words).map_err(|error| error.to_string())?;
    line.workload.workload().ok_or_else(|| "no workload".into())
}

#[cfg(test)]
mod tests {
    use crate::environments::TargetSpec;

    use super::super::planned::NAMES;
    use super::*;

    #[test]
    fn every_set_has_every_workload() {
        let targets: [TargetSpec; 2] = ["memory:xfs", "memory:ext4"].map(|t| t.parse().unwrap());
        for set in &SETS {
            let mut names = Vec::new();
            for line in set.lines {
                let workload = workload(line).unwrap_or_else(|said| panic!("{line}: {said}"));
                assert!(!workload.plan(&targets).unwrap().is_empty(), "{line}");
                names.push(workload.name());
            }
            assert_eq!(set.workloads().len(), set.lines.len(), "{}", set.name);
            names.dedup();
            assert_eq!(names, NAMES, "{}", set.name);
        }
    }
}
