//! `find`: a walk of a tree for a name that does not exist.

mod make;
mod shape;
mod walk;

use std::path::PathBuf;

use operations::profile::{ListingProfile, ListingStep};

use super::{Case, Context, Extra, Job, Published, TimedStep};
use crate::contestant::{AnyTarget, Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;
use crate::{allocations, with_target};
use shape::DirectoryShape;
use walk::{Seen, Walker};

/// The name to find. No tree may contain it.
const WANTED: &[u8] = b"notfoundatall";

/// Maximum number of walks that are profiled.
const PROFILED_WALKS_MAX: u32 = 10;

/// Trees with more files than this are walked in one round only.
const FILES_OF_MANY_ROUNDS_MAX: u64 = 1_000_000;

/// Walks a tree repeatedly for a name that does not exist, as in `for i in {1..100}; do find ./linux -name
/// notfoundatall; done`.
#[derive(Clone, Debug)]
pub struct Find {
    /// The tree.
    pub tree: FindTree,
    /// Number of walks, including the first one; at least one.
    pub walks: u32,
}

/// The tree of a [`Find`].
#[derive(Clone, Debug)]
pub enum FindTree {
    /// The existing contents of the target.
    Existing,
    /// A tree similar to the Linux source, which has 87,000 files in 5,800 directories.
    Generated {
        /// Number of files, plus one directory for every 15 files.
        files: u64,
    },
    /// A tree with the names of this host directory; every non-directory becomes an empty file. The target must not be
    /// inside it.
    Like(PathBuf),
}

impl Job for Find {
    fn name(&self) -> &'static str {
        "find"
    }

    fn what(&self) -> String {
        let tree = match &self.tree {
            FindTree::Existing => "The existing tree".into(),
            FindTree::Generated { files } => format!(
                "A tree of {files} empty files in {} directories, with sizes of directories and lengths of \
                 names as in the source of Linux 6.12,",
                DirectoryShape::directories_for(*files)
            ),
            FindTree::Like(from) => {
                format!("A tree with the names of {}, its files empty,", from.display())
            }
        };
        format!(
            "{tree} is walked depth first, {} times, and every name is compared with one that is not there: \
             David Wang's workload for ext4's readdir (linux-ext4, May 2025). Types come from the entries, \
             so that nothing is looked at but directories. Theodore Ts'o asked for system time and a cached \
             tree: all walks but the first are cached, and user and system time are given.",
            self.walks.max(1)
        )
    }

    fn axis(&self) -> &'static str {
        if matches!(self.tree, FindTree::Existing) { "walks" } else { "files" }
    }

    fn unit(&self) -> &'static str {
        "entries/s"
    }

    /// Returns one case. The size of an existing tree is unknown before a walk, so its progress is counted in walks.
    fn cases(&self) -> Vec<Case> {
        let walks = u64::from(self.walks.max(1));
        // An unreadable directory becomes an error of the run.
        let seen = match &self.tree {
            FindTree::Existing => None,
            FindTree::Generated { files } => {
                let directories = DirectoryShape::directories_for(*files);
                Some(Seen { entries: files + directories, directories })
            }
            FindTree::Like(from) => Some(make::count(from).unwrap_or_default()),
        };
        let Seen { entries, directories } = seen.unwrap_or_default();
        let files = entries - directories;
        let existing = seen.is_none();
        vec![Case {
            x: if existing { walks } else { files },
            need: Need { inodes: entries + 1, bytes: 0, threads: 1, existing },
            operations: if existing { walks } else { entries * walks },
            rounds_max: if files > FILES_OF_MANY_ROUNDS_MAX { 1 } else { u32::MAX },
        }]
    }

    fn run(
        &self,
        _case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        self.check_apart(&session.target())?;
        let made = with_target!(session.target(), target => self.make(target, context))?;
        let first = match session.drop_caches() {
            Ok(()) => "walk, first",
            // A table must not present a cached walk as a cold one.
            Err(Error::Unsupported(_)) => "walk, first, not cold",
            Err(error) => return Err(error),
        };
        let profile = session.profile();
        with_target!(session.target(), target => {
            Walks { target, walker: Walker::new(), expected: made, find: self, context }
                .run(first, profile)
        })
    }

    fn published(&self) -> Vec<Published> {
        let columns = [
            "patched",
            "ext4_readdir",
            "ext4_htree_fill_tree",
            "htree_dirblock_to_tree",
            "ext4_htree_store_dirent",
            "ext4fs_dirhash",
            "__ext4_read_dirblock",
        ];
        vec![Published {
            source: "David Wang, linux-ext4, 29 May 2025 (RFC: ext4: use kmem_cache for short fname \
                     allocation in readdir): samples of perf's cpu-clock at its highest frequency, over 100 \
                     runs of find in a kernel tree, on a machine that he does not describe; functions \
                     include what they call. 0 is before, one kzalloc per entry; 1 is with a kmem_cache for \
                     names up to 127 bytes: 2.4 % fewer samples in readdir, about 0.5 % less for find as \
                     a whole. Samples are not times: shares can be compared, and only within a row.",
            columns: columns.to_vec(),
            rows: vec![
                vec![0.0, 1_232_868.0, 839_085.0, 829_223.0, 365_869.0, 213_124.0, 145_839.0],
                vec![1.0, 1_202_922.0, 805_105.0, 795_055.0, 328_876.0, 212_915.0, 149_146.0],
            ],
        }]
    }
}

impl Find {
    /// Creates the tree and returns its size; `None` for an existing one.
    fn make(&self, target: &impl Target, context: &Context<'_>) -> Result<Option<Seen>> {
        let made = match &self.tree {
            FindTree::Existing => return Ok(None),
            FindTree::Generated { files } => make::generate(target, *files, context)?,
            FindTree::Like(from) => make::copy(target, from, context)?,
        };
        target.sync()?;
        Ok(Some(made))
    }

    /// Checks that the tree is not created inside the tree that it copies, which would not terminate.
    fn check_apart(&self, target: &AnyTarget<'_>) -> Result<()> {
        let (FindTree::Like(from), AnyTarget::Host(host)) = (&self.tree, target) else {
            return Ok(());
        };
        let real = |path: &std::path::Path| {
            path.canonicalize().map_err(|error| Error::host(path.display().to_string(), error))
        };
        if real(host.path())?.starts_with(real(from)?) {
            return Err(Error::Unsupported(format!(
                "{} is in {}, whose names it is to get",
                host.path().display(),
                from.display()
            )));
        }
        Ok(())
    }
}

/// The walks of one run.
struct Walks<'w, T: Target> {
    target: &'w T,
    walker: Walker<T::Dir>,
    /// Expected result of each walk, once it is known.
    expected: Option<Seen>,
    find: &'w Find,
    context: &'w Context<'w>,
}

impl<T: Target> Walks<'_, T> {
    fn run(
        mut self,
        first: &'static str,
        profile: Option<&ListingProfile>,
    ) -> Result<Vec<TimedStep>> {
        let (seen, cost) = Cost::of(|| self.walk())?;
        let mut steps = vec![step(first, seen, 1, cost)];
        let cached = self.find.walks.max(1) - 1;
        if cached > 0 {
            let ((), cost) = Cost::of(|| (0..cached).try_for_each(|_| self.walk().map(drop)))?;
            let mut step = step("walk, cached", seen, cached, cost);
            if let Some(allocations) = self.allocations()? {
                let value = allocations as f64 / seen.entries.max(1) as f64;
                step.extras.push(Extra { name: "allocations", unit: "1/entry", value });
            }
            steps.push(step);
        }
        if let Some(profile) = profile {
            steps.push(self.profiled(profile, seen, cached.clamp(1, PROFILED_WALKS_MAX))?);
        }
        Ok(steps)
    }

    /// Walks the tree and counts progress.
    fn walk(&mut self) -> Result<Seen> {
        let context = self.context;
        if matches!(self.find.tree, FindTree::Existing) {
            let seen = self.walk_with(&mut |_| context.advance(0))?;
            context.advance(1)?;
            Ok(seen)
        } else {
            self.walk_with(&mut |entries| context.advance(entries))
        }
    }

    /// Walks the tree and compares the result with the other walks.
    fn walk_with(&mut self, pulse: &mut dyn FnMut(u64) -> Result<()>) -> Result<Seen> {
        let mut compare = |name: &[u8]| if name == WANTED { Err(is_there()) } else { Ok(()) };
        let top = match self.find.tree {
            FindTree::Existing => self.target.top()?,
            FindTree::Generated { .. } | FindTree::Like(_) => make::top(self.target)?,
        };
        let seen = self.walker.walk(self.target, top, &mut compare, pulse)?;
        match self.expected.replace(seen) {
            Some(expected) if expected != seen => Err(Error::Wrong(format!(
                "a walk saw {} entries and {} directories instead of {} and {}",
                seen.entries, seen.directories, expected.entries, expected.directories
            ))),
            _ => Ok(seen),
        }
    }

    /// Returns the number of allocations of a walk, if they are counted.
    fn allocations(&mut self) -> Result<Option<u64>> {
        let mut outcome = Ok(Seen::default());
        let count = allocations::during(&mut || outcome = self.walk_with(&mut |_| Ok(())));
        outcome.map(|_| count)
    }

    /// Walks while the file system profiles its listings.
    fn profiled(&mut self, profile: &ListingProfile, seen: Seen, walks: u32) -> Result<TimedStep> {
        let context = self.context;
        profile.start();
        let walked = Cost::of(|| {
            (0..walks).try_for_each(|_| self.walk_with(&mut |_| context.advance(0)).map(drop))
        });
        let times = profile.stop();
        let ((), cost) = walked?;
        let entries = seen.entries * u64::from(walks);
        if times.entries != entries {
            return Err(Error::Wrong(format!(
                "listings say that they had {} entries instead of {entries}",
                times.entries
            )));
        }
        let mut step = step("walk, profiled", seen, walks, cost);
        let per_entry = |value: f64| value / entries.max(1) as f64;
        let mut add = |name, unit, value| step.extras.push(Extra { name, unit, value });
        let mut rest = cost.wall;
        for (name, what) in [
            ("reading", ListingStep::Reading),
            ("hashing", ListingStep::Hashing),
            ("sorting", ListingStep::Sorting),
            ("delivering", ListingStep::Delivering),
        ] {
            let time = times.time(what);
            rest = rest.saturating_sub(time);
            add(name, "ns/entry", per_entry(time.as_nanos() as f64));
        }
        // Look-ups of directories by name, and the walk's own work between listings.
        add("elsewhere", "ns/entry", per_entry(rest.as_nanos() as f64));
        add("blocks", "1/entry", per_entry(times.blocks as f64));
        Ok(step)
    }
}

fn is_there() -> Error {
    Error::Wrong(format!("{} is in the tree, and was not to be found", WANTED.escape_ascii()))
}

fn step(name: &'static str, seen: Seen, walks: u32, cost: Cost) -> TimedStep {
    let operations = seen.entries * u64::from(walks);
    let nanos = cost.wall.as_nanos() as f64 / operations.max(1) as f64;
    let extra = |name, unit, value| Extra { name, unit, value };
    let extras = vec![
        extra("time", "ns/entry", nanos),
        extra("entries", "", seen.entries as f64),
        extra("directories", "", seen.directories as f64),
    ];
    TimedStep { name, operations, cost, extras }
}
