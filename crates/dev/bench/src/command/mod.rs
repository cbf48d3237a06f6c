//! The command line of the workloads. Arguments ([`options`], [`common`], [`compare`]) are converted
//! to jobs with contestants ([`planned`], [`expand`]), which are run and reported ([`execute`]).

mod common;
mod compare;
mod counts;
mod execute;
mod expand;
mod help;
mod options;
mod planned;
mod progress;
mod sets;

use clap::{Args, Subcommand};
use diskwright::{Outcome, Result};

use common::RunArgs;
use compare::CompareArgs;
use execute::RunPlan;
use options::{
    ChangeOptions, CreateOptions, FindOptions, FsMarkOptions, FserverOptions, RemoveOptions,
    StressOrphanOptions, StressUnlinkOptions,
};
use planned::Workload;

pub(crate) use help::ALL as HELP;

/// A workload with its options, and how to run it.
#[derive(Debug, Args)]
pub(crate) struct Single<T: Args> {
    #[command(flatten)]
    options: T,

    #[command(flatten)]
    run: RunArgs,
}

/// The workloads, and their comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Workloads {
    /// Create files in one directory
    #[command(after_help = help::CREATE)]
    Create(Single<CreateOptions>),

    /// Remove the files of one directory
    #[command(after_help = help::REMOVE)]
    Remove(Single<RemoveOptions>),

    /// Change permissions, links and names of files in one directory
    #[command(after_help = help::CHANGE)]
    Change(Single<ChangeOptions>),

    /// Create and remove files with long names in many directories, with and without parent pointers
    #[command(after_help = help::FS_MARK)]
    FsMark(Single<FsMarkOptions>),

    /// Walk a tree in search of a name that does not exist
    #[command(after_help = help::FIND)]
    Find(Single<FindOptions>),

    /// Truncate files byte by byte from many threads, with each way of recording orphans
    #[command(after_help = help::STRESS_ORPHAN)]
    StressOrphan(Single<StressOrphanOptions>),

    /// Write, sync and remove files from many threads
    #[command(after_help = help::STRESS_UNLINK)]
    StressUnlink(Single<StressUnlinkOptions>),

    /// Run the jobs of a file server from many tasks at once
    #[command(after_help = help::FSERVER)]
    Fserver(Single<FserverOptions>),

    /// Run a set of workloads on several targets and write a report with plots
    #[command(after_help = help::COMPARE)]
    Compare(CompareArgs),
}

impl Workloads {
    /// Returns the workload and its run options, or the arguments of a comparison.
    fn single(&self) -> Result<(Workload, &RunArgs), &CompareArgs> {
        Ok(match self {
            Self::Create(Single { options, run }) => (Workload::Create(options.clone()), run),
            Self::Remove(Single { options, run }) => (Workload::Remove(options.clone()), run),
            Self::Change(Single { options, run }) => (Workload::Change(options.clone()), run),
            Self::FsMark(Single { options, run }) => (Workload::FsMark(options.clone()), run),
            Self::Find(Single { options, run }) => (Workload::Find(options.clone()), run),
            Self::StressOrphan(Single { options, run }) => {
                (Workload::StressOrphan(options.clone()), run)
            }
            Self::StressUnlink(Single { options, run }) => {
                (Workload::StressUnlink(options.clone()), run)
            }
            Self::Fserver(Single { options, run }) => (Workload::Fserver(options.clone()), run),
            Self::Compare(compare) => return Err(compare),
        })
    }

    /// Returns the workload, unless this is a comparison.
    fn workload(&self) -> Option<Workload> {
        self.single().ok().map(|(workload, _)| workload)
    }
}

pub(crate) fn run(workloads: &Workloads) -> Result<Outcome> {
    match workloads.single() {
        Ok((workload, run)) => single(&workload, run),
        Err(compare) => compare::run(compare),
    }
}

fn single(workload: &Workload, run: &RunArgs) -> Result<Outcome> {
    let targets = common::targets_or(&run.targets, &[workload.default_target()])?;
    workload.refuse_idle_options(&targets)?;
    let planned = workload.plan(&targets)?;
    let rounds = run.rounds.unwrap_or(1);
    let rounds_most = run.rounds_most.unwrap_or(rounds);
    execute::execute(RunPlan { planned, run, rounds, rounds_most, directory: None })
}
