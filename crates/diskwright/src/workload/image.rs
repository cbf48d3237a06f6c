//! An image file that is there already, opened by this program.
//!
//! A workload that writes has a directory of its own in the image's root, `diskwright-workload-PID-N`. It
//! goes with all that is in it when the run ends, also with an error. If the program is killed, the image
//! is left as after a crash: the next program that opens it replays its journal or log, and finds the directory as
//! it was at some moment.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::workload::contestant::{AnyTarget, Contestant, Description, Need, Session, Side};
use ::workload::target::{InProcess, TIME};
use ::workload::{Error, Result};
use operation::profile::ListingProfile;
use vfs::{FileSystem, Ino, NewInode, Paths};

use super::CACHE_BYTES;
use crate::edit::OpenToEdit;
use crate::{Image, OpenImage, host};

/// How images are opened.
const OPEN: OpenImage = OpenImage {
    offset: 0,
    partition: None,
    norecovery: false,
    cache_bytes: Some(CACHE_BYTES),
    superblock: None,
};

/// Most names that are tried for the directory.
const NAMES_MAX: u32 = 1000;

/// An image file.
#[derive(Clone, Debug)]
pub struct ImageFile {
    path: PathBuf,
    base: Option<String>,
    format: String,
    features: String,
    size: u64,
}

/// An image in which a workload runs.
struct ImageSession {
    path: PathBuf,
    size: u64,
    place: Place,
    /// `None` only while it is closed, to be opened again.
    open: Option<Open>,
}

/// Where a workload works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In all of it, reading.
    Whole,
    /// In the directory of this number.
    Own(u32),
}

enum Open {
    ToRead(Image),
    ToWrite(OpenToEdit, Ino),
}

impl ImageFile {
    /// An image. Its figures are compared with those of `base`.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn new(path: PathBuf, base: Option<String>) -> crate::Result<Self> {
        let image = Image::open(&path, &OPEN)?;
        let info = image.info();
        let names: Vec<&str> =
            info.features.iter().flat_map(|group| &group.names).map(String::as_str).collect();
        let (format, features) = (info.format.clone(), names.join(", "));
        let size = info.blocks.saturating_mul(info.block_size.into());
        Ok(Self { path, base, format, features, size })
    }

    /// Opens it to write, with a new directory.
    fn start_writing(&self, need: &Need) -> Result<(Open, u32)> {
        let open = Image::edit(&self.path, &OPEN).map_err(not_opened)?;
        match make_directory(open.file_system(), need) {
            Ok((top, number)) => Ok((Open::ToWrite(open, top), number)),
            Err(error) => {
                Open::ToWrite(open, Ino(0)).close()?;
                Err(error)
            }
        }
    }
}

impl Contestant for ImageFile {
    fn describe(&self) -> Description {
        Description {
            name: self.path.display().to_string(),
            side: Side::Ours,
            format: self.format.clone(),
            deviations: 0,
            what: format!("Diskwright's {}, in an image file, in this process", self.format),
            features: self.features.clone(),
            base: self.base.clone(),
            remarks: vec![
                "operations are calls within the process: system calls only read and write the image"
                    .to_owned(),
                "what the image file has in the kernel's cache is asked to go with the caches, and may \
                 stay"
                    .to_owned(),
                "every time stamp is the same".to_owned(),
            ],
        }
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        let (open, place) = if need.existing {
            (Open::to_read(&self.path)?, Place::Whole)
        } else {
            let (open, number) = self.start_writing(need)?;
            (open, Place::Own(number))
        };
        let path = self.path.clone();
        Ok(Box::new(ImageSession { path, size: self.size, place, open: Some(open) }))
    }
}

fn directory_name(number: u32) -> String {
    format!("diskwright-workload-{}-{number}", std::process::id())
}

/// Makes the directory of a workload, if there is room for it.
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
    Err(Error::Unsupported("it is full of directories of workloads that were killed".into()))
}

fn failed(operation: &'static str) -> impl FnOnce(vfs::Error) -> Error {
    move |source| Error::FileSystem { operation, source }
}

/// Why a run cannot begin. Only damage is more than a reason to leave the image out.
fn not_opened(error: crate::Error) -> Error {
    match error {
        crate::Error::Image { source, .. } if !matches!(source, vfs::Error::Unsupported(_)) => {
            failed("open")(source)
        }
        other => Error::Unsupported(other.with_advice()),
    }
}

/// Refuses a workload for which the image is too small.
fn check_room(fs: &dyn FileSystem, need: &Need) -> Result<()> {
    let totals = fs.statfs().map_err(failed("statfs"))?;
    let bytes = totals.blocks_free.saturating_mul(totals.block_size.into());
    if totals.inodes_free >= need.inodes && bytes >= need.bytes {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "it has {} free and room for {} files, which is too little for this workload",
        crate::text::size(bytes),
        totals.inodes_free
    )))
}

/// Asks the kernel to forget what it has of the file; that it may keep some is no error.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|e| Error::host("open", e))?;
    host::drop_cache(&file).map_err(|e| match e.kind() {
        std::io::ErrorKind::Unsupported => Error::Unsupported(e.to_string()),
        _ => Error::host("fadvise", e),
    })
}

impl Open {
    fn to_read(path: &Path) -> Result<Self> {
        Image::open(path, &OPEN).map(Self::ToRead).map_err(not_opened)
    }

    fn file_system(&self) -> &dyn FileSystem {
        match self {
            Self::ToRead(image) => image.file_system(),
            Self::ToWrite(open, _) => open.file_system(),
        }
    }

    fn listing_profile(&self) -> &ListingProfile {
        match self {
            Self::ToRead(image) => image.listing_profile(),
            Self::ToWrite(open, _) => open.listing_profile(),
        }
    }

    fn top(&self) -> Ino {
        match self {
            Self::ToRead(image) => image.file_system().root(),
            Self::ToWrite(_, top) => *top,
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Self::ToRead(_) => Ok(()),
            Self::ToWrite(open, _) => open.close().map_err(|error| match error {
                crate::Error::Image { source, .. } => failed("close")(source),
                other => Error::host("close", std::io::Error::other(other)),
            }),
        }
    }
}

impl ImageSession {
    fn reopen(&mut self) -> Result<()> {
        let open = match self.place {
            Place::Whole => Open::to_read(&self.path)?,
            Place::Own(number) => {
                let open = Image::edit(&self.path, &OPEN).map_err(not_opened)?;
                let fs = open.file_system();
                let top = fs.lookup(fs.root(), directory_name(number).as_bytes());
                Open::ToWrite(open, top.map_err(failed("lookup"))?)
            }
        };
        self.open = Some(open);
        Ok(())
    }

    /// Removes the directory with all that is in it, and closes the image.
    fn end(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let place = std::mem::replace(&mut self.place, Place::Whole);
        let removed = match place {
            Place::Whole => Ok(()),
            Place::Own(number) => {
                let paths = Paths::new(open.file_system());
                let name = directory_name(number);
                let removed = paths.remove_all(name.as_bytes(), None, &mut || ());
                removed.map_err(|walk| failed("remove")(walk.error))
            }
        };
        // What could be done is made durable in any case.
        removed.and(open.close())
    }
}

impl Session for ImageSession {
    /// # Panics
    /// After caches could not be dropped.
    fn target(&self) -> AnyTarget<'_> {
        let open = self.open.as_ref().expect("a session ends when dropping caches fails");
        AnyTarget::InProcess(InProcess::new(open.file_system(), open.top()))
    }

    fn profile(&self) -> Option<&ListingProfile> {
        self.open.as_ref().map(Open::listing_profile)
    }

    /// Closes the image and opens it again. Files that were open are not any more.
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
    /// After an error: whatever can be removed is.
    fn drop(&mut self) {
        if self.open.is_none() && self.place != Place::Whole {
            let _ = self.reopen();
        }
        let _ = self.end();
    }
}
