//! Changes of existing files: permissions and names.

use super::fill::{Lane, OPERATIONS_PER_ADVANCE, files_of, fill};
use super::fingerprint::Fingerprint;
use super::names::{FsMarkName, NameGenerator};
use super::threads::on_all;
use super::{Case, Context, Job, TimedStep};
use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;
use crate::with_target;

/// Index of the byte of a name that contains its kind: the first of those that all names share.
const KIND: usize = 8;

/// Suffix of the directory that a thread moves files to.
const OTHER: &str = "-moved";

/// New permissions instead of 0644.
const PERMISSIONS: u16 = 0o640;

/// The permissions of every `n`-th file are checked.
const LOOKED_AT: usize = 100;

/// Number of steps of a run.
const STEPS: u64 = 4;

/// Changes files of a directory.
#[derive(Clone, Debug)]
pub struct Change {
    /// Numbers of files in a directory, one case for each; at least 1.
    pub files: Vec<u64>,
    /// Number of threads, each with separate directories; at least 1.
    pub threads: u32,
}

/// Files of one thread.
struct ThreadFiles<D> {
    own: D,
    other: D,
    path: String,
    names: Vec<FsMarkName>,
}

/// Operation on a file of a part.
type Act<T> = fn(&T, &ThreadFiles<<T as Target>::Dir>, &FsMarkName) -> Result<()>;

/// Returns the name of a file after a step.
fn of_kind(name: &FsMarkName, kind: u8) -> FsMarkName {
    let mut other = *name;
    other[KIND] = kind;
    other
}

fn linked(name: &FsMarkName) -> FsMarkName {
    of_kind(name, b'l')
}

fn renamed(name: &FsMarkName) -> FsMarkName {
    of_kind(name, b'r')
}

impl Change {
    fn parts<T: Target>(
        &self,
        files: u64,
        target: &T,
        context: &Context<'_>,
    ) -> Result<Vec<ThreadFiles<T::Dir>>> {
        let numbers = 0..u64::from(self.threads);
        let lanes = numbers.clone().map(|number| Lane::make(target, number, context));
        let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
        fill(&mut lanes, files, context, |lane, name| target.make_file(lane.dir(), name))?;
        target.sync()?;
        let part = |(lane, number): (Lane<T::Dir>, u64)| {
            let mut names = Vec::new();
            NameGenerator::new(context.seed, number).fill(&mut names, files as usize);
            let (all, name) = (target.top()?, lane.name.clone() + OTHER);
            target.make_dir(&all, name.as_bytes())?;
            let other = target.open_dir(&all, name.as_bytes())?;
            Ok(ThreadFiles { own: lane.top, other, path: lane.name, names })
        };
        lanes.into_iter().zip(numbers).map(part).collect()
    }

    fn run<T: Target>(
        &self,
        files: u64,
        target: &T,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let parts = self.parts(files, target, context)?;
        let acts: [(&str, Act<T>); STEPS as usize] = [
            ("chmod", |target, part, name| target.set_permissions(&part.own, name, PERMISSIONS)),
            ("link", |target, part, name| target.link(&part.own, name, &linked(name))),
            ("rename", |target, part, name| {
                target.rename((&part.own, name), (&part.own, &renamed(name)))
            }),
            ("move", |target, part, name| {
                let name = renamed(name);
                target.rename((&part.own, &name), (&part.other, &name))
            }),
        ];
        let mut steps = Vec::new();
        for (name, act) in acts {
            let cost = change(target, &parts, act, context)?;
            let operations = files * u64::from(self.threads);
            steps.push(TimedStep { name, operations, cost, extras: Vec::new() });
            target.sync()?;
        }
        parts.iter().try_for_each(|part| check(target, part, context))?;
        Ok(steps)
    }
}

/// Applies an operation to all files, each thread to its own.
fn change<T: Target>(
    target: &T,
    parts: &[ThreadFiles<T::Dir>],
    act: Act<T>,
    context: &Context<'_>,
) -> Result<Cost> {
    let all = |part: &ThreadFiles<T::Dir>, context: &Context<'_>| {
        for names in part.names.chunks(OPERATIONS_PER_ADVANCE) {
            names.iter().try_for_each(|name| act(target, part, name))?;
            context.advance(names.len() as u64)?;
        }
        Ok(())
    };
    on_all(parts, context, all).map(|(_, cost)| cost)
}

/// Checks names and permissions of the files.
fn check<T: Target>(target: &T, part: &ThreadFiles<T::Dir>, context: &Context<'_>) -> Result<()> {
    let (mut links, mut moved) = (Fingerprint::default(), Fingerprint::default());
    for name in &part.names {
        links.add(&[&[], &linked(name)]);
        moved.add(&[&[], &renamed(name)]);
    }
    for name in part.names.iter().step_by(LOOKED_AT) {
        let found = target.permissions(&part.other, &renamed(name))?;
        if found != PERMISSIONS {
            let name = name.escape_ascii();
            return Err(Error::Wrong(format!(
                "{name}: permissions {found:o}, not {PERMISSIONS:o}"
            )));
        }
    }
    moved.expect(&files_of(target, &part.other, &[], context)?, &part.path)?;
    links.expect(&files_of(target, &part.own, &[], context)?, &part.path)
}

impl Job for Change {
    fn name(&self) -> &'static str {
        "change"
    }

    fn what(&self) -> String {
        let own = match self.threads {
            1 => "One thread fills a directory".to_owned(),
            threads => format!("Each of {threads} threads fills its own directory"),
        };
        format!(
            "{own} as `create` does and syncs it, which is not timed. Then each file gets new \
             permissions (chmod), a second name in the same directory (link), a new first name \
             there (rename), and that name in another directory (move), in the order of creation. \
             Changes are synced between the steps, outside the measured time."
        )
    }

    fn axis(&self) -> &'static str {
        "files"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        let threads = u64::from(self.threads);
        let case = |&files: &u64| {
            let all = files.saturating_mul(threads);
            let inodes = all.saturating_add(2 * threads);
            Case {
                x: files,
                // Names determine the size: each file has two, plus removed ones.
                need: Need {
                    inodes,
                    bytes: all.saturating_mul(256),
                    threads: self.threads,
                    existing: false,
                },
                operations: all.saturating_mul(STEPS + 1),
                rounds_max: u32::MAX,
            }
        };
        self.files.iter().map(case).collect()
    }

    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        with_target!(session.target(), target => self.run(case.x, target, context))
    }
}
