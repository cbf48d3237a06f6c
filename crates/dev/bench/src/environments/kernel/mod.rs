//! Workloads in the kernel's file systems, on images created by this program.
//!
//! Each run uses a new image: an anonymous sparse file in the scratch directory, mounted in a private namespace
//! ([`mount`]). Only open files refer to it, so nothing remains however the program ends.

mod mount;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::contestant::{AnyTarget, Contestant, Description, Need, Origin, Session};
use crate::target::Host;
use crate::{Error, Result};
use disk::{BlockDevice, FileDevice};
use rustix::fs::Advice;

use self::mount::KernelMount;
use super::format::{self, FsPlan};
use super::{FsSpec, TargetSpec};
use diskwright::Format;

/// Path that does not exist.
const NOWHERE: &str = "/proc/self/fd/none";

/// Minimum space of an inode with its names in bytes, for the check of the scratch directory.
const INODE_BYTES: u64 = 256;

/// Kernel file system.
#[derive(Clone, Debug)]
pub struct Kernel {
    spec: FsSpec,
    base: Option<String>,
    scratch: PathBuf,
    image: Option<PathBuf>,
}

/// Mounted image in which a workload runs.
#[derive(Debug)]
struct KernelSession {
    host: Host,
    /// `None` only while it is being remounted. Declared before `image`, so that it is dropped first.
    mounted: Option<KernelMount>,
    image: File,
    size: u64,
    /// Log size in bytes, if the log position can be read.
    log_bytes: Option<u64>,
    fs_type: &'static str,
    scratch: PathBuf,
}

impl Kernel {
    /// Selects a file system, with images in the directory `scratch`. Its results are compared with those of `base`.
    pub fn new(spec: FsSpec, base: Option<String>, scratch: impl Into<PathBuf>) -> Self {
        Self { spec, base, scratch: scratch.into(), image: None }
    }

    /// Keeps the image under a name. Each run replaces it.
    #[must_use]
    pub fn keep_image(mut self, path: impl Into<PathBuf>) -> Self {
        self.image = Some(path.into());
        self
    }

    fn make_image(&self, size: u64) -> Result<File> {
        let made = match &self.image {
            Some(path) => {
                File::options().read(true).write(true).create(true).truncate(true).open(path)
            }
            None => tempfile::tempfile_in(&self.scratch),
        };
        let place = self.image.as_ref().unwrap_or(&self.scratch);
        let failed = |e| Error::host(format!("make an image in {}", place.display()), e);
        let image = made.map_err(failed)?;
        image.set_len(size).map_err(failed)?;
        Ok(image)
    }
}

/// Returns the kernel's name of a format.
fn fs_type(format: Format) -> &'static str {
    match format {
        Format::Ext4 => "ext4",
        Format::Xfs => "xfs",
    }
}

/// Returns the mount options. Images of the same seed have the same UUID and may be mounted simultaneously.
fn mount_options(fs_type: &str) -> &'static str {
    if fs_type == "xfs" { "loop,nouuid" } else { "loop" }
}

impl Contestant for Kernel {
    fn describe(&self) -> Description {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let (name, scratch) = (self.spec.format.name(), self.scratch.display());
        Description {
            name: TargetSpec::Kernel(self.spec.clone()).to_string(),
            side: Origin::Kernel,
            format: self.spec.format.name().to_owned(),
            deviations: format::deviations(&self.spec),
            what: format!(
                "{name} of Linux {release}, on an image made by Diskwright, through a loop device, in \
                 {scratch}"
            ),
            features: format::features(&self.spec),
            base: self.base.clone(),
            remarks: remarks(self.spec.format),
        }
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        if !rustix::process::geteuid().is_root() {
            let problem = "kernel targets need root: an image is mounted through a loop device";
            return Err(Error::Unsupported(problem.into()));
        }
        if need.existing {
            let problem = "a file system created for the run is empty";
            return Err(Error::Unsupported(problem.into()));
        }
        check_room(&self.scratch, need)?;
        let plan = FsPlan::new(&self.spec, need)?;
        let image = self.make_image(plan.size())?;
        format(&plan, &image).map_err(|e| Error::host("make an image", e))??;
        let mut session = KernelSession {
            host: Host::new(NOWHERE),
            mounted: None,
            image,
            size: plan.size(),
            log_bytes: plan.xfs_log_bytes(),
            fs_type: fs_type(self.spec.format),
            scratch: self.scratch.clone(),
        };
        session.mount()?;
        Ok(Box::new(session))
    }
}

fn format(plan: &FsPlan, image: &File) -> io::Result<Result<()>> {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(image.try_clone()?)?);
    Ok(plan.format(&*device).and_then(|()| plan.make_quotas(&device)))
}

/// Rejects a workload that would fill the scratch directory, which the file system would see as device errors.
fn check_room(scratch: &Path, need: &Need) -> Result<()> {
    let failed = |e| Error::host(format!("statvfs {}", scratch.display()), e);
    let totals = rustix::fs::statvfs(scratch).map_err(failed)?;
    let bytes = totals.f_bavail.saturating_mul(totals.f_frsize);
    if need.inodes.saturating_mul(INODE_BYTES).saturating_add(need.bytes) <= bytes {
        return Ok(());
    }
    let free = diskwright::text::size(bytes);
    let problem = "free, which is too little for this workload";
    Err(Error::Unsupported(format!("{} has {free} {problem}", scratch.display())))
}

/// Returns remarks on differences that are not caused by the file system.
fn remarks(format: Format) -> Vec<String> {
    let common = [
        "operations are system calls, with the cost of entering the kernel; targets in this \
         process have none",
        "mounted with the kernel's defaults: relatime, with journal or log, without discard",
        "the kernel caches metadata and data in all free memory; they pass through a loop device \
         to a file, whose processor time is not counted",
        "caches are dropped by unmounting and mounting again",
        "the processor time of deferred work in kernel threads is not counted",
    ];
    common.into_iter().chain(format::remark(format)).map(str::to_owned).collect()
}

impl Session for KernelSession {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.host)
    }

    /// Unmounts and mounts again. `/proc/sys/vm/drop_caches` would slow down other programs and is incomplete:
    /// frequently used XFS buffers, for example, survive several rounds. The last unmount also drops the pages of the
    /// loop device.
    fn drop_caches(&mut self) -> Result<()> {
        self.unmount()?;
        // On tmpfs the pages of the file are the image, so this has no effect.
        self.image.sync_data().map_err(|e| Error::host("fdatasync", e))?;
        rustix::fs::fadvise(&self.image, 0, None, Advice::DontNeed)
            .map_err(|e| Error::host("fadvise", e))?;
        self.mount()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn log_position(&self) -> Result<Option<u64>> {
        let position = self.mounted.as_ref().zip(self.log_bytes);
        let position = position.map(|(mounted, bytes)| mounted.xfs_log_head(bytes));
        position.transpose().map_err(|e| Error::host("log_head_lsn", e))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.unmount()
    }
}

impl KernelSession {
    fn mount(&mut self) -> Result<()> {
        let options = mount_options(self.fs_type);
        let mounted = KernelMount::new(&self.image, self.fs_type, options, &self.scratch)?;
        self.host = Host::new(mounted.path());
        self.mounted = Some(mounted);
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        // The number of the closed descriptor may be reused.
        self.host = Host::new(NOWHERE);
        self.mounted.take().map_or(Ok(()), KernelMount::unmount)
    }
}
