//! Trees made by a kernel pass the structure check, including every key in the nodes.

use operations::RunOperations;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use rustix::fs::{FallocateFlags, fallocate};
use testkit::MkfsXfs;
use vfs::Ino;

use super::structure::check;
use crate::alloc::HeldAg;
use crate::alloc::ags::AgTree;
use crate::alloc::trees::GroupTree;
use crate::btree::records::{BnoTree, CntTree, FinoTree, InoTree, RefcountTree, RmapTree};
use crate::format::inode::{Fork, ForkFormat};
use crate::{OpenOptions, Xfs};

const HOLES: u64 = 3000;

/// Makes files with many extents, some of them shared, and many inodes. Returns the numbers of two files.
fn fill(root: &Path, has_reflink: bool) -> Vec<Ino> {
    let block = vec![7; 4096];
    let (torn, copy) = (root.join("torn"), root.join("copy"));
    let file = File::create(&torn).unwrap();
    for n in 0..HOLES {
        file.write_all_at(&block, n * 8192).unwrap();
    }
    fallocate(&file, FallocateFlags::empty(), HOLES * 8192, 1 << 20).unwrap();
    file.sync_all().unwrap();
    if has_reflink {
        oracle_copy(&torn, &copy);
        let shared = File::options().write(true).open(&copy).unwrap();
        for n in (0..HOLES).step_by(3) {
            shared.write_all_at(&block[..512], n * 8192).unwrap();
        }
        shared.sync_all().unwrap();
    } else {
        fs::write(&copy, &block).unwrap();
    }
    let spread = root.join("spread");
    fs::create_dir(&spread).unwrap();
    for n in 0..8000 {
        fs::write(spread.join(format!("file {n}")), &block[..n % 3]).unwrap();
    }
    for n in (0..8000).step_by(3) {
        fs::remove_file(spread.join(format!("file {n}"))).unwrap();
    }
    let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for n in (0..HOLES).step_by(5) {
        fallocate(&file, punched, n * 8192, 4096).unwrap();
    }
    [torn, copy].iter().map(|path| Ino(fs::metadata(path).unwrap().ino())).collect()
}

fn oracle_copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("--reflink=always").args([from, to]).status();
    assert!(status.unwrap().success());
}

/// Checks a tree of a group. Returns the number of its records.
fn check_tree<T: GroupTree>(group: &mut HeldAg<'_, '_>) -> usize {
    if !group.has_tree(T::AG_TREE) {
        return 0;
    }
    let (records, blocks) = check(&mut group.cursor::<T>());
    let state = &group.guard;
    let counted = match T::AG_TREE {
        AgTree::Rmap => state.rmap_blocks,
        AgTree::Refcount => state.refcount_blocks,
        AgTree::Ino if state.ino_blocks > 0 => state.ino_blocks,
        AgTree::Fino if state.fino_blocks > 0 => state.fino_blocks,
        _ => blocks.len() as u32,
    };
    assert_eq!(counted, blocks.len() as u32, "{}", T::SHAPE.name);
    records.len()
}

fn check_image(image: &Path, files: &[Ino]) -> [usize; 6] {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    let fs = Xfs::open(Arc::new(device), &OpenOptions::default()).unwrap();
    let mut sums = [0; 6];
    for ag in fs.volume.geometry.ags() {
        fs.atomically(|op| {
            let mut group = op.ag(ag)?;
            let records = [
                check_tree::<BnoTree>(&mut group),
                check_tree::<CntTree>(&mut group),
                check_tree::<RmapTree>(&mut group),
                check_tree::<RefcountTree>(&mut group),
                check_tree::<InoTree>(&mut group),
                check_tree::<FinoTree>(&mut group),
            ];
            sums.iter_mut().zip(records).for_each(|(sum, n)| *sum += n);
            Ok(())
        })
        .unwrap();
    }
    for ino in files {
        let mut handle = fs.load(*ino).unwrap();
        if handle.inode.format() != ForkFormat::Btree {
            continue;
        }
        let extents = handle.inode.extents(Fork::Data);
        fs.atomically(|op| {
            let mut map = op.map(&mut handle, Fork::Data);
            assert_eq!(check(&mut map.cursor()?).0.len() as u64, extents);
            assert!(extents > HOLES / 2);
            Ok(())
        })
        .unwrap();
    }
    sums
}

#[test]
fn trees_of_a_kernel_are_as_ours() {
    testkit::require!(Tool("mkfs.xfs"), Root, Mount("xfs"));
    let home = testkit::scratch();
    for options in ["", "-b size=1024", "-m reflink=0,rmapbt=0,finobt=0 -i sparse=0"] {
        let has_reflink = !options.contains("reflink=0");
        let image = home.path().join("image");
        let _ = fs::remove_file(&image);
        MkfsXfs::default().options(options).create(&image, 320 << 20);
        let mut files = Vec::new();
        testkit::populate_with_kernel(&image, "xfs", |root| files = fill(root, has_reflink));
        let [bno, cnt, rmap, refcount, ino, fino] = check_image(&image, &files);
        assert!(bno == cnt && bno > 10 && ino > 100, "{options}: {bno} {cnt} {ino}");
        if has_reflink {
            assert!(rmap > 3000 && refcount > 1000 && fino > 50, "{rmap} {refcount} {fino}");
        }
    }
}

/// Most current kernels are built without version 4.
#[test]
fn trees_of_version_4_are_read() {
    testkit::require!(Tool("mkfs.xfs"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    MkfsXfs::default().options("-m crc=0,finobt=0").create(&image, 320 << 20);
    let [bno, cnt, _, _, ino, _] = check_image(&image, &[]);
    assert!(bno == cnt && bno > 0 && ino == 1, "{bno} {cnt} {ino}");
}
