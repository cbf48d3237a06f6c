//! Logs of a kernel interrupted in the middle of its work: this implementation must recover the same state as the
//! kernel.
//!
//! The kernel works on an image that is a file of another XFS, where a reflink copy is atomic: it contains all
//! completed writes and no others. Each copy is recovered by the kernel, by this implementation, and by this
//! implementation in memory only.

use crate::changing;
use crate::log_recovery::support::superblock;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use disk::{FileDevice, OverlayDevice};
use fastrand::Rng;
use rustix::fs::ioctl_ficlone;
use testkit::stress::{Promise, Stress};
use testkit::{
    Ignore, KernelMount, Leave, MkfsXfs, MountOptions, Tree, differences, require,
    shown_differences, xfs_repair_verdict,
};
use xfs::format::geometry::Geometry;
use xfs::format::log::intent::Work;
use xfs::{OpenOptions, RecoverReport, Xfs};

use changing::MIB;

/// Size of the file system that contains the images, of which little is used.
const OUTER_BYTES: u64 = 16 << 30;
const INNER_BYTES: u64 = 400 * MIB;
const THREADS: u64 = 4;
/// Maximum time between two copies.
const PAUSE_MS_MAX: u64 = 400;
/// Maximum lag of the clock for kernel timestamps.
const CLOCK_STEP: Duration = Duration::from_millis(20);

const NOATIME: MountOptions<'static> = MountOptions {
    fs_type: "xfs",
    read_only: false,
    no_recovery: false,
    offset: 0,
    extra: "noatime,nodev",
};

/// A crashed image, and its expected durable contents.
struct Crashed {
    path: PathBuf,
    promises: Vec<Promise>,
}

fn clone(from: &Path, to: &Path) {
    ioctl_ficlone(File::create(to).unwrap(), File::open(from).unwrap()).unwrap();
}

/// Lets the kernel work on a new image, and takes copies in the meantime.
fn crash(home: &Path, options: &str, copies: u64, seed: u64) -> Vec<Crashed> {
    let image = home.join("live");
    MkfsXfs::default().options(options).create(&image, INNER_BYTES);
    let mount = KernelMount::new(&image, &NOATIME);
    let stress = Stress::start(mount.path(), THREADS, seed);
    let mut rng = Rng::with_seed(seed);
    let take = |number: u64| {
        std::thread::sleep(Duration::from_millis(rng.u64(PAUSE_MS_MAX / 8..PAUSE_MS_MAX)));
        let promises = stress.promises();
        let path = home.join(format!("crashed-{number}"));
        clone(&image, &path);
        Crashed { path, promises }
    };
    let all = (0..copies).map(take).collect();
    let steps = stress.stop();
    assert!(steps > 100, "only {steps} steps");
    mount.unmount();
    all
}

impl Crashed {
    fn copy(&self, name: &str) -> PathBuf {
        let path = self.path.with_extension(name);
        clone(&self.path, &path);
        path
    }

    /// Returns the final sizes in bytes, by inode, of files in exchanges that are unfinished in the log.
    fn exchanged(&self) -> BTreeMap<u64, u64> {
        let file = Arc::new(FileDevice::new(File::open(&self.path).unwrap()).unwrap());
        let device = OverlayDevice::new(file);
        let sb = superblock(&device);
        let geometry = Geometry::new(&sb);
        let recovered = xfs::recover_log(&device, &sb).unwrap();
        let works = recovered.intents.iter().map(|intent| intent.work(&geometry).unwrap());
        let exchanges = works.filter_map(|work| match work {
            Work::Exchange(exchange) if exchange.set_sizes => Some(exchange.files),
            _ => None,
        });
        exchanges.flatten().map(|file| (file.ino.0, file.size)).collect()
    }

    /// Returns the tree after recovery by the kernel.
    fn by_kernel(&self) -> Result<Tree, String> {
        let path = self.copy("kernel");
        let tree = mounted_tree(&path, &self.promises)?;
        verdict(&path)?;
        std::fs::remove_file(path).map_err(|error| error.to_string())?;
        Ok(tree)
    }

    /// Returns the state after recovery by this implementation.
    fn by_us(&self) -> Result<Ours, String> {
        let exchanged = self.exchanged();
        let path = self.copy("ours");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let fs = Xfs::open_writable(device, &OpenOptions::default());
        let fs = fs.map_err(|error| format!("open: {error}"))?;
        let report = *fs.recovered();
        fs.close().map_err(|error| format!("close: {error}"))?;
        verdict(&path)?;
        let tree = mounted_tree(&path, &self.promises)?;
        let exchanged = match exchanged.is_empty() {
            true => BTreeMap::new(),
            false => sizes_by_path(&path, &tree, &exchanged)?,
        };
        std::fs::remove_file(path).map_err(|error| error.to_string())?;
        Ok(Ours { tree, report, exchanged })
    }

    /// Returns the tree after recovery in memory; the file is opened read-only.
    fn in_memory(&self) -> Result<testkit::fs_tree::FsTree, String> {
        let device = Arc::new(FileDevice::new(File::open(&self.path).unwrap()).unwrap());
        let fs = Xfs::open(device, &OpenOptions::default());
        let fs = fs.map_err(|error| format!("open: {error}"))?;
        crate::checking::verdict(&self.path)?;
        testkit::fs_tree::FsTree::of(&fs)
    }

    fn judge(&self) -> Result<RecoverReport, String> {
        let begun = SystemTime::now() - CLOCK_STEP;
        let mut theirs = self.by_kernel().map_err(|what| format!("the kernel: {what}"))?;
        let Ours { tree: ours, report, exchanged } = self.by_us()?;
        forget_recovery(&mut theirs, &ours, begun);
        forget_exchanges(&mut theirs, &ours, &exchanged)?;
        let ignore = Ignore { ctime: false, atime: false, ..Ignore::default() };
        let mut list = differences(&theirs, &ours, &ignore);
        let shown = self.in_memory().map_err(|what| format!("in memory: {what}"))?;
        let shown = shown_differences(&theirs, &shown, Leave::default());
        list.extend(shown.into_iter().map(|what| format!("in memory: {what}")));
        if list.is_empty() { Ok(report) } else { Err(list.join("\n")) }
    }
}

/// The state after recovery by this implementation.
struct Ours {
    tree: Tree,
    report: RecoverReport,
    /// Final sizes from exchanges, by path.
    exchanged: BTreeMap<Vec<u8>, u64>,
}

/// Returns the sizes by path.
fn sizes_by_path(
    image: &Path,
    tree: &Tree,
    sizes: &BTreeMap<u64, u64>,
) -> Result<BTreeMap<Vec<u8>, u64>, String> {
    let mount = KernelMount::attempt(image, &NOATIME)?;
    let size = |path: &Vec<u8>| {
        let found = mount.path().join(OsStr::from_bytes(path)).symlink_metadata().unwrap();
        Some((path.clone(), *sizes.get(&found.ino())?))
    };
    let found = tree.nodes.keys().filter_map(size).collect();
    mount.unmount();
    Ok(found)
}

/// Works around Linux 6.18, which finishes an exchange of whole files differently: it exchanges the current sizes
/// instead of using those in the log, and frees blocks past the end in between. This implementation uses the sizes in
/// the log.
fn forget_exchanges(
    theirs: &mut Tree,
    ours: &Tree,
    exchanged: &BTreeMap<Vec<u8>, u64>,
) -> Result<(), String> {
    for (path, size) in exchanged {
        let same = &ours.nodes[path];
        if same.size != *size {
            let path = String::from_utf8_lossy(path);
            return Err(format!("{path}: the log gives it {size} bytes, it has {}", same.size));
        }
        if let Some(node) = theirs.nodes.get_mut(path) {
            (node.size, node.content, node.data) = (same.size, same.content, same.data.clone());
        }
    }
    Ok(())
}

/// Ignores the change times of inodes in the kernel's recovery of attribute intents, which are the current time there
/// but not here.
fn forget_recovery(theirs: &mut Tree, ours: &Tree, begun: SystemTime) {
    let begun = begun.duration_since(UNIX_EPOCH).unwrap();
    let begun = (begun.as_secs().cast_signed(), i64::from(begun.subsec_nanos()));
    for (path, node) in theirs.nodes.iter_mut().filter(|(_, node)| node.ctime >= begun) {
        if let Some(same) = ours.nodes.get(path) {
            node.ctime = same.ctime;
        }
    }
}

/// Returns the damage found by xfs_repair. A kernel that replaces an attribute marks the entry incomplete until a later
/// transaction. A crash in between leaves the mark, which recovery keeps, and xfs_repair remarks on it without calling
/// it damage.
fn verdict(path: &Path) -> Result<(), String> {
    let Err(output) = xfs_repair_verdict(path) else { return Ok(()) };
    let remarks = output.split_once("remarks:\n").and_then(|(_, rest)| rest.split_once("\nall:"));
    let is_sound = output.starts_with("exit status Some(0)")
        && remarks.is_some_and(|(remarks, _)| {
            remarks.lines().all(|line| {
                line.starts_with("attribute entry #") && line.ends_with(" is INCOMPLETE")
            })
        });
    if is_sound { Ok(()) } else { Err(output) }
}

/// Returns the tree of an image mounted by the kernel, which must contain everything that is expected to be durable.
fn mounted_tree(path: &Path, promises: &[Promise]) -> Result<Tree, String> {
    let mount = KernelMount::attempt(path, &NOATIME)?;
    let broken: Vec<_> = promises.iter().filter_map(|p| p.check(mount.path()).err()).collect();
    let tree = Tree::of(mount.path());
    mount.unmount();
    if broken.is_empty() { Ok(tree) } else { Err(format!("not durable: {}", broken.join("\n"))) }
}

fn run(options: &str, seed: u64) {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    // For each kind of image.
    let copies = testkit::effort(2, 3, 50);
    let home = testkit::scratch();
    let outer = home.path().join("outer");
    MkfsXfs::default().create(&outer, OUTER_BYTES);
    let mount = KernelMount::new(&outer, &NOATIME);
    let mut total = RecoverReport::default();
    for crashed in crash(mount.path(), options, copies, seed) {
        match crashed.judge() {
            Ok(report) => {
                eprintln!("{options:?}: {} promises, {report:?}", crashed.promises.len());
                total.items_replayed += report.items_replayed;
                total.intents += report.intents;
            }
            Err(what) => {
                let kept = std::env::temp_dir().join(format!("kernel-crash-{seed}.img"));
                let note = match std::fs::copy(&crashed.path, &kept) {
                    Ok(_) => format!("image: {}", kept.display()),
                    Err(error) => format!("the image could not be kept: {error}"),
                };
                panic!("{options:?}: {}\n{note}\n{what}", crashed.path.display());
            }
        }
        std::fs::remove_file(&crashed.path).unwrap();
    }
    eprintln!("{options:?}: {copies} crashes, {total:?}");
    assert!(total.items_replayed > 0, "nothing was replayed");
    mount.unmount();
}

#[test]
fn todays_defaults() {
    run("", 1);
}

#[test]
fn small_blocks_and_large_directory_blocks() {
    run("-b size=1024 -n size=8192", 2);
}

#[test]
fn old_features() {
    run(
        "-m rmapbt=0,reflink=0,bigtime=0,inobtcount=0,finobt=0 -i nrext64=0,sparse=0 -n parent=0",
        3,
    );
}

#[test]
fn a_small_log_and_many_groups() {
    run("-d agcount=9 -l size=16m", 4);
}
