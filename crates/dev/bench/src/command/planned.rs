//! Conversion of a workload from the command line to jobs with contestants.

use crate::environments::TargetSpec;
use crate::jobs::{
    Change, Create, Find, FindTree, FsMark, Fserver, Job, Remove, StressOrphan, StressUnlink,
};
use diskwright::text::escaped;
use diskwright::{Error, Result};
use xfs::FreeIndexStrategy;

use super::expand::{Question, Rival, has_free_index, rivals};
use super::options::{
    ChangeOptions, CreateOptions, FindOptions, FsMarkOptions, FserverOptions, RemoveOptions,
    StressOrphanOptions, StressUnlinkOptions, TREE_FILES, TreeOption,
};

/// Names of the workloads on the command line.
pub(super) const NAMES: [&str; 8] =
    ["create", "remove", "change", "fs-mark", "find", "stress-orphan", "stress-unlink", "fserver"];

/// A workload with its options.
#[derive(Clone, Debug)]
pub(super) enum Workload {
    Create(CreateOptions),
    Remove(RemoveOptions),
    Change(ChangeOptions),
    FsMark(FsMarkOptions),
    Find(FindOptions),
    StressOrphan(StressOrphanOptions),
    StressUnlink(StressUnlinkOptions),
    Fserver(FserverOptions),
}

/// A job and its contestants.
pub(super) struct Planned {
    pub(super) job: Box<dyn Job>,
    pub(super) rivals: Vec<Rival>,
}

impl Workload {
    /// Returns the workload's name on the command line.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Remove(_) => "remove",
            Self::Change(_) => "change",
            Self::FsMark(_) => "fs-mark",
            Self::Find(_) => "find",
            Self::StressOrphan(_) => "stress-orphan",
            Self::StressUnlink(_) => "stress-unlink",
            Self::Fserver(_) => "fserver",
        }
    }

    /// Returns the default target: the file system that the workload's mailing-list thread is
    /// about.
    pub(super) fn default_target(&self) -> &'static str {
        match self {
            Self::Create(_) | Self::Remove(_) | Self::Change(_) | Self::FsMark(_) => "memory:xfs",
            Self::Find(_) | Self::StressOrphan(_) | Self::StressUnlink(_) | Self::Fserver(_) => {
                "memory:ext4"
            }
        }
    }

    /// Returns the jobs for these targets.
    ///
    /// # Errors
    /// `Usage` if an option is invalid for every target.
    pub(super) fn plan(&self, targets: &[TargetSpec]) -> Result<Vec<Planned>> {
        let one = |question, job| Ok(vec![Planned { job, rivals: rivals(question, targets) }]);
        match self {
            Self::Create(options) => {
                let ways = free_index(&options.free_index)?;
                one(Question::FreeIndex(&ways), Box::new(create(options)))
            }
            Self::Remove(options) => one(Question::None, Box::new(remove(options))),
            Self::Change(options) => {
                let job = Change { files: options.files.clone(), threads: options.threads };
                one(Question::None, Box::new(job))
            }
            Self::FsMark(options) => one(Question::Parents, Box::new(fs_mark(options))),
            Self::Find(options) => find(options, targets),
            Self::StressOrphan(options) => one(Question::Orphans, Box::new(stress_orphan(options))),
            Self::StressUnlink(options) => {
                let job = StressUnlink { threads: options.threads.clone(), files: options.files };
                one(Question::Orphans, Box::new(job))
            }
            Self::Fserver(options) => one(Question::Orphans, Box::new(fserver(options))),
        }
    }

    /// Rejects options that none of the targets supports.
    pub(super) fn refuse_idle_options(&self, targets: &[TargetSpec]) -> Result<()> {
        match self {
            Self::Create(options)
                if !options.free_index.is_empty() && !targets.iter().any(has_free_index) =>
            {
                let problem = "--free-index is for memory:xfs only; add that as a --target";
                Err(Error::Usage(problem.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Parses strategies for finding free space.
fn free_index(names: &[String]) -> Result<Vec<FreeIndexStrategy>> {
    if names.iter().any(|name| name == "all") {
        return Ok(FreeIndexStrategy::ALL.to_vec());
    }
    let way = |name: &String| {
        FreeIndexStrategy::from_name(name).ok_or_else(|| {
            let names = FreeIndexStrategy::ALL.map(FreeIndexStrategy::name).join(", ");
            Error::Usage(format!("--free-index {name:?}: choose from {names}, or all"))
        })
    };
    names.iter().map(way).collect()
}

fn create(options: &CreateOptions) -> Create {
    Create { files: options.files.clone(), threads: options.threads, fsync: options.fsync }
}

fn remove(options: &RemoveOptions) -> Remove {
    Remove { files: options.files.clone(), threads: options.threads, cold: options.cold }
}

fn fs_mark(options: &FsMarkOptions) -> FsMark {
    FsMark {
        threads: options.threads.unwrap_or_else(processors),
        files: options.files,
        loops: options.loops,
        subdirectories: options.subdirectories,
        cold: options.cold,
        rename: options.rename,
    }
}

fn stress_orphan(options: &StressOrphanOptions) -> StressOrphan {
    StressOrphan {
        threads: options.threads.clone(),
        file_bytes: options.file_size,
        rounds: options.files,
    }
}

fn fserver(options: &FserverOptions) -> Fserver {
    Fserver {
        tasks: options.tasks.clone(),
        jobs_per_task: options.jobs,
        file_bytes: options.file_size,
        pool_bytes: options.pool_size,
    }
}

/// Plans `find`: existing images and directories are walked as they are, generated targets get a
/// tree.
fn find(options: &FindOptions, targets: &[TargetSpec]) -> Result<Vec<Planned>> {
    let (paths, made): (Vec<_>, Vec<_>) =
        targets.iter().cloned().partition(|target| matches!(target, TargetSpec::Path(_)));
    if options.tree == Some(TreeOption::Existing) && !made.is_empty() {
        let problem = "--tree existing: memory: and kernel: targets are empty; leave it out, or \
                       use an image or a directory as the target";
        return Err(Error::Usage(problem.into()));
    }
    if let Some(TreeOption::Like(path)) = options.tree.as_ref().filter(|tree| is_missing(tree)) {
        let name = escaped(path.as_os_str().as_encoded_bytes());
        return Err(Error::Usage(format!(
            "--tree {name}: no such directory; write existing, generated, generated:FILES or a directory"
        )));
    }
    let planned = |targets: &[TargetSpec], unsaid| {
        let tree = match options.tree.clone().unwrap_or(unsaid) {
            TreeOption::Existing => FindTree::Existing,
            TreeOption::Generated(files) => FindTree::Generated { files },
            TreeOption::Like(path) => FindTree::Like(path),
        };
        Planned {
            job: Box::new(Find { tree, walks: options.walks }),
            rivals: rivals(Question::None, targets),
        }
    };
    if options.tree.is_some() {
        return Ok(vec![planned(targets, TreeOption::Existing)]);
    }
    let both =
        [planned(&made, TreeOption::Generated(TREE_FILES)), planned(&paths, TreeOption::Existing)];
    Ok(both.into_iter().filter(|planned| !planned.rivals.is_empty()).collect())
}

fn is_missing(tree: &TreeOption) -> bool {
    matches!(tree, TreeOption::Like(path) if !path.is_dir())
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count).unwrap_or(u32::MAX)
}
