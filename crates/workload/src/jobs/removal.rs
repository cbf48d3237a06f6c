//! Removing trees as `rm -rf` does.
//!
//! What `rm` of coreutils 9.1 was seen to do: it reads a directory in parts of 100,000 entries, goes
//! through a part of more than 10,000 in the order of inode numbers and through a smaller one as it
//! comes, removes each entry by one call relative to the directory, and reads on.

use vfs::FileType;

use super::fill::{OPERATIONS_PER_ADVANCE, directory_name};
use super::threads::on_all;
use super::{Context, Extra};
use crate::contestant::Session;
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;

/// Entries that are read before they are removed.
const ENTRIES_PER_PART: usize = 100_000;

/// Most entries of a part that are removed in the order of the directory.
const UNSORTED_MAX: usize = 10_000;

/// Removes `directories` directories that threads had for themselves, `threads` of them at a time; what
/// it cost.
///
/// # Errors
/// `Wrong` if that were not `files` files, or if anything is left.
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

/// Has a session forget what is cached; whether it can.
pub(super) fn forgets(session: &mut dyn Session) -> Result<bool> {
    match session.drop_caches() {
        Ok(()) => Ok(true),
        Err(Error::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is said of a removal from a warm cache that should have been followed by one from a cold cache,
/// where that cannot be had.
pub(super) const NO_COLD_RUN: Extra = Extra { name: "cold runs", unit: "", value: 0.0 };

/// Removes a directory with all that is in it; how many files that were.
///
/// # Errors
/// `Wrong` if the directory is not empty after all that it listed was removed.
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
    /// Parts that are not in use. Their memory is.
    spare: Vec<Part>,
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

/// A part of a listing: names in one piece of memory, which is used for the next part again.
#[derive(Default)]
struct Part {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    ino: u64,
    start: usize,
    len: usize,
    file_type: Option<FileType>,
}

impl Part {
    fn read<T: Target>(&mut self, target: &T, listing: &mut T::Listing) -> Result<bool> {
        self.names.clear();
        self.entries.clear();
        let goes_on = target.list_part(listing, ENTRIES_PER_PART, &mut |listed| {
            let (start, len) = (self.names.len(), listed.name.len());
            self.names.extend_from_slice(listed.name);
            self.entries.push(Entry { ino: listed.ino, start, len, file_type: listed.file_type });
            Ok(())
        })?;
        if self.entries.len() > UNSORTED_MAX {
            self.entries.sort_unstable_by_key(|entry| entry.ino);
        }
        Ok(goes_on)
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        &self.names[entry.start..entry.start + entry.len]
    }
}

/// Says that files were left behind, if that is why a directory could not be removed.
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
