//! Repetition of steps on small directories within one timing, because a step of a few milliseconds is imprecise.

use super::{Case, Extra, TimedStep};
use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::Result;
use crate::target::Target;
use crate::with_target;

/// Minimum number of files of a step. Debug builds are slower, so fewer files take as long.
pub const FILES_PER_STEP: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

/// Cases with at least this many files are long enough to be run once.
const ONCE_FROM: u64 = 2_000_000;

/// Returns how often `threads` directories with `files` files each are created for one step.
pub(super) fn repeats(files: u64, threads: u32) -> u64 {
    (FILES_PER_STEP / files.saturating_mul(threads.into()).max(1)).max(1)
}

/// Returns the number of files of a step.
fn files_of_step(files: u64, threads: u32) -> u64 {
    files.saturating_mul(threads.into()).saturating_mul(repeats(files, threads))
}

/// Returns a case in which the files of a step are processed `times` times.
pub(super) fn case(files: u64, threads: u32, times: u64) -> Case {
    Case {
        x: files,
        need: need(files, threads),
        operations: files_of_step(files, threads).saturating_mul(times),
        rounds_max: rounds_max(files, threads),
    }
}

/// Returns the requirements of a step.
fn need(files: u64, threads: u32) -> Need {
    let directories = repeats(files, threads) * u64::from(threads);
    let inodes = files_of_step(files, threads).saturating_add(directories);
    Need { inodes, bytes: 0, threads, existing: false }
}

/// Returns the maximum number of rounds of a case.
fn rounds_max(files: u64, threads: u32) -> u32 {
    if files_of_step(files, threads) >= ONCE_FROM { 1 } else { u32::MAX }
}

/// Creates a step over all directories. `cost` is that of all of them; the time of one is added as a figure.
pub(super) fn step(name: &'static str, files: u64, threads: u32, cost: Cost) -> TimedStep {
    let value = cost.wall.as_secs_f64() / repeats(files, threads) as f64;
    let extras = vec![Extra { name: "one directory", unit: "s", value }];
    TimedStep { name, operations: files_of_step(files, threads), cost, extras }
}

/// Additional figures of a step: the time of a sync, and the bytes written to the log.
pub(super) struct Durability {
    log_before: Option<u64>,
}

impl Durability {
    /// Makes everything durable before a step.
    pub(super) fn before(session: &dyn Session) -> Result<Self> {
        sync(session)?;
        Ok(Self { log_before: session.log_position()? })
    }

    /// Makes everything durable after a step of `operations` operations. Its time is not part of the step; its log
    /// writes are counted.
    pub(super) fn after(self, session: &dyn Session, operations: u64) -> Result<Vec<Extra>> {
        let cost = sync(session)?;
        let mut extras =
            vec![Extra { name: "sync afterwards", unit: "s", value: cost.wall.as_secs_f64() }];
        if let Some((before, after)) = self.log_before.zip(session.log_position()?) {
            let value = after.saturating_sub(before) as f64 / operations.max(1) as f64;
            extras.push(Extra { name: "log", unit: "bytes/file", value });
        }
        Ok(extras)
    }
}

fn sync(session: &dyn Session) -> Result<Cost> {
    let target = session.target();
    Cost::of(|| with_target!(target, target => target.sync())).map(|((), cost)| cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Factor of numbers of files, compared with a debug build.
    const MORE: u64 = FILES_PER_STEP / 20_000;

    #[test]
    fn only_small_directories_are_repeated() {
        assert_eq!(
            [1, 2_000, 12_000, 20_000, 10_000_000].map(|files| repeats(files * MORE, 1)),
            [FILES_PER_STEP / MORE, 10, 1, 1, 1]
        );
        assert_eq!(repeats(2_000 * MORE, 4), 2);
        assert_eq!(files_of_step(2_000 * MORE, 4), 16_000 * MORE);
        assert_eq!(need(2_000 * MORE, 4).inodes, 16_000 * MORE + 8);
        assert_eq!(files_of_step(u64::MAX, 2), u64::MAX);
        assert_eq!((rounds_max(1_000_000, 1), rounds_max(1_000_000, 2)), (u32::MAX, 1));
    }
}
