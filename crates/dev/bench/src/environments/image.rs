//! Workloads in an existing image file, opened in this process.
//!
//! A writing workload creates a directory `diskwright-workload-PID-N` in the root of the image and removes it at the
//! end, also after an error. If the program is killed, the image is in the state after a crash. The next program that
//! opens it replays its journal or log, and the directory has its contents of some earlier moment.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::contestant::{AnyTarget, Contestant, Description, Need, Origin, Session};
use crate::target::{InProcess, TIME};
use crate::{Error, Result};
use operations::profile::ListingProfile;
use vfs::{FileSystem, Ino, NewInode};

use super::CACHE_BYTES;
use diskwright::{FileSystemRef, ImageOptions};

/// Maximum number of names tried for the directory.
const NAMES_MAX: u32 = 1000;

/// Image file.
#[derive(Clone, Debug)]
pub struct ImageFile {
    path: PathBuf,
    base: Option<String>,
    format: String,
    features: String,
    size: u64,
}

/// Image in which a workload runs.
struct ImageSession {
    path: PathBuf,
    size: u64,
    place: ImageScope,
    /// `None` only while it is being reopened.
    open: Option<Open>,
}

/// Location of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageScope {
    /// Whole image, read-only.
    Whole,
    /// Directory with this number.
    Own(u32),
}

struct Open {
    fs: FileSystemRef<'static>,
    /// Directory of the workload.
    top: Ino,
}

impl ImageFile {
    /// Selects an image. Its results are compared with those of `base`.
    ///
    /// # Errors
    /// Same as [`ImageOptions::open`].
    pub fn new(path: PathBuf, base: Option<String>) -> diskwright::Result<Self> {
        let info = options().open(&path)?.info()?;
        let features = info.features();
        let names: Vec<&str> =
            features.iter().flat_map(|group| &group.names).map(String::as_str).collect();
        let (format, features) = (info.format_name().to_owned(), names.join(", "));
        let size = info.blocks.saturating_mul(info.block_size.into());
        Ok(Self { path, base, format, features, size })
    }

    /// Opens the image for writing and creates a directory.
    fn start_writing(&self, need: &Need) -> Result<(Open, u32)> {
        let mut open = Open::new(&self.path, true)?;
        match make_directory(&*open.fs, need) {
            Ok((top, number)) => {
                open.top = top;
                Ok((open, number))
            }
            Err(error) => {
                open.close()?;
                Err(error)
            }
        }
    }
}

impl Contestant for ImageFile {
    fn describe(&self) -> Description {
        Description {
            name: self.path.display().to_string(),
            side: Origin::Ours,
            format: self.format.clone(),
            deviations: 0,
            what: format!("Diskwright's {}, in an image file, in this process", self.format),
            features: self.features.clone(),
            base: self.base.clone(),
            remarks: vec![
                "operations are calls within the process; system calls only read and write the \
                 image"
                    .to_owned(),
                "the kernel is asked to drop its cache of the image file, but can keep it"
                    .to_owned(),
                "every time stamp is the same".to_owned(),
            ],
        }
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        let (open, place) = if need.existing {
            (Open::new(&self.path, false)?, ImageScope::Whole)
        } else {
            let (open, number) = self.start_writing(need)?;
            (open, ImageScope::Own(number))
        };
        let path = self.path.clone();
        Ok(Box::new(ImageSession { path, size: self.size, place, open: Some(open) }))
    }
}

/// Returns the options for opening images.
fn options() -> ImageOptions {
    ImageOptions::default().cache_bytes(CACHE_BYTES)
}

fn directory_name(number: u32) -> String {
    format!("diskwright-workload-{}-{number}", std::process::id())
}

/// Creates the directory of a workload, if there is enough space.
fn make_directory(fs: &dyn FileSystem, need: &Need) -> Result<(Ino, u32)> {
    check_room(fs, need)?;
    let new = NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: None };
    for number in 0..NAMES_MAX {
        match fs.mkdir(fs.root(), directory_name(number).as_bytes(), &new) {
            Ok(ino) => return Ok((ino, number)),
            Err(vfs::Error::Exists) => {}
            Err(source) => return Err(failed("mkdir")(source)),
        }
    }
    Err(Error::Unsupported("it has too many directories of killed workloads; remove them".into()))
}

fn failed(operation: &'static str) -> impl FnOnce(vfs::Error) -> Error {
    move |source| Error::FileSystem { operation, source }
}

/// Converts the error of opening an image. Damage is an error; other reasons are `Unsupported`, so that the image is
/// skipped.
fn not_opened(error: diskwright::Error) -> Error {
    match error {
        diskwright::Error::Image { source, .. }
            if !matches!(source, vfs::Error::Unsupported(_)) =>
        {
            failed("open")(source)
        }
        other => Error::Unsupported(other.with_advice()),
    }
}

/// Rejects a workload that needs more space than the image has.
fn check_room(fs: &dyn FileSystem, need: &Need) -> Result<()> {
    let totals = fs.statfs().map_err(failed("statfs"))?;
    let bytes = totals.blocks_free.saturating_mul(totals.block_size.into());
    if totals.inodes_free >= need.inodes && bytes >= need.bytes {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "it has {} free and {} free inodes, too little for this workload",
        diskwright::text::size(bytes),
        totals.inodes_free
    )))
}

/// Drops the kernel's page cache of the file. The kernel may keep some pages.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|e| Error::host("open", e))?;
    drop_cache(&file).map_err(|e| match e.kind() {
        io::ErrorKind::Unsupported => Error::Unsupported(e.to_string()),
        _ => Error::host("fadvise", e),
    })
}

#[cfg(target_os = "linux")]
fn drop_cache(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
fn drop_cache(_: &File) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "file caches can be dropped only on Linux"))
}

impl Open {
    /// Opens an image. The workload runs in its root.
    fn new(path: &Path, is_writable: bool) -> Result<Self> {
        let opened = options().write(is_writable).open(path);
        let fs = opened.and_then(|image| image.into_file_system()).map_err(not_opened)?;
        Ok(Self { top: fs.root(), fs })
    }

    fn close(self) -> Result<()> {
        self.fs.close().map_err(|error| match error {
            diskwright::Error::Image { source, .. } => failed("close")(source),
            other => Error::host("close", io::Error::other(other)),
        })
    }
}

impl ImageSession {
    fn reopen(&mut self) -> Result<()> {
        let mut open = Open::new(&self.path, self.place != ImageScope::Whole)?;
        if let ImageScope::Own(number) = self.place {
            let top = open.fs.lookup(open.top, directory_name(number).as_bytes());
            open.top = top.map_err(failed("lookup"))?;
        }
        self.open = Some(open);
        Ok(())
    }

    /// Removes the directory recursively and closes the image.
    fn end(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let place = std::mem::replace(&mut self.place, ImageScope::Whole);
        let removed = match place {
            ImageScope::Whole => Ok(()),
            ImageScope::Own(number) => {
                let paths = open.fs.paths();
                let name = directory_name(number);
                let removed = paths.remove_all(name.as_bytes(), None, &mut || ());
                removed.map_err(|walk| failed("remove")(walk.error))
            }
        };
        // Make the successful part durable in any case.
        removed.and(open.close())
    }
}

impl Session for ImageSession {
    /// # Panics
    /// If dropping caches failed before.
    fn target(&self) -> AnyTarget<'_> {
        let open = self.open.as_ref().expect("a session ends when dropping caches fails");
        AnyTarget::InProcess(InProcess::new(&*open.fs, open.top))
    }

    fn profile(&self) -> Option<&ListingProfile> {
        self.open.as_ref().map(|open| open.fs.listing_profile())
    }

    /// Reopens the image. Open files become invalid.
    fn drop_caches(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            open.close()?;
        }
        forget(&self.path)?;
        self.reopen()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end()
    }
}

impl Drop for ImageSession {
    /// After an error: removes as much as possible.
    fn drop(&mut self) {
        if self.open.is_none() && self.place != ImageScope::Whole {
            let _ = self.reopen();
        }
        let _ = self.end();
    }
}
