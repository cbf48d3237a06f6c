//! `diskwright-bench compare`.

use std::path::Path;

use clap::Args;
use clap::builder::PossibleValuesParser;
use diskwright::{Outcome, Result};

use super::common::{self, RunArgs};
use super::execute::{self, RunPlan};
use super::planned::NAMES;
use super::sets::SETS;

/// Factor by which rounds of a set may increase while no significant difference is found.
const ROUNDS_ADDED: u32 = 4;

/// Default directory of the report.
const DIRECTORY: &str = "workload-report";

const TARGETS: [&str; 4] = ["memory:ext4", "memory:xfs", "kernel:ext4", "kernel:xfs"];

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Select the set, which defines the sizes of the workloads
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(SETS.iter().map(|set| set.name)),
        default_value = "seeds"
    )]
    set: String,

    /// Run only these workloads, separated by commas
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(NAMES)
    )]
    only: Vec<String>,

    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn run(args: &CompareArgs) -> Result<Outcome> {
    let targets = common::targets_or(&args.run.targets, &TARGETS)?;
    let is_wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
    let (mut planned, mut rounds) = (Vec::new(), 1);
    for set in SETS.iter().filter(|set| set.name == args.set) {
        rounds = set.rounds;
        for workload in set.workloads().iter().filter(|workload| is_wanted(workload.name())) {
            planned.extend(workload.plan(&targets)?);
        }
    }
    // An explicit number of rounds is exact. A set with one round only checks that everything runs.
    let unsaid = match args.run.rounds {
        None if rounds >= execute::ROUNDS_TO_COMPARE => rounds * ROUNDS_ADDED,
        said => said.unwrap_or(rounds),
    };
    execute::execute(RunPlan {
        planned,
        run: &args.run,
        rounds: args.run.rounds.unwrap_or(rounds),
        rounds_most: args.run.rounds_most.unwrap_or(unsaid),
        directory: Some(Path::new(DIRECTORY)),
    })
}
