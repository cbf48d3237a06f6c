//! Creation of the tree to be walked. It is walked while it is created: the listing of a directory creates its entries.

use std::path::Path;

use vfs::FileType;

use super::shape::DirectoryShape;
use super::walk::{Branching, Seen, Walker};
use crate::error::{Error, Result};
use crate::jobs::Context;
use crate::target::{EachEntry, Host, Target};

/// Directory of the tree: other entries at the top, such as `lost+found`, are not walked.
const TOP: &[u8] = b"linux";

/// Creates a tree similar to the Linux source.
pub(super) fn generate(target: &impl Target, files: u64, context: &Context<'_>) -> Result<Seen> {
    let shape = DirectoryShape::new(files, context.seed);
    target.make_dir(&target.top()?, TOP)?;
    let made = walk_making(&Generating { shape: &shape, target }, (0, top(target)?), context)?;
    let expected = Seen { entries: files + shape.directories(), directories: shape.directories() };
    if made != expected {
        return Err(Error::Wrong(format!("made {made:?} instead of {expected:?}")));
    }
    Ok(made)
}

/// Creates a tree with the names of another one; every non-directory becomes an empty file.
pub(super) fn copy(target: &impl Target, from: &Path, context: &Context<'_>) -> Result<Seen> {
    let host = Host::new(from);
    target.make_dir(&target.top()?, TOP)?;
    let tops = (host.top()?, top(target)?);
    walk_making(&Copying { host: &host, target }, tops, context)
}

/// Returns the directory of the tree.
pub(super) fn top<T: Target>(target: &T) -> Result<T::Dir> {
    target.open_dir(&target.top()?, TOP)
}

/// Counts the entries below a host directory.
pub(super) fn count(from: &Path) -> Result<Seen> {
    let host = Host::new(from);
    Walker::new().walk(&host, host.top()?, &mut |_| Ok(()), &mut |_| Ok(()))
}

fn walk_making<B: Branching>(tree: &B, top: B::Dir, context: &Context<'_>) -> Result<Seen> {
    // Creation does not count as progress, but can be cancelled.
    Walker::new().walk(tree, top, &mut |_| Ok(()), &mut |_| context.advance(0))
}

struct Generating<'g, T> {
    shape: &'g DirectoryShape,
    target: &'g T,
}

impl<T: Target> Branching for Generating<'_, T> {
    type Dir = (u64, T::Dir);

    fn entries(&self, (number, dir): &Self::Dir, each: &mut EachEntry<'_>) -> Result<()> {
        self.shape.names(*number, |name, is_directory| {
            let file_type = if is_directory { FileType::Directory } else { FileType::Regular };
            make(self.target, dir, name, file_type)?;
            each(name, Some(file_type))
        })
    }

    fn child(&self, (number, dir): &Self::Dir, name: &[u8]) -> Result<Self::Dir> {
        let unknown = || Error::Wrong(format!("no directory is named {}", name.escape_ascii()));
        Ok((self.shape.child(*number, name).ok_or_else(unknown)?, self.target.open_dir(dir, name)?))
    }

    fn is_directory(&self, (number, _): &Self::Dir, name: &[u8]) -> Result<bool> {
        Ok(self.shape.child(*number, name).is_some())
    }
}

struct Copying<'c, T> {
    host: &'c Host,
    target: &'c T,
}

impl<T: Target> Branching for Copying<'_, T> {
    type Dir = (<Host as Target>::Dir, T::Dir);

    fn entries(&self, (from, dir): &Self::Dir, each: &mut EachEntry<'_>) -> Result<()> {
        self.host.list(from, &mut |name, file_type| {
            let file_type = match file_type {
                Some(file_type) => file_type,
                None => self.host.stat(from, name)?.0,
            };
            make(self.target, dir, name, file_type)?;
            each(name, Some(file_type))
        })
    }

    fn child(&self, (from, dir): &Self::Dir, name: &[u8]) -> Result<Self::Dir> {
        Ok((self.host.open_dir(from, name)?, self.target.open_dir(dir, name)?))
    }

    fn is_directory(&self, (from, _): &Self::Dir, name: &[u8]) -> Result<bool> {
        Ok(self.host.stat(from, name)?.0 == FileType::Directory)
    }
}

fn make<T: Target>(target: &T, dir: &T::Dir, name: &[u8], file_type: FileType) -> Result<()> {
    match file_type {
        FileType::Directory => target.make_dir(dir, name),
        _ => target.make_file(dir, name),
    }
}
