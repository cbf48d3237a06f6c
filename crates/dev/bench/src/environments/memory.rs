//! Workloads in this program's file systems, in memory.

use std::sync::Arc;

use crate::contestant::{AnyTarget, Contestant, Description, Need, Origin, Session};
use crate::target::{InProcess, TIME};
use crate::{Error, Result};
use disk::{BlockDevice, MemoryDevice};
use ext4::{Ext4, OrphanPolicy};
use operations::profile::{ListingProfile, MeasuresListings};
use xfs::Xfs;

use super::format::{self, FsPlan};
use super::{CACHE_BYTES, FsSpec, TargetSpec};
use diskwright::Format;

/// File system of this program, created in memory for each run.
#[derive(Clone, Debug)]
pub struct Memory {
    spec: FsSpec,
    base: Option<String>,
}

/// Created file system. The workload runs in its root.
pub struct MemorySession {
    spec: FsSpec,
    device: Arc<MemoryDevice>,
    /// `None` only while it is being reopened.
    fs: Option<OpenedFs>,
}

/// Open file system with a journal or log, as in the kernel.
enum OpenedFs {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl Memory {
    /// Selects a file system. Its results are compared with those of `base`.
    pub fn new(spec: FsSpec, base: Option<String>) -> Self {
        Self { spec, base }
    }

    /// Creates a file system with enough space.
    ///
    /// # Errors
    /// `Unsupported` if that is not possible, or if existing contents are required.
    pub fn make(&self, need: &Need) -> Result<MemorySession> {
        if need.existing {
            let problem = "a file system created for the run is empty; use an image or a directory";
            return Err(Error::Unsupported(problem.into()));
        }
        let plan = FsPlan::new(&self.spec, need)?;
        let device = Arc::new(MemoryDevice::new(plan.size()));
        plan.format(&*device)?;
        let shared: Arc<dyn BlockDevice> = device.clone();
        plan.make_quotas(&shared)?;
        let fs = OpenedFs::open(&self.spec, &device)?;
        Ok(MemorySession { spec: self.spec.clone(), device, fs: Some(fs) })
    }
}

impl Memory {
    /// A file system without orphan records is a reference, not a fair competitor.
    fn side(&self) -> Origin {
        if self.spec.orphans == Some(OrphanPolicy::Off) { Origin::Other } else { Origin::Ours }
    }
}

impl Contestant for Memory {
    fn describe(&self) -> Description {
        Description {
            name: TargetSpec::Memory(self.spec.clone()).to_string(),
            side: self.side(),
            format: self.spec.format.name().to_owned(),
            deviations: format::deviations(&self.spec),
            what: format!("Diskwright's {}, in memory, in this process", self.spec.format.name()),
            features: format::features(&self.spec),
            base: self.base.clone(),
            remarks: remarks(self.spec.format),
        }
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.make(need)?))
    }
}

/// Returns remarks on differences that are not caused by the file system.
fn remarks(format: Format) -> Vec<String> {
    let common = [
        "operations are calls within the process, without system calls",
        "the device is memory, so cold caches are read from memory",
        "every time stamp is the same",
    ];
    let of_format = format::remark(format);
    common.into_iter().chain(of_format).map(str::to_owned).collect()
}

fn failed(operation: &'static str) -> impl FnOnce(vfs::Error) -> Error {
    move |source| Error::FileSystem { operation, source }
}

impl OpenedFs {
    fn open(spec: &FsSpec, device: &Arc<MemoryDevice>) -> Result<Self> {
        let device: Arc<dyn BlockDevice> = device.clone();
        let opened = match spec.format {
            Format::Ext4 => {
                let options = ext4::OpenOptions {
                    cache_bytes: CACHE_BYTES,
                    orphans: spec.orphans.unwrap_or_default(),
                    time: Some(TIME),
                    defer_creates: spec.defer_creates.then_some(::ext4::OpenOptions::DEFER_LARGE),
                    ..Default::default()
                };
                Ext4::open_writable(device, &options).map(|fs| Self::Ext4(Box::new(fs)))
            }
            Format::Xfs => {
                let options = xfs::OpenOptions {
                    cache_bytes: CACHE_BYTES,
                    defer_creates: spec.defer_creates.then_some(xfs::OpenOptions::DEFER_LARGE),
                    ..Default::default()
                };
                Xfs::open_writable(device, &options).map(|mut fs| {
                    if let Some(strategy) = spec.free_index {
                        fs.set_free_index(strategy);
                    }
                    Self::Xfs(Box::new(fs))
                })
            }
        };
        opened.map_err(failed("open"))
    }

    fn file_system(&self) -> &dyn MeasuresListings {
        match self {
            Self::Ext4(fs) => &**fs,
            Self::Xfs(fs) => &**fs,
        }
    }

    /// Closes the file system, leaving a clean image.
    fn close(self) -> Result<()> {
        let closed = match self {
            Self::Ext4(fs) => fs.close(),
            Self::Xfs(fs) => fs.close(),
        };
        closed.map_err(failed("close"))
    }
}

impl MemorySession {
    /// Returns the device of the file system.
    pub fn device(&self) -> &Arc<MemoryDevice> {
        &self.device
    }

    fn close(&mut self) -> Result<()> {
        self.fs.take().map_or(Ok(()), OpenedFs::close)
    }
}

impl Session for MemorySession {
    /// # Panics
    /// If dropping caches failed before.
    fn target(&self) -> AnyTarget<'_> {
        let fs = self.fs.as_ref().expect("a session ends when dropping caches fails").file_system();
        AnyTarget::InProcess(InProcess::new(fs, fs.root()))
    }

    fn profile(&self) -> Option<&ListingProfile> {
        self.fs.as_ref().map(|fs| fs.file_system().listing_profile())
    }

    /// Reopens the file system, so that later reads come from the device and are verified. Open files become invalid.
    fn drop_caches(&mut self) -> Result<()> {
        self.close()?;
        self.fs = Some(OpenedFs::open(&self.spec, &self.device)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.len()
    }

    fn log_position(&self) -> Result<Option<u64>> {
        Ok(match &self.fs {
            Some(OpenedFs::Xfs(fs)) => fs.log_bytes_written(),
            _ => None,
        })
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.close()
    }
}
