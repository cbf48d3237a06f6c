//! Removal of directories in the style of `rm -rf`, with warm and with cold caches.

use super::create::{Filling, own_directories};
use super::removal::{NO_COLD_RUN, forgets, remove_directories};
use super::repeats::{Durability, case, step};
use super::{Case, Context, Job, TimedStep};
use crate::contestant::Session;
use crate::cost::Cost;
use crate::error::Result;
use crate::target::Target;
use crate::with_target;

/// Removes directories full of empty files.
#[derive(Clone, Debug)]
pub struct Remove {
    /// Numbers of files in a directory, one case for each; at least 1.
    pub files: Vec<u64>,
    /// Number of threads, each with a separate directory; at least 1.
    pub threads: u32,
    /// True for a second removal with cold caches. If a session does not support that, that step is missing and the one
    /// before has the figure `cold runs`, which is 0.
    pub cold: bool,
}

impl Job for Remove {
    fn name(&self) -> &'static str {
        "remove"
    }

    fn what(&self) -> String {
        let cold = if self.cold {
            " It is repeated with new directories after caches are synced and dropped."
        } else {
            ""
        };
        format!(
            "Fills directories as `create` does, makes that durable, which is not timed, and removes them as rm -rf does: \
             reads 100,000 entries, removes them in the order of their inode numbers if they are more \
             than 10,000 and in the order of the directory otherwise, reads on, and removes the \
             directory in the end; {}. Reading is timed, \
             too. Where a step would have less than 100,000 files there are several directories; times \
             are those of all of them, and that of one is given beside.{cold}",
            own_directories(self.threads)
        )
    }

    fn axis(&self) -> &'static str {
        "files"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        let times = if self.cold { 4 } else { 2 };
        self.files.iter().map(|&files| case(files, self.threads, times)).collect()
    }

    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let filling = Filling { files: case.x, threads: self.threads, fsync: false };
        with_target!(session.target(), target => filling.run(target, context))?;
        let durability = Durability::before(session)?;
        let cost = with_target!(session.target(), target => remove(&filling, target, context))?;
        let mut warm = step("remove", case.x, self.threads, cost);
        warm.extras.extend(durability.after(session, warm.operations)?);
        if !self.cold {
            return Ok(vec![warm]);
        }
        if !forgets(session)? {
            warm.extras.push(NO_COLD_RUN);
            context.advance(warm.operations * 2)?;
            return Ok(vec![warm]);
        }
        with_target!(session.target(), target => filling.run(target, context))?;
        session.drop_caches()?;
        let cost = with_target!(session.target(), target => remove(&filling, target, context))?;
        Ok(vec![warm, step("remove, cold cache", case.x, self.threads, cost)])
    }
}

fn remove<T: Target>(filled: &Filling, target: &T, context: &Context<'_>) -> Result<Cost> {
    let directories = filled.directories();
    remove_directories(target, (directories, filled.threads), directories * filled.files, context)
}
