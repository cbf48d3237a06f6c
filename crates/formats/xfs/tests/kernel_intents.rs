//! Logs of a kernel with unfinished intents. The kernel frees files of many extents, changes shared blocks and renames
//! files, with frequent log writes. This implementation must finish the intents with the same result as the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::FileDevice;
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use testkit::{Ignore, KernelMount, MkfsXfs, MountOptions, Tree, assert_same, require, xfs_repair};
use xfs::{OpenOptions, Xfs};

/// Size of the file system that contains the images, of which little is used.
const OUTER_BYTES: u64 = 16 << 30;
const INNER_BYTES: u64 = 320 << 20;
const BLOCK: u64 = 4096;
/// Number of extents of a file that is freed.
const EXTENTS: u64 = 300;
/// Maximum number of copies taken until enough of them have intents.
const COPIES_MAX: u64 = 300;

fn clone(from: &Path, to: &Path) {
    ioctl_ficlone(File::create(to).unwrap(), File::open(from).unwrap()).unwrap();
}

/// Makes a file of many extents, shares them with others, and frees all.
fn work(root: &Path, number: u64) {
    let path = |name: &str| root.join(format!("{name}-{number}"));
    let file = File::create(path("file")).unwrap();
    file.write_all_at(&vec![7; (2 * EXTENTS * BLOCK) as usize], 0).unwrap();
    file.sync_all().unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (0..EXTENTS).for_each(|at| fallocate(&file, hole, 2 * at * BLOCK, BLOCK).unwrap());
    let link = |at: u64| root.join(format!("a name that is long, of {number}: {at}"));
    (0..40).for_each(|at| std::fs::hard_link(path("file"), link(at)).unwrap());
    clone(&path("file"), &path("copy"));
    let copy = File::options().write(true).open(path("copy")).unwrap();
    for at in 0..EXTENTS {
        copy.write_all_at(&[9; BLOCK as usize], at * 3 * BLOCK).unwrap();
    }
    copy.sync_all().unwrap();
    (0..40).for_each(|at| std::fs::rename(link(at), root.join(format!("{number}.{at}"))).unwrap());
    copy.set_len(BLOCK).unwrap();
    file.set_len(0).unwrap();
    (0..40).for_each(|at| std::fs::remove_file(root.join(format!("{number}.{at}"))).unwrap());
    std::fs::remove_file(path("copy")).unwrap();
    std::fs::remove_file(path("file")).unwrap();
}

/// Returns the tree of an image according to the kernel.
fn tree(path: &Path) -> Tree {
    let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
    let tree = Tree::of(mount.path());
    mount.unmount();
    xfs_repair(path);
    tree
}

/// Recovers a copy with the kernel and with this implementation, and compares. Returns the number of intents.
fn judge(copy: &Path) -> u64 {
    let theirs = copy.with_extension("theirs");
    clone(copy, &theirs);
    let file = File::options().read(true).write(true).open(copy).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let fs = Xfs::open_writable(device, &OpenOptions::default()).unwrap();
    let intents = fs.recovered().intents;
    fs.close().unwrap();
    if intents > 0 {
        assert_same(&tree(&theirs), &tree(copy), &Ignore::default());
    }
    std::fs::remove_file(theirs).unwrap();
    intents
}

fn run(options: &str) {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = testkit::scratch();
    let outer = home.path().join("outer");
    MkfsXfs::default().create(&outer, OUTER_BYTES);
    let outer = KernelMount::new(&outer, &MountOptions::read_write("xfs"));
    let image = outer.path().join("image");
    MkfsXfs::default().options(options).create(&image, INNER_BYTES);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    let is_over = AtomicBool::new(false);
    let with_intents = testkit::effort(1, 2, 3);
    let (root, ends) = (mount.path(), || is_over.load(Ordering::Relaxed));
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                (0..).take_while(|_| !ends()).for_each(|at| work(root, at * 3 + thread));
            });
        }
        scope.spawn(|| {
            let file = File::create(root.join("often")).unwrap();
            for at in (0..).take_while(|_| !ends()) {
                file.write_all_at(&[at as u8; 512], at * 512 % (1 << 20)).unwrap();
                file.sync_all().unwrap();
            }
        });
        let outcome = std::panic::catch_unwind(|| {
            let mut seen = Vec::new();
            for number in 0..COPIES_MAX {
                std::thread::sleep(Duration::from_millis(20 + number * 7 % 40));
                let copy = outer.path().join(format!("copy-{number}"));
                clone(&image, &copy);
                seen.extend(Some(judge(&copy)).filter(|intents| *intents > 0));
                std::fs::remove_file(copy).unwrap();
                if seen.len() >= with_intents {
                    break;
                }
            }
            seen
        });
        is_over.store(true, Ordering::Relaxed);
        match outcome {
            Ok(found) => seen = found,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    eprintln!("{options:?}: unfinished intents in copies: {seen:?}");
    assert!(!seen.is_empty(), "no copy had intents");
    mount.unmount();
    outer.unmount();
}

#[test]
fn intents_of_todays_defaults() {
    run("");
}

#[test]
fn intents_without_a_reverse_map() {
    run("-m rmapbt=0 -n parent=0");
}
