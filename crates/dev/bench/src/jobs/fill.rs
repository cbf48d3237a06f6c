//! Directories that are filled by one thread each.

use super::Context;
use super::fingerprint::Fingerprint;
use super::names::{FsMarkName, NameGenerator};
use super::threads::on_all;
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;
use vfs::FileType;

/// Number of names generated together for all threads, outside of the timing: 40 MiB.
const NAMES_PER_ROUND: u64 = 1 << 20;

/// Number of operations between two progress reports of a thread.
pub(super) const OPERATIONS_PER_ADVANCE: usize = 1000;

/// Returns the name of a thread's directory.
pub(super) fn directory_name(number: u64) -> String {
    format!("{number:04}")
}

/// A thread's directory.
pub(super) struct Lane<D> {
    /// Its name.
    pub(super) name: String,
    /// The directory.
    pub(super) top: D,
    /// The subdirectory that currently gets files, with its name.
    pub(super) subdirectory: Option<(Vec<u8>, D)>,
    /// Generator of file names.
    pub(super) names: NameGenerator,
    /// The files that must exist.
    pub(super) made: Fingerprint,
    batch: Vec<FsMarkName>,
}

impl<D> Lane<D> {
    /// Creates the directory.
    pub(super) fn make<T>(target: &T, number: u64, context: &Context<'_>) -> Result<Self>
    where
        T: Target<Dir = D>,
    {
        let (all, name) = (target.top()?, directory_name(number));
        target.make_dir(&all, name.as_bytes())?;
        let top = target.open_dir(&all, name.as_bytes())?;
        let (names, made) = (NameGenerator::new(context.seed, number), Fingerprint::default());
        Ok(Self { name, top, subdirectory: None, names, made, batch: Vec::new() })
    }

    /// Returns the directory that currently gets files.
    pub(super) fn dir(&self) -> &D {
        self.subdirectory.as_ref().map_or(&self.top, |(_, dir)| dir)
    }

    fn prepare(&mut self, count: u64) {
        self.names.fill(&mut self.batch, count as usize);
        let path = self.subdirectory.as_ref().map_or(&[][..], |(name, _)| name);
        for name in &self.batch {
            self.made.add(&[path, name]);
        }
    }
}

/// Lets each thread create `files` files with `make`. Returns the cost.
pub(super) fn fill<D: Send + Sync>(
    lanes: &mut [Lane<D>],
    files: u64,
    context: &Context<'_>,
    make: impl Fn(&Lane<D>, &FsMarkName) -> Result<()> + Sync,
) -> Result<Cost> {
    let mut cost = Cost::default();
    let round = NAMES_PER_ROUND / lanes.len().max(1) as u64 + 1;
    let mut left = files;
    while left > 0 {
        let count = left.min(round);
        lanes.iter_mut().for_each(|lane| lane.prepare(count));
        let make_all = |lane: &Lane<D>, context: &Context<'_>| {
            for names in lane.batch.chunks(OPERATIONS_PER_ADVANCE) {
                names.iter().try_for_each(|name| make(lane, name))?;
                context.advance(names.len() as u64)?;
            }
            Ok(())
        };
        cost += on_all(lanes, context, make_all)?.1;
        left -= count;
    }
    Ok(cost)
}

/// Looks up an entry of each directory, which forces deferred work. Returns the cost, which belongs to the creation of
/// the files.
pub(super) fn enter_all<T: Target>(
    target: &T,
    lanes: &[Lane<T::Dir>],
    context: &Context<'_>,
) -> Result<Cost> {
    let look = |lane: &Lane<T::Dir>, _: &Context<'_>| {
        let mut listing = target.start_listing(lane.dir())?;
        target.list_part(&mut listing, 1, &mut |_| Ok(()))
    };
    Ok(on_all(lanes, context, look)?.1)
}

/// Returns the files of a directory, with its path before their names.
///
/// # Errors
/// `Wrong` if it contains anything else; `Interrupted` if the run is cancelled.
pub(super) fn files_of<T: Target>(
    target: &T,
    dir: &T::Dir,
    path: &[u8],
    context: &Context<'_>,
) -> Result<Fingerprint> {
    let mut files = Fingerprint::default();
    target.list(dir, &mut |name, file_type| {
        if file_type.is_some_and(|found| found != FileType::Regular) {
            let name = name.escape_ascii();
            return Err(Error::Wrong(format!("{name} is a {file_type:?} and not a file")));
        }
        files.add(&[path, name]);
        if files.count().is_multiple_of(1 << 16) { context.advance(0) } else { Ok(()) }
    })?;
    Ok(files)
}
