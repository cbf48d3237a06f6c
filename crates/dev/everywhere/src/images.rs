//! Images in memory: creating, reading and checking them.

use std::error::Error;
use std::num::NonZero;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::Ext4;
use operations::repair::Repairer;
use parking_lot::Mutex;
use vfs::check::{Finding, Observer, Options};
use vfs::path::Order;
use vfs::{FileSystem, FileType, Paths};
use xfs::Xfs;

use crate::digest::Digest;
use crate::{TIME, load};

const IMAGE_BYTES: u64 = 64 << 20;

/// Maximum size of a file to be read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Type of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ImageFormat {
    Ext4,
    Xfs,
}

impl ImageFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    pub(crate) fn repairer(self) -> Box<dyn Repairer> {
        let options = options();
        match self {
            Self::Ext4 => Box::new(ext4::repair::Repair { options }),
            Self::Xfs => Box::new(xfs::repair::Repair { options }),
        }
    }
}

/// Uses one thread, because findings must have the same order everywhere, and some hosts have only one thread.
fn options() -> Options {
    Options::default().with_threads(NonZero::<usize>::MIN)
}

/// All findings in order.
#[derive(Default)]
pub(crate) struct Findings(Mutex<Vec<Finding>>);

impl Findings {
    pub(crate) fn into_inner(self) -> Vec<Finding> {
        self.0.into_inner()
    }
}

impl Observer for Findings {
    fn found(&self, finding: Finding) {
        self.0.lock().push(finding);
    }
}

/// Creates an image and changes it.
pub(crate) fn make(format: ImageFormat) -> Result<Arc<MemoryDevice>, Box<dyn Error>> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    match format {
        ImageFormat::Ext4 => {
            let defaults = ext4::mkfs::Options::new(IMAGE_BYTES);
            let options =
                ext4::mkfs::Options { time: TIME, uuid: [7; 16], hash_seed: [9; 16], ..defaults };
            let layout = ext4::mkfs::plan(&options)?;
            ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros)?;
            let fs = Ext4::open_writable(device.clone(), &ext4::OpenOptions::default())?;
            load::run(&fs)?;
            fs.close()?;
        }
        ImageFormat::Xfs => {
            let defaults = xfs::mkfs::Options::new(IMAGE_BYTES);
            let options =
                xfs::mkfs::Options { time: TIME, uuid: [7; 16], allow_small: true, ..defaults };
            let layout = xfs::mkfs::plan(&options)?;
            xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros)?;
            let fs = Xfs::open_writable(device.clone(), &xfs::OpenOptions::default())?;
            load::run(&fs)?;
            fs.close()?;
        }
    }
    let found = check(format, device.clone())?;
    match found.first() {
        None => Ok(device),
        Some(first) => Err(format!("{} findings, the first: {first:?}", found.len()).into()),
    }
}

/// Returns the findings of a check.
pub(crate) fn check(
    format: ImageFormat,
    device: Arc<dyn BlockDevice>,
) -> vfs::Result<Vec<Finding>> {
    let findings = Findings::default();
    match format {
        ImageFormat::Ext4 => ext4::check::check(device, &options(), &findings)?,
        ImageFormat::Xfs => xfs::check::check(device, &options(), &findings)?,
    };
    Ok(findings.into_inner())
}

/// Opens an image and reads everything in it.
pub(crate) fn read(format: ImageFormat, device: &Arc<MemoryDevice>) -> vfs::Result<u32> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    Ok(match format {
        ImageFormat::Ext4 => read_all(&Ext4::open(device, &ext4::OpenOptions::default())?),
        ImageFormat::Xfs => read_all(&Xfs::open(device, &xfs::OpenOptions::default())?),
    })
}

/// Returns the digest of all files and errors.
fn read_all(fs: &dyn FileSystem) -> u32 {
    let (paths, mut digest) = (Paths::new(fs), Digest::default());
    for visit in paths.walk(fs.root(), Order::Physical) {
        let file = match visit {
            Ok(file) => file,
            Err(e) => {
                digest.add(e.to_string().as_bytes());
                continue;
            }
        };
        digest.add(&file.path);
        digest.add(format!("{:?}", file.attributes).as_bytes());
        let ino = file.attributes.ino;
        let contents = match file.attributes.file_type {
            FileType::Regular => read_file(fs, ino, file.attributes.size),
            FileType::Symlink => fs.readlink(ino),
            _ => Ok(Vec::new()),
        };
        let value = fs.get_xattr(ino, b"user.everywhere");
        for read in [contents, value] {
            match read {
                Ok(bytes) => digest.add(&bytes),
                Err(e) => digest.add(e.to_string().as_bytes()),
            }
        }
    }
    digest.finish()
}

fn read_file(fs: &dyn FileSystem, ino: vfs::Ino, size: u64) -> vfs::Result<Vec<u8>> {
    let mut bytes = vec![0; size.min(FILE_BYTES_MAX) as usize];
    let len = fs.read(ino, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}
