//! Changing the size of an image in place: what `grow` and `shrink` do.
//!
//! A file, and the entry of a partition, are made larger before the file system is, and smaller after it: at no moment
//! does the file system reach past them.
//!
//! ```no_run
//! use diskwright::OpenImage;
//! use diskwright::resize::{Least, grow, shrink};
//!
//! # fn main() -> diskwright::Result<()> {
//! let place = OpenImage::default();
//! let grown = grow("root.img".as_ref(), &place, Some(20 << 30))?;
//! println!("{} blocks, before {}", grown.after.blocks, grown.before.blocks);
//! shrink("root.img".as_ref(), &place, Least::Possible, &mut |_, _| true)?;
//! # Ok(()) }
//! ```

mod disk;
mod dispatch;

use std::path::Path;

use serde::Serialize;

use crate::image::probe_kind;
use crate::{Error, OpenImage, Result};
use disk::Disk;

/// How large a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Groups: block groups of ext4, allocation groups of XFS.
    pub groups: u32,
}

/// A number of bytes before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Before, in bytes.
    pub before: u64,
    /// Now, in bytes.
    pub after: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The file system before.
    pub before: Size,
    /// The file system now.
    pub after: Size,
    /// The file, or block device.
    pub file: Length,
    /// The partition, if it is in one.
    pub partition: Option<Length>,
}

impl Report {
    /// Whether the file system had the size already.
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

/// Makes an image larger, up to `bytes` bytes, or as large as its file or partition is: first the file, and the
/// partition's entry, where they are too short, then what is in it.
///
/// # Errors
/// `Usage` if the image is larger already; if it is in use or damaged, or has what cannot grow here; if the partition
/// has no room behind it, or a block device is too short. Nothing was changed then.
pub fn grow(path: &Path, options: &OpenImage, bytes: Option<u64>) -> Result<Report> {
    let disk = Disk::open(path, options)?;
    let device = disk.window(path, options)?;
    let kind = probe_kind(path, &device, options)?;
    let at = |source| Error::Image { image: path.to_owned(), source };
    let bytes = bytes.unwrap_or(device.len());
    let before = dispatch::size(kind, &*device).map_err(at)?;
    if bytes / u64::from(before.block_size) < before.blocks {
        let is = crate::text::size(before.bytes);
        return Err(Error::Usage(format!(
            "the file system has {} bytes ({is}) already, which is more than {bytes}; to make it smaller: diskwright \
             shrink",
            before.bytes
        )));
    }
    dispatch::plan_growth(kind, &*device, bytes).map_err(at)?;
    let window_len = device.len();
    let lengths = (disk.len(), window_len);
    drop(device);
    let disk = disk.extend(path, options, bytes.max(window_len))?;
    let device = disk.window(path, options)?;
    // What the file did not have reads as zeros. In its partition, that may begin anywhere.
    let zeros_from = disk.zeros_from(lengths.0, options_start(path, options, &disk)?);
    let grown = dispatch::grow(kind, device, bytes, zeros_from);
    let grown = match grown {
        Ok(grown) => grown,
        // What the device failed at may be in the journal or log already, which needs the new length.
        Err(source @ vfs::Error::Device(_)) => return Err(at(source)),
        Err(source) => {
            disk.take_back(path, options, lengths)?;
            return Err(at(source));
        }
    };
    let after_len = disk.window(path, options)?.len();
    Ok(Report {
        before: grown.before,
        after: grown.after,
        file: Length { before: lengths.0, after: disk.len() },
        partition: options.partition.map(|_| Length { before: lengths.1, after: after_len }),
    })
}

/// What an image is to shrink to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// At most so many bytes.
    Bytes(u64),
    /// As few as can be.
    Possible,
}

/// What [`shrink`] would come to, by what is in use. Nothing is written. The least size that can be had is found when
/// files are moved, and may be a little more.
///
/// # Errors
/// As [`shrink`].
pub fn plan_shrink(path: &Path, options: &OpenImage, wish: Least) -> Result<Report> {
    let device = crate::image::open_device(path, options)?;
    let kind = probe_kind(path, &device, options)?;
    let len = device.len();
    let planned = dispatch::plan_shrink(kind, device, wish);
    let planned = planned.map_err(|source| too_small(path, wish, source))?;
    let same = Length { before: len, after: len };
    let partition = options.partition.map(|_| same);
    Ok(Report { before: planned.before, after: planned.after, file: same, partition })
}

/// Makes an image smaller: first what is in it, then the partition's entry, or the file. `progress` is told how much is
/// done of how much, and answers whether to go on.
///
/// # Errors
/// `Usage` if the image is smaller already; if it is in use or damaged, or has what cannot be moved; if what is in it
/// does not fit. If it was ended before its time, or what is in it does not fit in the end, it is sound and has its old
/// size.
pub fn shrink(
    path: &Path,
    options: &OpenImage,
    wish: Least,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Report> {
    let disk = Disk::open(path, options)?;
    let device = disk.window(path, options)?;
    let kind = probe_kind(path, &device, options)?;
    let lengths = (disk.len(), device.len());
    let shrunk = dispatch::shrink(kind, device, wish, progress);
    let shrunk = shrunk.map_err(|source| too_small(path, wish, source))?;
    let is_smaller = shrunk.after != shrunk.before;
    let disk = if is_smaller { disk.cut(path, options, shrunk.after.bytes)? } else { disk };
    let part = disk.window(path, options)?.len();
    Ok(Report {
        before: shrunk.before,
        after: shrunk.after,
        file: Length { before: lengths.0, after: disk.len() },
        partition: options.partition.map(|_| Length { before: lengths.1, after: part }),
    })
}

/// Says what is in the way of a size, where that is not clear.
fn too_small(path: &Path, wish: Least, source: vfs::Error) -> Error {
    let what = match (&source, wish) {
        (vfs::Error::Invalid(_), Least::Bytes(bytes)) => {
            return Error::Usage(format!(
                "the file system has less than {bytes} bytes already; to make it larger: diskwright grow"
            ));
        }
        (vfs::Error::NoSpace, _) => "what is in it takes more room than that",
        (vfs::Error::NoInodes, _) => "its groups would have fewer inodes than are in use",
        _ => return Error::Image { image: path.to_owned(), source },
    };
    let advice = "diskwright shrink --size min --dry-run tells how small it can be";
    let source = vfs::Error::unsupported(format!("shrinking to that size: {what}"), advice);
    Error::Image { image: path.to_owned(), source }
}

/// First byte of the image in its file.
fn options_start(path: &Path, options: &OpenImage, disk: &Disk) -> Result<u64> {
    match options.partition {
        Some(number) => disk.partition(path, number).map(|partition| partition.offset),
        None => Ok(options.offset),
    }
}
