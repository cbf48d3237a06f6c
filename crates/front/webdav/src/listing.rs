//! Listings of directories in parts, which bounds their memory.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use dav_server::fs::{FsError, FsResult};
use futures_util::stream::{self, Stream};
use vfs::path::LastLink;
use vfs::{Attributes, Cookie, Error, FileType, Ino, Result};

use crate::names;
use crate::options::Symlinks;
use crate::pool::JobPool;
use crate::volume::Volume;

/// Maximum number of entries in a part.
pub(crate) const PART_ENTRIES: usize = 512;

/// Purpose of a listing, which decides about its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingPurpose {
    /// Entries that clients can see. Symbolic links have the attributes of their targets.
    Show,
    /// Entries that clients can see. Symbolic links have their own attributes.
    Copy,
    /// All entries, with their own attributes.
    Remove,
}

/// Entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) attributes: Attributes,
}

/// Part of a listing.
pub(crate) struct ListingPart {
    pub(crate) entries: Vec<ListedEntry>,
    /// Position of the next part, or `None` at the end.
    pub(crate) next: Option<Cookie>,
}

impl Volume<'_> {
    /// Returns the directory at a path, for listings.
    pub(crate) fn directory(&self, path: &[u8], purpose: ListingPurpose) -> FsResult<Attributes> {
        let names = self.result(names::of_path(path))?;
        let found = self.result(match purpose {
            // A link among the files to remove is not followed.
            ListingPurpose::Remove => self.locate(&names, LastLink::Keep),
            _ => self.find(&names, LastLink::Follow),
        })?;
        if found.file_type.is_dir() { Ok(found) } else { Err(FsError::Forbidden) }
    }

    /// Returns the part of a listing at a position. `path` leads to the directory.
    pub(crate) fn list(
        &self,
        (dir, path): (Ino, &[u8]),
        from: Cookie,
        purpose: ListingPurpose,
    ) -> FsResult<ListingPart> {
        let mut found = Vec::new();
        let mut next = None;
        self.result(self.fs().readdir(dir, from, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            found.push((entry.name.to_vec(), entry.ino));
            if found.len() < PART_ENTRIES {
                return ControlFlow::Continue(());
            }
            next = Some(entry.next);
            ControlFlow::Break(())
        }))?;
        let parents = self.result(names::of_path(path))?;
        let mut entries = Vec::with_capacity(found.len());
        for (name, ino) in found {
            match self.entry(&parents, &name, ino, purpose) {
                Ok(Some(attributes)) => entries.push(ListedEntry { name, attributes }),
                // Removed in the meantime, or not for clients.
                Ok(None) | Err(Error::NotFound) => {}
                Err(error) => {
                    // One unreadable file does not hide the others.
                    self.failed(&error);
                }
            }
        }
        Ok(ListingPart { entries, next })
    }

    fn entry(
        &self,
        parents: &[Vec<u8>],
        name: &[u8],
        ino: Ino,
        purpose: ListingPurpose,
    ) -> Result<Option<Attributes>> {
        let attributes = self.fs().attributes(ino)?;
        let is_rejected = self.options.reject_macos_files && names::is_of_macos(name);
        match (purpose, attributes.file_type) {
            (ListingPurpose::Remove, _) => Ok(Some(attributes)),
            _ if is_rejected => Ok(None),
            (_, FileType::Regular | FileType::Directory) => Ok(Some(attributes)),
            (_, FileType::Symlink) if self.options.symlinks == Symlinks::Hide => Ok(None),
            (ListingPurpose::Copy, FileType::Symlink) => Ok(Some(attributes)),
            (ListingPurpose::Show, FileType::Symlink) => {
                let mut names = parents.to_vec();
                names.push(name.to_vec());
                match self.find(&names, LastLink::Follow) {
                    Ok(target) => Ok(Some(target)),
                    // A link without target.
                    Err(Error::NotFound | Error::NotADirectory | Error::SymlinkLoop) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            _ => Ok(None),
        }
    }
}

/// Position of a listing that is read in parts.
struct ListingPosition {
    pool: JobPool,
    dir: Ino,
    path: Vec<u8>,
    purpose: ListingPurpose,
    next: Option<Cookie>,
    ready: VecDeque<ListedEntry>,
}

/// Returns the entries of a directory.
pub(crate) fn entries(
    pool: JobPool,
    (dir, path): (Ino, Vec<u8>),
    purpose: ListingPurpose,
) -> impl Stream<Item = FsResult<ListedEntry>> + Send + 'static {
    let next = Some(Cookie::default());
    let position = ListingPosition { pool, dir, path, purpose, next, ready: VecDeque::new() };
    stream::try_unfold(position, |mut position| async move {
        loop {
            if let Some(entry) = position.ready.pop_front() {
                return Ok(Some((entry, position)));
            }
            let Some(from) = position.next else { return Ok(None) };
            let (dir, path, purpose) = (position.dir, position.path.clone(), position.purpose);
            let part = position.pool.run(move |volume| volume.list((dir, &path), from, purpose));
            let part = part.await?;
            position.ready = part.entries.into();
            position.next = part.next;
        }
    })
}
