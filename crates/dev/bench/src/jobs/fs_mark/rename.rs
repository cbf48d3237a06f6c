//! Renames of files: within their directory, and into another one.

use vfs::FileType;

use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::jobs::Context;
use crate::jobs::fill::{OPERATIONS_PER_ADVANCE, directory_name};
use crate::jobs::threads::on_all;
use crate::target::Target;

/// The directory that files are moved to.
const MOVED: &[u8] = b"moved";
/// Bytes of a name that change: those between the time and the random part. The length stays the same.
const CHANGED: std::ops::Range<usize> = 8..16;

/// Target directory of renames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// The same directory.
    Same,
    /// One directory for all files of a thread.
    Other,
}

/// Files of one directory.
struct RenamedFiles<D> {
    from: D,
    to: D,
    names: Vec<Vec<u8>>,
}

/// Lets each of `threads` threads rename all files below its directory. Returns the cost, without reading and
/// generating names.
///
/// # Errors
/// `Wrong` if those were not `files` files.
pub(super) fn rename<T: Target>(
    target: &T,
    threads: u32,
    files: u64,
    place: Where,
    context: &Context<'_>,
) -> Result<Cost> {
    let lanes = (0..u64::from(threads)).map(|number| places(target, number, place));
    let lanes = lanes.collect::<Result<Vec<_>>>()?;
    let found: usize = lanes.iter().flatten().map(|place| place.names.len()).sum();
    if found as u64 != files {
        return Err(Error::Wrong(format!("{files} files were there to rename, {found} found")));
    }
    let rename = |places: &Vec<RenamedFiles<T::Dir>>, context: &Context<'_>| {
        places.iter().try_for_each(|place| rename_all(target, place, context))
    };
    on_all(&lanes, context, rename).map(|(_, cost)| cost)
}

fn rename_all<T: Target>(
    target: &T,
    place: &RenamedFiles<T::Dir>,
    context: &Context<'_>,
) -> Result<()> {
    let RenamedFiles { from, to, names } = place;
    for names in names.chunks(OPERATIONS_PER_ADVANCE) {
        for name in names {
            let mut other = [0; 256];
            let other = &mut other[..name.len()];
            other.copy_from_slice(name);
            other[CHANGED].iter_mut().for_each(|byte| *byte = next(*byte));
            target.rename((from, name), (to, other))?;
        }
        context.advance(names.len() as u64)?;
    }
    Ok(())
}

/// Returns the successor of a byte in a new name.
fn next(byte: u8) -> u8 {
    if byte == b'~' { b'a' } else { byte + 1 }
}

/// Returns the directories of a thread with their entries.
fn places<T: Target>(target: &T, number: u64, place: Where) -> Result<Vec<RenamedFiles<T::Dir>>> {
    let name = directory_name(number);
    let open = || target.open_dir(&target.top()?, name.as_bytes());
    let top = open()?;
    let (mut directories, mut names) = (Vec::new(), Vec::new());
    target.list(&top, &mut |name, file_type| {
        let is_directory = file_type == Some(FileType::Directory);
        if is_directory { &mut directories } else { &mut names }.push(name.to_vec());
        Ok(())
    })?;
    if place == Where::Other {
        target.make_dir(&top, MOVED)?;
    }
    let to = |own| if place == Where::Same { own } else { target.open_dir(&top, MOVED) };
    let mut places = vec![RenamedFiles { from: open()?, to: to(open())?, names }];
    for name in directories {
        let mut names = Vec::new();
        let from = target.open_dir(&top, &name)?;
        target.list(&from, &mut |name, _| {
            names.push(name.to_vec());
            Ok(())
        })?;
        let own = target.open_dir(&top, &name);
        places.push(RenamedFiles { from, to: to(own)?, names });
    }
    Ok(places)
}
