//! File systems of this program's, in memory.

use std::sync::Arc;

use ::ext4::{Ext4, OrphanPolicy};
use ::workload::contestant::{AnyTarget, Contestant, Description, Need, Session, Side};
use ::workload::target::{InProcess, TIME};
use ::workload::{Error, Result};
use ::xfs::Xfs;
use blockdev::{BlockDevice, MemoryDevice};
use operation::profile::{ListingProfile, MeasuresListings};

use super::format::{self, Plan};
use super::{CACHE_BYTES, FsSpec, TargetSpec};
use crate::format::Format;

/// A file system of this program's, made in memory for each run.
#[derive(Clone, Debug)]
pub struct Memory {
    spec: FsSpec,
    base: Option<String>,
}

/// One that is made. A workload's place is its root.
pub struct MemorySession {
    spec: FsSpec,
    device: Arc<MemoryDevice>,
    /// `None` only while it is closed, to be opened again.
    fs: Option<Opened>,
}

/// With its journal or log, as a kernel has it.
enum Opened {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl Memory {
    /// A file system as `spec` says. Its figures are compared with those of `base`.
    pub fn new(spec: FsSpec, base: Option<String>) -> Self {
        Self { spec, base }
    }

    /// Makes one, with room for what is needed.
    ///
    /// # Errors
    /// `Unsupported` if there cannot be such room, or if something is to be there already.
    pub fn make(&self, need: &Need) -> Result<MemorySession> {
        if need.existing {
            let problem = "there is nothing yet in a file system that is made for a run: give an image \
                           or a directory";
            return Err(Error::Unsupported(problem.into()));
        }
        let plan = Plan::new(&self.spec, need)?;
        let device = Arc::new(MemoryDevice::new(plan.size()));
        plan.format(&*device)?;
        let fs = Opened::open(&self.spec, &device)?;
        Ok(MemorySession { spec: self.spec.clone(), device, fs: Some(fs) })
    }
}

impl Memory {
    /// Without records of orphans it is a limit to be measured against, and nothing to boast of.
    fn side(&self) -> Side {
        if self.spec.orphans == Some(OrphanPolicy::Off) { Side::Other } else { Side::Ours }
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

/// What makes figures differ for other reasons than the file system.
fn remarks(format: Format) -> Vec<String> {
    let common = [
        "operations are calls within the process: there are no system calls",
        "the device is memory, and a cold cache is read from there",
        "every time stamp is the same",
    ];
    let of_format = format::remark(format);
    common.into_iter().chain(of_format).map(str::to_owned).collect()
}

fn failed(operation: &'static str) -> impl FnOnce(vfs::Error) -> Error {
    move |source| Error::FileSystem { operation, source }
}

impl Opened {
    fn open(spec: &FsSpec, device: &Arc<MemoryDevice>) -> Result<Self> {
        let device: Arc<dyn BlockDevice> = device.clone();
        let opened = match spec.format {
            Format::Ext4 => {
                let options = ::ext4::OpenOptions {
                    cache_bytes: CACHE_BYTES,
                    orphans: spec.orphans.unwrap_or_default(),
                    time: Some(TIME),
                    ..Default::default()
                };
                Ext4::open_writable(device, &options).map(|fs| Self::Ext4(Box::new(fs)))
            }
            Format::Xfs => {
                let options = ::xfs::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
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

    /// Leaves a clean image on the device.
    fn close(self) -> Result<()> {
        let closed = match self {
            Self::Ext4(fs) => fs.close(),
            Self::Xfs(fs) => fs.close(),
        };
        closed.map_err(failed("close"))
    }
}

impl MemorySession {
    /// What the file system is on.
    pub fn device(&self) -> &Arc<MemoryDevice> {
        &self.device
    }

    fn close(&mut self) -> Result<()> {
        self.fs.take().map_or(Ok(()), Opened::close)
    }
}

impl Session for MemorySession {
    /// # Panics
    /// After caches could not be dropped.
    fn target(&self) -> AnyTarget<'_> {
        let fs = self.fs.as_ref().expect("a session ends when dropping caches fails").file_system();
        AnyTarget::InProcess(InProcess::new(fs, fs.root()))
    }

    fn profile(&self) -> Option<&ListingProfile> {
        self.fs.as_ref().map(|fs| fs.file_system().listing_profile())
    }

    /// Closes the file system and opens it again: what is read then comes from the device, and is
    /// verified. Files that were open are not any more.
    fn drop_caches(&mut self) -> Result<()> {
        self.close()?;
        self.fs = Some(Opened::open(&self.spec, &self.device)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.len()
    }

    fn log_position(&self) -> Result<Option<u64>> {
        Ok(match &self.fs {
            Some(Opened::Xfs(fs)) => fs.log_bytes_written(),
            _ => None,
        })
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.close()
    }
}
