//! Minimal sessions for running workloads.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "not every test uses everything")]

pub mod tampered;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::contestant::{AnyTarget, Session};
use bench::jobs::{Case, Context, Job, TimedStep};
use bench::target::{Host, InProcess};
use bench::{Error, Result};
use disk::MemoryDevice;
use ext4::{Ext4, OpenOptions};
use operations::profile::{ListingProfile, MeasuresListings};
use tempfile::TempDir;
use testkit::fs_tree::FsTree;
use vfs::FileSystem;
use xfs::Xfs;

const IMAGE_BYTES: u64 = 512 << 20;
const CACHE_BYTES: usize = 64 << 20;

/// A session in a file system without droppable caches.
pub struct InMemory {
    pub fs: Arc<dyn FileSystem>,
    /// The contents at each request to drop caches. `None` if they cannot be dropped.
    pub seen: Option<Vec<FsTree>>,
    /// The same file system, if it profiles its listings.
    measured: Option<Arc<dyn MeasuresListings>>,
}

impl InMemory {
    pub fn new(fs: impl FileSystem + 'static) -> Self {
        Self { fs: Arc::new(fs), seen: None, measured: None }
    }

    pub fn watching(fs: impl FileSystem + 'static) -> Self {
        Self::sharing(&(Arc::new(fs) as Arc<dyn FileSystem>))
    }

    /// Creates a session whose file system the test keeps, to examine or change it.
    pub fn sharing(fs: &Arc<dyn FileSystem>) -> Self {
        Self { fs: Arc::clone(fs), seen: Some(Vec::new()), measured: None }
    }

    /// Creates a session that profiles its listings.
    pub fn measured(fs: impl MeasuresListings + 'static) -> Self {
        let fs: Arc<dyn MeasuresListings> = Arc::new(fs);
        Self { fs: fs.clone(), seen: Some(Vec::new()), measured: Some(fs) }
    }

    /// Makes the session refuse to drop caches.
    pub fn uncached(self) -> Self {
        Self { seen: None, ..self }
    }

    pub fn tree(&self) -> FsTree {
        FsTree::of(&*self.fs).unwrap()
    }
}

impl Session for InMemory {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::InProcess(InProcess::new(&*self.fs, self.fs.root()))
    }

    fn profile(&self) -> Option<&ListingProfile> {
        self.measured.as_ref().map(|fs| fs.listing_profile())
    }

    fn drop_caches(&mut self) -> Result<()> {
        let tree = self.tree();
        let seen = self.seen.as_mut();
        seen.map(|seen| seen.push(tree)).ok_or_else(|| Error::Unsupported("no caches".into()))
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A session in a directory that the test keeps, which pretends to drop caches.
pub struct AtPath(Host);

impl AtPath {
    pub fn new(path: &Path) -> Self {
        Self(Host::new(path))
    }
}

impl Session for AtPath {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.0)
    }

    fn drop_caches(&mut self) -> Result<()> {
        Ok(())
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A session in a temporary directory on this machine.
pub struct OnHost {
    pub folder: TempDir,
    host: Host,
}

impl OnHost {
    pub fn new() -> Self {
        let folder = testkit::scratch();
        let host = Host::new(folder.path());
        Self { folder, host }
    }

    /// Returns the paths of all entries, with a trailing slash for directories.
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![self.folder.path().to_path_buf()];
        while let Some(dir) = pending.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(std::result::Result::unwrap) {
                let path = entry.path();
                let name = path.strip_prefix(self.folder.path()).unwrap().to_str().unwrap();
                if entry.file_type().unwrap().is_dir() {
                    found.push(format!("{name}/"));
                    pending.push(path);
                } else {
                    found.push(name.to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

impl Session for OnHost {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.host)
    }

    fn drop_caches(&mut self) -> Result<()> {
        Err(Error::Unsupported("not for tests".into()))
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A session in an ext4 image in memory, which is closed and reopened to drop caches.
pub struct Reopened {
    device: Arc<MemoryDevice>,
    pub fs: Option<Ext4>,
}

impl Reopened {
    pub fn new() -> Self {
        let device = ext4_image("");
        let fs = Some(Ext4::open_writable(device.clone(), &OpenOptions::default()).unwrap());
        Self { device, fs }
    }
}

impl Session for Reopened {
    fn target(&self) -> AnyTarget<'_> {
        let fs = self.fs.as_ref().unwrap();
        AnyTarget::InProcess(InProcess::new(fs, fs.root()))
    }

    fn drop_caches(&mut self) -> Result<()> {
        self.fs.take().unwrap().close().unwrap();
        let again = Ext4::open_writable(self.device.clone(), &OpenOptions::default());
        self.fs = Some(again.unwrap());
        Ok(())
    }

    fn size(&self) -> u64 {
        IMAGE_BYTES
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn ext4_image(features: &str) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let inodes = ext4::mkfs::InodeCount::Count(100_000);
    let features = ext4::mkfs::FeatureChange::parse_list(features).unwrap();
    let options = ext4::mkfs::Options { inodes, features, ..ext4::mkfs::Options::new(IMAGE_BYTES) };
    let layout = ext4::mkfs::plan(&options).unwrap();
    ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros).unwrap();
    device
}

pub fn ext4() -> Ext4 {
    ext4_with("")
}

/// With changes to the default features.
pub fn ext4_with(features: &str) -> Ext4 {
    Ext4::open_in_progress(ext4_image(features), CACHE_BYTES).unwrap()
}

pub fn xfs() -> Xfs {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let layout = xfs::mkfs::plan(&xfs::mkfs::Options::new(IMAGE_BYTES)).unwrap();
    xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros).unwrap();
    Xfs::open_in_progress(device, CACHE_BYTES).unwrap()
}

/// Runs the only case of a workload, and checks its description.
pub fn run(job: &dyn Job, session: &mut dyn Session, seed: u64) -> Result<Vec<TimedStep>> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |operations| {
        done.fetch_add(operations, Ordering::Relaxed);
    };
    let case = only_case(job);
    let steps = job.run(&case, session, &Context::new(seed, &stop, &progress))?;
    assert_eq!(done.into_inner(), case.operations, "progress");
    for step in &steps {
        assert!(step.operations > 0 && !step.cost.wall.is_zero(), "{step:?}");
        assert!(step.cost.user + step.cost.system <= step.cost.wall * 1000, "{step:?}");
    }
    Ok(steps)
}

/// Runs the only case of a workload and cancels it after a number of operations. Returns the final number.
pub fn run_and_stop(job: &dyn Job, session: &mut dyn Session, after: u64) -> (Result<()>, u64) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |operations| {
        if done.fetch_add(operations, Ordering::Relaxed) + operations >= after {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let result = job.run(&only_case(job), session, &Context::new(1, &stop, &progress));
    (result.map(drop), done.load(Ordering::Relaxed))
}

pub fn only_case(job: &dyn Job) -> Case {
    let cases = job.cases();
    assert_eq!(cases.len(), 1);
    cases[0]
}
