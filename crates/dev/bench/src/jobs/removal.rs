//! Removal of trees in the style of `rm -rf`.
//!
//! Observed behaviour of `rm` of coreutils 9.1: it reads a directory in parts of 100,000 entries, sorts a part of more
//! than 10,000 by inode number and processes a smaller one in the order of the directory, removes each entry with one
//! call relative to the directory, and continues reading.

use vfs::FileType;

use super::fill::{OPERATIONS_PER_ADVANCE, directory_name};
use super::threads::on_all;
use super::{Context, Extra};
use crate::contestant::Session;
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;

/// Number of entries that are read before they are removed.
const ENTRIES_PER_PART: usize = 100_000;

/// Maximum number of entries of a part that are removed in the order of the directory.
const UNSORTED_MAX: usize = 10_000;

/// Removes `directories` directories of threads, `threads` at a time. Returns the cost.
///
/// # Errors
/// `Wrong` if those were not `files` files, or if anything is left.
pub(super) fn remove_directories<T: Target>(
    target: &T,
    (directories, threads): (u64, u32),
    files: u64,
    context: &Context<'_>,
) -> Result<Cost> {
    let top = target.top()?;
    let firsts: Vec<u64> = (0..u64::from(threads)).collect();
    let remove = |first: &u64, context: &Context<'_>| {
        let numbers = (*first..directories).step_by(threads as usize);
        let names = numbers.map(directory_name);
        names.map(|name| remove_all(target, &top, name.as_bytes(), context)).sum::<Result<u64>>()
    };
    let (removed, cost) = on_all(&firsts, context, remove)?;
    let removed = removed.into_iter().sum::<u64>();
    if removed != files {
        return Err(Error::Wrong(format!("{files} files were there to remove, {removed} found")));
    }
    target.list(&top, &mut |name, _| match name {
        b"lost+found" => Ok(()),
        _ => Err(Error::Wrong(format!("{} is left after the removal", name.escape_ascii()))),
    })?;
    Ok(cost)
}

/// Drops the caches of a session. Returns whether that is supported.
pub(super) fn forgets(session: &mut dyn Session) -> Result<bool> {
    match session.drop_caches() {
        Ok(()) => Ok(true),
        Err(Error::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Figure of a removal with warm caches, if a removal with cold caches is not supported.
pub(super) const NO_COLD_RUN: Extra = Extra { name: "cold runs", unit: "", value: 0.0 };

/// Removes a directory with everything in it. Returns the number of files.
///
/// # Errors
/// `Wrong` if the directory is not empty after all listed entries were removed.
fn remove_all<T: Target>(
    target: &T,
    parent: &T::Dir,
    name: &[u8],
    context: &Context<'_>,
) -> Result<u64> {
    let mut removal = Removal { target, context, files: 0, spare: Vec::new() };
    removal.directory(parent, name)?;
    context.advance(removal.files % OPERATIONS_PER_ADVANCE as u64)?;
    Ok(removal.files)
}

struct Removal<'r, 'c, T> {
    target: &'r T,
    context: &'r Context<'c>,
    files: u64,
    /// Unused parts, whose memory is reused.
    spare: Vec<ListingPart>,
}

impl<T: Target> Removal<'_, '_, T> {
    fn directory(&mut self, parent: &T::Dir, name: &[u8]) -> Result<()> {
        let dir = self.target.open_dir(parent, name)?;
        let mut listing = self.target.start_listing(&dir)?;
        let mut part = self.spare.pop().unwrap_or_default();
        loop {
            let goes_on = part.read(self.target, &mut listing)?;
            for entry in &part.entries {
                self.entry(&dir, part.name(entry), entry.file_type)?;
            }
            if !goes_on {
                break;
            }
        }
        self.spare.push(part);
        self.target.remove_dir(parent, name).map_err(|error| not_empty(error, name))
    }

    fn entry(&mut self, dir: &T::Dir, name: &[u8], file_type: Option<FileType>) -> Result<()> {
        let file_type = match file_type {
            Some(file_type) => file_type,
            None => self.target.stat(dir, name)?.0,
        };
        if file_type == FileType::Directory {
            return self.directory(dir, name);
        }
        self.target.unlink(dir, name)?;
        self.files += 1;
        if self.files.is_multiple_of(OPERATIONS_PER_ADVANCE as u64) {
            self.context.advance(OPERATIONS_PER_ADVANCE as u64)?;
        }
        Ok(())
    }
}

/// A part of a listing: names in one buffer, which the next part reuses.
#[derive(Default)]
struct ListingPart {
    names: Vec<u8>,
    entries: Vec<RemovalEntry>,
}

struct RemovalEntry {
    ino: u64,
    start: usize,
    len: usize,
    file_type: Option<FileType>,
}

impl ListingPart {
    fn read<T: Target>(&mut self, target: &T, listing: &mut T::Listing) -> Result<bool> {
        self.names.clear();
        self.entries.clear();
        let goes_on = target.list_part(listing, ENTRIES_PER_PART, &mut |listed| {
            let (start, len) = (self.names.len(), listed.name.len());
            self.names.extend_from_slice(listed.name);
            self.entries.push(RemovalEntry {
                ino: listed.ino,
                start,
                len,
                file_type: listed.file_type,
            });
            Ok(())
        })?;
        if self.entries.len() > UNSORTED_MAX {
            self.entries.sort_unstable_by_key(|entry| entry.ino);
        }
        Ok(goes_on)
    }

    fn name(&self, entry: &RemovalEntry) -> &[u8] {
        &self.names[entry.start..entry.start + entry.len]
    }
}

/// Converts the error of a directory that could not be removed because files are left.
fn not_empty(error: Error, name: &[u8]) -> Error {
    let is_it = match &error {
        Error::FileSystem { source, .. } => matches!(source, vfs::Error::NotEmpty),
        Error::Host { source, .. } => source.kind() == std::io::ErrorKind::DirectoryNotEmpty,
        _ => false,
    };
    if !is_it {
        return error;
    }
    let name = name.escape_ascii();
    Error::Wrong(format!("{name} is not empty after all that it listed was removed"))
}
