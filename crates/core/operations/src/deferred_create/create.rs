//! Creation of deferred files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::names::check_name;
use vfs::{Error, Ino, NAME_LEN_MAX, NewInode, Result};

use super::apply::{apply_part, tidy};
use super::filter::Filter;
use super::format::{DeferCreates, HashNames as _};
use super::table::DeferredDirectory;
use super::{DeferPolicy, SharedDirectory};
use crate::Outcome;
use crate::inode::{InodeHandle as _, load_dir};

/// Approximate number of directory bytes for each name, if names are not long.
const ENTRY_BYTES: u64 = 64;

/// Minimum number of units of space that are promised at a time.
const PROMISE_LEAST: u64 = 256;

/// Returns twice the usual number of names in a directory of this size.
fn names_max<F: DeferCreates>(fs: &F, blocks: u64) -> u64 {
    blocks * (fs.engine().block_size() as u64 / ENTRY_BYTES) * 2
}

/// Returns the space that a directory may need for its deferred names and one more.
fn space_needed<F: DeferCreates>(
    fs: &F,
    directory: &DeferredDirectory<F::Hasher>,
    blocks: u64,
) -> u64 {
    let bytes = directory.name_bytes + fs.bytes_of_name(NAME_LEN_MAX);
    fs.space_for(blocks, directory.deferred + 1, bytes)
}

/// Creates a deferred regular file. Returns `None` if it must be created immediately.
///
/// # Errors
/// Returns the errors of [`vfs::FileSystem::create`]. Nothing has changed then.
pub(super) fn create<F: DeferCreates>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    new: &NewInode,
) -> Result<Option<Ino>> {
    let deferred = fs.deferred();
    let Some(policy) = deferred.policy else { return Ok(None) };
    if !deferred.dirs.has(dir) || check_name(name).is_err() {
        return Ok(None);
    }
    // After a write error the file could never become durable.
    fs.engine().check_alive()?;
    if deferred.is_full.load(Ordering::Relaxed) {
        if deferred.files() >= policy.files_max {
            apply_some(fs)?;
        }
        deferred.note_full(policy);
    }
    defer(fs, policy, (dir, name), new)
}

/// Applies the largest part of the directory with the most deferred files.
fn apply_some<F: DeferCreates>(fs: &F) -> Result<()> {
    let mut most: Option<(usize, Ino, SharedDirectory<F::Hasher>)> = None;
    fs.deferred().dirs.for_each(|dir, directory| {
        let deferred = directory.lock().deferred;
        if most.as_ref().is_none_or(|(others, ..)| deferred > *others) {
            most = Some((deferred, dir, Arc::clone(directory)));
        }
    });
    let Some((_, dir, directory)) = most else { return Ok(()) };
    let _lock = fs.locks().exclusive(&[dir]);
    let part = directory.lock().largest();
    apply_part(fs, dir, &directory, part)
}

fn defer<F: DeferCreates>(
    fs: &F,
    policy: DeferPolicy,
    (dir, name): (Ino, &[u8]),
    new: &NewInode,
) -> Result<Option<Ino>> {
    let deferred = fs.deferred();
    let entering = deferred.gates.enter(dir);
    let _lock = fs.locks().exclusive(&[dir]);
    let Some(shared) = deferred.dirs.get(dir).filter(|_| entering.is_allowed()) else {
        return Ok(None);
    };
    let parent = load_dir(fs, dir)?;
    let blocks = fs.blocks_of(&parent);
    let mut directory = shared.lock();
    let key = directory.hasher.key(name);
    let is_new = directory.is_new(key);
    match if is_new { None } else { directory.find(key, name) } {
        Some((_, true)) => return Err(Error::Exists),
        Some((_, false)) => return Ok(None),
        None if !is_suited(fs, policy, (&parent, blocks), &directory) => return Ok(None),
        None => {}
    }
    directory.part(policy.parts_of(blocks));
    let has_inode = directory.has_inode(directory.part_of(key));
    if !is_new || !has_inode || space_needed(fs, &directory, blocks) > directory.promised() {
        // The inode lock protects the directory from other changes. The mutex must not be held while blocks are read.
        drop(directory);
        if !prepare(fs, (&parent, blocks), &shared, (key, name))? {
            return Ok(None);
        }
        directory = shared.lock();
        if directory.filter.is_none() {
            // The filter was dropped in the meantime to free memory for other directories. Releases the reservations
            // that were just made.
            let part = directory.part_of(key);
            drop(directory);
            tidy(fs, dir, &shared, part);
            return Ok(None);
        }
    }
    let name = (key, name, fs.bytes_of_name(name.len()));
    let made = directory.add(name, *new, |ino| fs.generation_to_be(ino));
    if made.is_some() {
        entering.keep();
        if directory.deferred == 1 {
            deferred.dirs_deferred.fetch_add(1, Ordering::Relaxed);
        }
        deferred.count(policy, directory.deferred);
    }
    Ok(made)
}

/// Checks whether a name exists, and reserves the inode and space that it needs to be deferred. Returns false if there
/// is too little of either.
fn prepare<F: DeferCreates>(
    fs: &F,
    (parent, blocks): (&F::Inode, u64),
    shared: &SharedDirectory<F::Hasher>,
    (key, name): (u64, &[u8]),
) -> Result<bool> {
    if has_name(fs, (parent, blocks), shared, (key, name))? {
        return Err(Error::Exists);
    }
    let inode = provide_inode(fs, parent, shared, key);
    let provided =
        inode.and_then(|is_there| Ok(is_there && provide_space(fs, (parent, blocks), shared)?));
    if !matches!(provided, Ok(true)) {
        let part = shared.lock().part_of(key);
        tidy(fs, parent.ino(), shared, part);
        // A retry would most likely fail as well, so the streak starts again.
        shared.lock().streak = 0;
    }
    provided
}

/// Returns whether files of a directory may be deferred in its present state.
fn is_suited<F: DeferCreates>(
    fs: &F,
    policy: DeferPolicy,
    (parent, blocks): (&F::Inode, u64),
    directory: &DeferredDirectory<F::Hasher>,
) -> bool {
    let streak = policy.streak_per_block as u64 * blocks;
    let filter_bytes_max = fs.deferred().filter_bytes_max;
    parent.generation() == directory.generation
        && blocks >= policy.blocks_min
        && directory.streak as u64 >= streak
        && fs.suits(parent, blocks, space_needed(fs, directory, blocks))
        && directory.filter_bytes() <= filter_bytes_max
        && Filter::bytes_for(names_max(fs, blocks)) <= filter_bytes_max
}

/// Returns whether a name exists in a directory on disk.
fn has_name<F: DeferCreates>(
    fs: &F,
    (parent, blocks): (&F::Inode, u64),
    shared: &SharedDirectory<F::Hasher>,
    (key, name): (u64, &[u8]),
) -> Result<bool> {
    let is_known = shared.lock().filter.as_ref().map(|filter| filter.may_have(key));
    let may_have = match is_known {
        Some(may_have) => may_have,
        None => {
            let filter = filter_of(fs, (parent, blocks), shared)?;
            let may_have = filter.may_have(key);
            shared.lock().filter = Some(filter);
            may_have
        }
    };
    Ok(may_have && fs.find_entry(parent, name)?.is_some())
}

/// Builds the filter by reading all names of a directory, in which nothing is deferred yet.
fn filter_of<F: DeferCreates>(
    fs: &F,
    (parent, blocks): (&F::Inode, u64),
    shared: &SharedDirectory<F::Hasher>,
) -> Result<Filter> {
    let hasher = shared.lock().hasher;
    fs.deferred().forget_filters();
    let mut filter = Filter::new(names_max(fs, blocks));
    fs.for_each_key(parent, hasher, &mut |key| filter.add(key))?;
    Ok(filter)
}

/// Reserves inodes for the part of a name, if it has none. Returns false if none are free.
fn provide_inode<F: DeferCreates>(
    fs: &F,
    parent: &F::Inode,
    shared: &SharedDirectory<F::Hasher>,
    key: u64,
) -> Result<bool> {
    let part = shared.lock().part_of(key);
    if shared.lock().has_inode(part) {
        return Ok(true);
    }
    let Some(run) = fs.reserve_inodes(parent)? else { return Ok(false) };
    let owner = shared.lock().give(parent.ino(), part, run);
    fs.deferred().runs.lock().entry(F::run_id(run.base())).or_default().push(owner);
    Ok(true)
}

/// Promises the space that one more name may need. Returns false if there is too little.
fn provide_space<F: DeferCreates>(
    fs: &F,
    (parent, blocks): (&F::Inode, u64),
    shared: &SharedDirectory<F::Hasher>,
) -> Result<bool> {
    let directory = shared.lock();
    let (needed, promised) = (space_needed(fs, &directory, blocks), directory.promised());
    drop(directory);
    if needed <= promised {
        return Ok(true);
    }
    let wanted = (needed - promised).max(PROMISE_LEAST) + needed / 4;
    let mut promises = Vec::new();
    let outcome = fs.promise(parent, wanted, &mut |group, count| promises.push((group, count)));
    let mut directory = shared.lock();
    promises.into_iter().for_each(|(group, count)| directory.add_promise(group, count));
    outcome?;
    Ok(directory.promised() >= needed)
}

/// Records that a name was added to a directory, which is locked: files may be deferred there now or later. `hasher`
/// returns the hash function of its names, or `None` if files are never deferred there.
///
/// # Errors
/// Returns the errors of `hasher`.
pub fn note_name<F: DeferCreates>(
    fs: &F,
    dir: &F::Inode,
    name: &[u8],
    hasher: impl FnOnce() -> Outcome<Option<F::Hasher>>,
) -> Outcome<()> {
    let deferred = fs.deferred();
    let Some(policy) = deferred.policy else { return Ok(()) };
    let known = deferred.dirs.get(dir.ino());
    let known = known.filter(|shared| shared.lock().generation == dir.generation());
    let shared = match known {
        // The current size does not matter: it may have been large before and become so again, and its filter must
        // contain all names then.
        Some(shared) => shared,
        None if fs.blocks_of(dir) < policy.blocks_min => return Ok(()),
        None => {
            let Some(hasher) = hasher()? else { return Ok(()) };
            deferred.dirs.remember(dir.ino(), DeferredDirectory::new(dir.generation(), hasher))
        }
    };
    let mut directory = shared.lock();
    directory.streak += 1;
    let key = directory.hasher.key(name);
    directory.note(key);
    Ok(())
}
