//! Changing the size of an image in place (`grow` and `shrink`).
//!
//! Files and partition entries are extended before the file system grows and shortened after it shrinks. The file
//! system therefore never exceeds them.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::resize::{Least, grow, shrink};
//!
//! # fn main() -> diskwright::Result<()> {
//! let place = ImageOptions::default();
//! let grown = grow("root.img".as_ref(), &place, Some(20 << 30))?;
//! println!("{} blocks, before {}", grown.after.blocks, grown.before.blocks);
//! shrink("root.img".as_ref(), &place, Least::Possible, &mut |_, _| true)?;
//! # Ok(()) }
//! ```

mod disk;

use std::path::Path;

use serde::Serialize;
use vfs::hint::{Hint, Setting};

use crate::dispatch::resize as dispatch;
pub use crate::dispatch::resize::{Least, Size};
use crate::image::probe;
use crate::{Error, ImageOptions, Result, mmp};
use disk::Disk;

/// Length before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Length before, in bytes.
    pub before: u64,
    /// Length after, in bytes.
    pub after: u64,
}

/// Result of a change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// File system size before.
    pub before: Size,
    /// File system size after.
    pub after: Size,
    /// Length of the file or block device.
    pub file: Length,
    /// Length of the partition, if the image is in one.
    pub partition: Option<Length>,
}

impl Report {
    /// Returns whether the size is unchanged.
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

/// Grows an image to at most `bytes` bytes, or to the size of its file or partition. Extends the file and the partition
/// entry first, if necessary.
///
/// # Errors
/// `Usage` if the image is larger already. Also if it is in use or damaged, has features that prevent growing, its
/// partition has no free space after it, or its block device is too small. Nothing was changed then.
pub fn grow(path: &Path, options: &ImageOptions, bytes: Option<u64>) -> Result<Report> {
    let disk = Disk::open(path, options)?;
    let device = disk.window(path, options)?;
    let format = probe(path, &device, options)?;
    let at = |source| Error::image(path, source);
    let bytes = bytes.unwrap_or(device.len());
    let before = dispatch::size(format, &*device).map_err(at)?;
    if bytes / u64::from(before.block_size) < before.blocks {
        let is = crate::text::size(before.bytes);
        return Err(Error::Usage(format!(
            "the file system already has {} bytes ({is}), more than {bytes}; to reduce it, use \
             diskwright shrink",
            before.bytes
        )));
    }
    dispatch::plan_growth(format, &*device, bytes).map_err(at)?;
    let window_len = device.len();
    let lengths = (disk.len(), window_len);
    drop(device);
    let disk = disk.extend(path, options, bytes.max(window_len))?;
    let device = disk.window(path, options)?;
    // The extended part of the file reads as zeros. The image may start anywhere in the file.
    let zeros_from = disk.zeros_from(lengths.0, options_start(path, options, &disk)?);
    let grown = mmp::during(path, format, device, |device| {
        dispatch::grow(format, device, bytes, zeros_from)
    });
    let grown = match grown {
        Ok(grown) => grown,
        // After a device error the journal or log may already contain the change, which needs the new length.
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

/// Grows the realtime section of an XFS image to at most `bytes` bytes, or to the size of its device, which the options
/// must name. Extends the file of that device first, if necessary. An image without a section gets its first one.
///
/// The lengths in the report are those of the realtime device.
///
/// # Errors
/// `Usage` without a realtime device, or if it is a block device that is too small. Also if the section is larger
/// already, or the image is in use or damaged, or cannot have a section.
pub fn grow_realtime(path: &Path, options: &ImageOptions, bytes: Option<u64>) -> Result<Report> {
    let Some(realtime) = &options.devices.realtime else {
        return Err(Error::Usage(format!(
            "name the realtime device with {}",
            Hint::Use(Setting::REALTIME_DEVICE)
        )));
    };
    let disk = Disk::open(path, options)?;
    let at = |source| Error::image(path, source);
    let length = Disk::open(realtime, &ImageOptions::default())?.len();
    let bytes = bytes.unwrap_or(length);
    let window = disk.window(path, options)?;
    let format = probe(path, &window, options)?;
    let planned = dispatch::plan_realtime(format, &*window, bytes).map_err(at)?;
    drop(window);
    let other = Disk::open(realtime, &ImageOptions::default())?;
    let other = other.extend(realtime, &ImageOptions::default(), planned.after.bytes)?;
    let after = other.len();
    drop(other);
    let window = disk.window(path, options)?;
    let grown = dispatch::grow_realtime(format, window, bytes).map_err(at)?;
    Ok(Report {
        before: grown.before,
        after: grown.after,
        file: Length { before: length, after },
        partition: None,
    })
}

/// Returns the expected result of [`shrink`], without writing. The minimum is an estimate: usually the result is smaller,
/// and it may be slightly larger.
///
/// # Errors
/// Same as [`shrink`].
pub fn plan_shrink(path: &Path, options: &ImageOptions, wish: Least) -> Result<Report> {
    let device = crate::image::open_device(path, options)?;
    let format = probe(path, &device, options)?;
    let len = device.len();
    let planned = dispatch::plan_shrink(format, device, wish);
    let planned = planned.map_err(|source| too_small(path, wish, source))?;
    let same = Length { before: len, after: len };
    let partition = options.partition.map(|_| same);
    Ok(Report { before: planned.before, after: planned.after, file: same, partition })
}

/// Shrinks an image: first the file system, then the partition entry or the file. `progress` receives the amount done
/// and the total, and returns whether to continue.
///
/// # Errors
/// `Usage` if the image is smaller already. Also if it is in use or damaged, contains unmovable structures, or its
/// contents do not fit. If it is cancelled or the contents turn out not to fit, the image is consistent and keeps its
/// old size, or for [`Least::Possible`] one in between.
pub fn shrink(
    path: &Path,
    options: &ImageOptions,
    wish: Least,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Report> {
    let disk = Disk::open(path, options)?;
    let device = disk.window(path, options)?;
    let format = probe(path, &device, options)?;
    let lengths = (disk.len(), device.len());
    let shrunk = mmp::during(path, format, device, |device| {
        dispatch::shrink(format, device, wish, progress)
    });
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

/// Adds an explanation to errors about a size.
fn too_small(path: &Path, wish: Least, source: vfs::Error) -> Error {
    let what = match (&source, wish) {
        (vfs::Error::Invalid(_), Least::Bytes(bytes)) => {
            return Error::Usage(format!(
                "the file system already has less than {bytes} bytes; to enlarge it, use \
                 diskwright grow"
            ));
        }
        (vfs::Error::NoSpace, _) => "its contents need more space",
        (vfs::Error::NoInodes, _) => "its groups would have fewer inodes than are in use",
        _ => return Error::image(path, source),
    };
    let advice = "show the minimum size with diskwright shrink --size min --dry-run";
    let source = vfs::Error::unsupported(format!("shrinking to that size: {what}"), advice);
    Error::image(path, source)
}

/// Returns the byte offset of the image in its file.
fn options_start(path: &Path, options: &ImageOptions, disk: &Disk) -> Result<u64> {
    match options.partition {
        Some(number) => disk.partition(path, number).map(|partition| partition.offset),
        None => Ok(options.offset),
    }
}
