//! Workloads in a directory of a mounted file system, through system calls.
//!
//! A writing workload creates a directory `diskwright-workload-PID-N` there and removes it at the end, also after an
//! error, a panic or Ctrl-C. If the program is killed, the directory remains. Existing directories of that name are not
//! touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contestant::{AnyTarget, Contestant, Description, Need, Origin, Session};
use crate::target::Host;
use crate::{Error, Result};
use rustix::io::Errno;

use super::mounts::{is_cache, mount_of};

/// Maximum number of names tried for the directory.
const NAMES_MAX: u64 = 1000;

/// Directory of a mounted file system.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    base: Option<String>,
}

/// Directory in which a workload runs.
#[derive(Debug)]
struct DirectorySession {
    host: Host,
    /// True if the directory was created for the run.
    is_own: bool,
}

impl Directory {
    /// Selects the directory `path`. Its results are compared with those of `base`.
    pub fn new(path: impl Into<PathBuf>, base: Option<String>) -> Self {
        Self { path: path.into(), base }
    }
}

impl Contestant for Directory {
    fn describe(&self) -> Description {
        let what = mount_of(&self.path).map_or_else(
            || "a directory of a mounted file system".to_owned(),
            |mount| {
                let point = mount.point.display();
                format!("{}, mounted at {point} ({})", mount.fs_type, mount.options)
            },
        );
        Description {
            name: self.path.display().to_string(),
            side: Origin::Other,
            format: String::new(),
            deviations: 0,
            what,
            features: String::new(),
            base: self.base.clone(),
            remarks: remarks(&self.path),
        }
    }

    fn start(&self, need: &Need) -> Result<Box<dyn Session>> {
        let top = fs::canonicalize(&self.path).map_err(|e| refused("open", &self.path, e))?;
        if !top.is_dir() {
            return Err(Error::Unsupported(format!("{} is not a directory", top.display())));
        }
        if need.existing {
            return Ok(Box::new(DirectorySession { host: Host::new(top), is_own: false }));
        }
        check_room(&top, need)?;
        let own = make_directory(&top)?;
        Ok(Box::new(DirectorySession { host: Host::new(own), is_own: true }))
    }
}

impl Session for DirectorySession {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.host)
    }

    fn drop_caches(&mut self) -> Result<()> {
        drop_kernel_caches(self.host.path())
    }

    fn size(&self) -> u64 {
        // Only for the report; the workload reports a missing directory.
        rustix::fs::statvfs(self.host.path())
            .map_or(0, |totals| totals.f_blocks.saturating_mul(totals.f_frsize))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.remove().map_err(|e| Error::host("remove the workload's directory", e))
    }
}

impl DirectorySession {
    /// Removes the created directory. Only the first call has an effect.
    fn remove(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_own) { fs::remove_dir_all(self.host.path()) } else { Ok(()) }
    }
}

impl Drop for DirectorySession {
    fn drop(&mut self) {
        // The run failed, so its error takes precedence.
        let _ = self.remove();
    }
}

/// Returns remarks on differences that are not caused by the file system.
fn remarks(path: &Path) -> Vec<String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut remarks = vec![
        format!(
            "operations are system calls of Linux {release}, with the cost of entering the kernel; \
             targets in this process have none"
        ),
        "the page, inode and directory caches of the kernel use all free memory".to_owned(),
        "the age, the fill level and other users of the file system affect the results".to_owned(),
        "the processor time of deferred work in kernel threads is not counted".to_owned(),
    ];
    if mount_of(path).is_some_and(|mount| is_cache(&mount)) {
        remarks.push("it is in memory only, so syncing has no effect".to_owned());
    }
    remarks
}

/// Classifies an error: missing support or privileges are `Unsupported`, so that other runs continue.
fn refused(operation: &str, path: &Path, error: impl Into<io::Error>) -> Error {
    let error: io::Error = error.into();
    let operation = format!("{operation} {}", path.display());
    match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            Error::Unsupported(format!("{operation}: {error}"))
        }
        _ => Error::host(operation, error),
    }
}

/// Rejects a workload that needs more space than available. File systems that allocate inodes dynamically may report
/// that they have none.
fn check_room(top: &Path, need: &Need) -> Result<()> {
    let totals = rustix::fs::statvfs(top).map_err(|e| refused("statvfs", top, e))?;
    let bytes = totals.f_bavail.saturating_mul(totals.f_frsize);
    let has_inodes = totals.f_files == 0 || totals.f_favail >= need.inodes;
    if has_inodes && bytes >= need.bytes {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "it has {} free and {} free inodes, too little for this workload",
        diskwright::text::size(bytes),
        totals.f_favail
    )))
}

fn make_directory(top: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = top.join(format!("diskwright-workload-{}-{number}", std::process::id()));
        match fs::create_dir(&own) {
            Ok(()) => return Ok(own),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused("make a directory in", top, error)),
        }
    }
    Err(Error::Unsupported("it has too many directories of killed workloads; remove them".into()))
}

/// Syncs, and drops the kernel's page, inode and dentry caches of all file systems.
fn drop_kernel_caches(directory: &Path) -> Result<()> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unsupported(format!("dropping caches requires root ({SWITCH})")));
    }
    if mount_of(directory).is_some_and(|mount| is_cache(&mount)) {
        return Err(Error::Unsupported("there is no storage behind the cache".into()));
    }
    // The kernel drops only clean pages.
    let open = fs::File::open(directory).map_err(|e| Error::host("open", e))?;
    rustix::fs::syncfs(open).map_err(|e| Error::host("syncfs", e))?;
    // 3: inodes, dentries and pages. The metadata of ext4 is in pages.
    fs::write(SWITCH, "3").map_err(|e| Error::Unsupported(format!("{SWITCH}: {e}")))
}
