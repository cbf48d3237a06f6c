//! File systems for workloads, and comparisons of the results.
#![allow(missing_docs, unreachable_pub, reason = "shared by the tests of one file")]

mod counting;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::Error;
use bench::contestant::{AnyTarget, Session};
use bench::jobs::{Case, Context, Job, TimedStep};
use bench::target::{Host, InProcess};
use disk::{BlockDevice, MemoryDevice};
use ext4::{Ext4, OrphanPolicy};
use testkit::fs_tree::{FsTree, GRANULE_BYTES};
use vfs::{FileSystem, FileType};
use xfs::Xfs;

pub use counting::{Calls, Counting};

const IMAGE_BYTES: u64 = 96 << 20;
const CACHE_BYTES: usize = 2 << 20;

/// A file system in this process.
pub struct InMemory<'f>(pub &'f dyn FileSystem);

impl Session for InMemory<'_> {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::InProcess(InProcess::new(self.0, self.0.root()))
    }

    fn drop_caches(&mut self) -> bench::Result<()> {
        Err(Error::Unsupported("these workloads do not ask for it".to_owned()))
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> bench::Result<()> {
        Ok(())
    }
}

/// A directory of this machine.
pub struct OnHost(pub Host);

impl Session for OnHost {
    fn target(&self) -> AnyTarget<'_> {
        AnyTarget::Host(&self.0)
    }

    fn drop_caches(&mut self) -> bench::Result<()> {
        Err(Error::Unsupported("these workloads do not ask for it".to_owned()))
    }

    fn size(&self) -> u64 {
        0
    }

    fn finish(self: Box<Self>) -> bench::Result<()> {
        Ok(())
    }
}

/// Runs a case, and checks the announced number of operations.
pub fn run(job: &dyn Job, case: &Case, session: &mut dyn Session, seed: u64) -> Vec<TimedStep> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |count| {
        done.fetch_add(count, Ordering::Relaxed);
    };
    let steps = job.run(case, session, &Context::new(seed, &stop, &progress));
    let steps = steps.unwrap_or_else(|error| panic!("{} of {}: {error}", job.name(), case.x));
    assert_eq!(done.into_inner(), case.operations, "{}: progress", job.name());
    let operations: u64 = steps.iter().map(|step| step.operations).sum();
    assert_eq!(operations, case.operations, "{}: steps", job.name());
    assert!(steps.iter().all(|step| !step.cost.wall.is_zero()), "{}: time", job.name());
    for step in steps.iter().filter(|step| step.operations > 0) {
        let are_figures = step.extras.iter().all(|extra| extra.value > 0.0);
        assert!(are_figures, "{}: {:?}", job.name(), step.extras);
    }
    steps
}

/// Runs a case on a new ext4 image, and checks it with e2fsck.
pub fn on_ext4(job: &dyn Job, case: &Case, seed: u64, orphans: OrphanPolicy) -> (FsTree, u64, u64) {
    use ext4::mkfs::{InodeCount, Options, PreviousContents, format, plan};
    let inodes = InodeCount::Count(4096);
    let options = Options { uuid: [0x5a; 16], inodes, ..Options::new(IMAGE_BYTES) };
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    format(&*device, &plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let options = ext4::OpenOptions { cache_bytes: CACHE_BYTES, orphans, ..Default::default() };
    let fs = Ext4::open_writable(device.clone(), &options).unwrap();
    run(job, case, &mut InMemory(&fs), seed);
    let tree = FsTree::of(&fs).unwrap();
    let free = fs.statfs().unwrap();
    fs.close().unwrap();
    judge(&device);
    (tree, free.blocks_free, free.inodes_free)
}

/// Runs a case on a new XFS image, and checks it with xfs_repair.
pub fn on_xfs(job: &dyn Job, case: &Case, seed: u64) -> (FsTree, u64, u64) {
    use xfs::mkfs::{Options, PreviousContents, format, plan};
    let options = Options { uuid: [0x5a; 16], allow_small: true, ..Options::new(IMAGE_BYTES) };
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    format(&*device, &plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Xfs::open_in_progress(device.clone(), CACHE_BYTES).unwrap();
    run(job, case, &mut InMemory(&fs), seed);
    let tree = FsTree::of(&fs).unwrap();
    let free = fs.statfs().unwrap();
    fs.finish(None).unwrap();
    judge(&device);
    (tree, free.blocks_free, free.inodes_free)
}

fn judge(device: &MemoryDevice) {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    let file = File::create(&path).unwrap();
    file.set_len(device.len()).unwrap();
    device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
    testkit::judge(&path);
}

/// Visible state: the contents of each file, `None` for a directory.
pub type FilesByName = BTreeMap<String, Option<Vec<u8>>>;

/// Returns the files of a tree, all of which are short.
pub fn files_of(tree: &FsTree) -> FilesByName {
    let file = |(path, &place): (&Vec<u8>, &usize)| {
        let inode = &tree.inodes[place];
        let is_file = inode.attributes.file_type == FileType::Regular;
        let contents = is_file.then(|| {
            let mut bytes = vec![0; inode.attributes.size as usize];
            for (granule, found) in &inode.contents.granules {
                let start = (granule * GRANULE_BYTES) as usize;
                bytes[start..start + found.len()].copy_from_slice(found);
            }
            bytes
        });
        (String::from_utf8(path.clone()).unwrap(), contents)
    };
    let all = tree.paths.iter().map(file);
    all.filter(|(path, _)| !path.is_empty()).collect()
}

/// Runs a case on a directory of this machine.
pub fn on_host(job: &dyn Job, case: &Case, seed: u64) -> FilesByName {
    let folder = testkit::scratch();
    run(job, case, &mut OnHost(Host::new(folder.path())), seed);
    let mut files = FilesByName::new();
    walk(folder.path(), folder.path(), &mut files);
    files
}

fn walk(top: &Path, dir: &Path, files: &mut FilesByName) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        if entry.file_type().unwrap().is_dir() {
            files.insert(name, None);
            walk(top, &path, files);
        } else {
            files.insert(name, Some(fs::read(&path).unwrap()));
        }
    }
}
