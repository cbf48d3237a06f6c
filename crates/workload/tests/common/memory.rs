//! Contestants for tests: the model, both formats in memory, and a directory of the host.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "not every test uses everything")]

use std::path::Path;
use std::sync::Arc;

use blockdev::MemoryDevice;
use vfs::FileSystem;
use workload::Result;
use workload::contestant::{AnyTarget, Session};
use workload::model::Model;
use workload::target::{Host, InProcess};

/// Memory of the formats' caches, in bytes.
const CACHE_BYTES: usize = 256 << 20;

/// A file system in memory.
pub enum Memory {
    Model(Model),
    Ext4(ext4::Ext4),
    Xfs(xfs::Xfs),
}

impl Memory {
    pub fn model() -> Self {
        Self::Model(Model::new())
    }

    pub fn ext4(size: u64) -> Self {
        Self::ext4_with(size, "")
    }

    /// With changes to the usual features.
    pub fn ext4_with(size: u64, features: &str) -> Self {
        let device = Arc::new(MemoryDevice::new(size));
        let features = ext4::mkfs::FeatureChange::parse_list(features).unwrap();
        let options = ext4::mkfs::Options { features, ..ext4::mkfs::Options::new(size) };
        let layout = ext4::mkfs::plan(&options).unwrap();
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::Contents::Zeros).unwrap();
        Self::Ext4(ext4::Ext4::open_fresh(device, CACHE_BYTES).unwrap())
    }

    pub fn xfs(size: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(size));
        let layout = xfs::mkfs::plan(&xfs::mkfs::Options::new(size)).unwrap();
        xfs::mkfs::format(&*device, &layout, xfs::mkfs::Contents::Zeros).unwrap();
        Self::Xfs(xfs::Xfs::open_fresh(device, CACHE_BYTES).unwrap())
    }

    pub fn file_system(&self) -> &dyn FileSystem {
        match self {
            Self::Model(fs) => fs,
            Self::Ext4(fs) => fs,
            Self::Xfs(fs) => fs,
        }
    }
}

impl Session for Memory {
    fn target(&self) -> AnyTarget<'_> {
        let fs = self.file_system();
        AnyTarget::InProcess(InProcess::new(fs, fs.root()))
    }

    fn drop_caches(&mut self) -> Result<()> {
        Err(workload::Error::Unsupported("a fresh image is not closed and opened again".into()))
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A directory of the host, whose caches stay as they are.
pub struct Directory(Host);

impl Directory {
    pub fn new(path: &Path) -> Self {
        Self(Host::new(path))
    }
}

impl Session for Directory {
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
