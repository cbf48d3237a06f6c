//! Images with many feature sets are read as the kernel reads them.

use std::fs;
use std::path::Path;

use testkit::{
    Ignore, KernelMount, Mke2fs, MountOptions, Sample, Tree, assert_same, debugfs, debugfs_write,
    populate_with_kernel, require, sample_tree, scratch,
};

use super::{Order, open, tree_of};
use crate::Ext4;
use crate::format::inode::flags;

const MIB: u64 = 1 << 20;

fn small(block_size: u32) -> Sample {
    Sample { wide_names: 700, depth: 20, ..Sample::for_block_size(block_size) }
}

/// Returns the order in which the kernel lists each directory.
fn kernel_order(root: &Path, tree: &Tree) -> Order {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let directories = tree.nodes.iter().filter(|(_, n)| n.kind == testkit::NodeKind::Directory);
    let names = |path: &[u8]| {
        let entries = fs::read_dir(root.join(std::ffi::OsStr::from_bytes(path))).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_vec()).collect()
    };
    directories.map(|(path, _)| (path.clone(), names(path))).collect()
}

/// Asserts that an image is read as by the kernel, with hashed directories in the same order.
fn assert_reads_like_the_kernel(image: &Path, ignore: &Ignore) -> Ext4 {
    let mount = KernelMount::new(image, &MountOptions::read_only("ext4"));
    let expected = Tree::of(mount.path());
    let expected_order = kernel_order(mount.path(), &expected);
    mount.unmount();
    let fs = open(image);
    let (actual, order) = tree_of(&fs);
    assert_same(&expected, &actual, ignore);
    if fs.volume.dir_index {
        for (path, names) in &order {
            assert!(names == &expected_order[path], "order of {}", path.escape_ascii());
        }
    }
    fs
}

/// Creates an image, fills it with the kernel and compares.
fn check(mke2fs: &Mke2fs, sample: &Sample, prepare: impl FnOnce(&Path)) -> Ext4 {
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs.create(&image, 256 * MIB);
    prepare(&image);
    populate_with_kernel(&image, "ext4", |root| {
        let _ = sample_tree(root, sample);
    });
    let ignore = Ignore { atime: false, ctime: false, lost_found: false, ..Ignore::default() };
    assert_reads_like_the_kernel(&image, &ignore)
}

macro_rules! feature_sets {
    ($($name:ident: $mke2fs:expr, $sample:expr;)+) => {$(
        #[test]
        fn $name() {
            require!(Root, Tool("mke2fs"), Mount("ext4"));
            check(&$mke2fs, &$sample, |_| {});
        }
    )+};
}

feature_sets! {
    the_default_reads: Mke2fs::new("ext4").block_size(4096), Sample::default();
    small_blocks_read: Mke2fs::new("ext4").block_size(1024), small(1024);
    blocks_of_2_kib_read: Mke2fs::new("ext4").block_size(2048).inode_size(512), small(2048);
    ext3_reads: Mke2fs::new("ext3").block_size(4096), small(4096);
    ext2_reads: Mke2fs::new("ext2").block_size(1024).inode_size(128),
        Sample { wide_times: false, ..small(1024) };
    inline_data_reads: Mke2fs::new("ext4").block_size(4096).features("inline_data"), small(4096);
    inline_data_in_large_inodes_reads:
        Mke2fs::new("ext4").block_size(4096).features("inline_data").inode_size(1024), small(4096);
    large_attributes_read: Mke2fs::new("ext4").block_size(4096).features("ea_inode"),
        Sample { xattr_bytes_max: 60_000, ..small(4096) };
    bigalloc_reads: Mke2fs::new("ext4").block_size(4096).features("bigalloc").arguments(["-C", "16384"]),
        small(4096);
    meta_bg_reads: Mke2fs::new("ext4").block_size(4096).features("meta_bg,^resize_inode"), small(4096);
    without_flex_bg_reads: Mke2fs::new("ext4").block_size(4096).features("^flex_bg"), small(4096);
    without_64bit_reads: Mke2fs::new("ext4").block_size(4096).features("^64bit"), small(4096);
    without_checksums_reads: Mke2fs::new("ext4").block_size(4096).features("^metadata_csum"), small(4096);
    without_dir_index_reads: Mke2fs::new("ext4").block_size(4096).features("^dir_index"), small(4096);
    block_maps_with_checksums_read: Mke2fs::new("ext4").block_size(1024).features("^extent,^64bit"), small(1024);
    many_features_read: Mke2fs::new("ext4").features("ea_inode,inline_data,large_dir").block_size(1024),
        Sample { xattr_bytes_max: 30_000, ..small(1024) };
}

#[test]
fn revision_0_without_types_in_directories_reads() {
    require!(Root, Tool("mke2fs"), Tool("debugfs"), Mount("ext2"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let mke2fs = Mke2fs::new("ext2").block_size(1024).inode_size(128);
    mke2fs.arguments(["-r", "0", "-O", "none"]).create(&image, 64 * MIB);
    // The kernel raises the revision when it writes.
    let fresh = open(&image);
    assert_eq!(fresh.volume.sb.raw.rev_level, 0);
    assert_eq!(tree_of(&fresh).0.nodes.len(), 2);
    populate_with_kernel(&image, "ext4", |root| {
        let sample = Sample { wide_times: false, huge_sparse: false, ..small(1024) };
        let _ = sample_tree(root, &sample);
    });
    let fs =
        assert_reads_like_the_kernel(&image, &Ignore { lost_found: false, ..Ignore::default() });
    assert!(!fs.volume.filetype);
}

#[test]
fn every_hash_reads() {
    require!(Root, Tool("mke2fs"), Tool("tune2fs"), Tool("debugfs"), Mount("ext4"));
    for (name, version) in [("legacy", 0), ("half_md4", 1), ("tea", 2)] {
        for signs in [1, 2] {
            let set = |image: &Path| {
                let mut tune2fs = testkit::command("tune2fs");
                tune2fs.args(["-E", &format!("hash_alg={name}")]).arg(image);
                assert!(tune2fs.output().unwrap().status.success());
                debugfs_write(image, &format!("set_super_value flags {signs}"));
            };
            let sample = Sample { huge_sparse: false, depth: 3, ..small(1024) };
            let fs = check(&Mke2fs::new("ext4").block_size(1024), &sample, set);
            assert_eq!(fs.volume.sb.raw.def_hash_version, version);
            assert_eq!(fs.volume.sb.signed_hash(), signs == 1);
        }
    }
}

#[test]
fn an_index_of_three_levels_reads() {
    require!(Root, Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let mke2fs = Mke2fs::new("ext4").block_size(1024).features("large_dir");
    mke2fs.inode_count(50_000).create(&image, 192 * MIB);
    populate_with_kernel(&image, "ext4", |root| {
        fs::create_dir(root.join("wide")).unwrap();
        let first = root.join("wide/first");
        fs::write(&first, "x").unwrap();
        // Names of maximum length, so that a leaf has at most three.
        for number in 0..40_000 {
            let name = format!("{number:0>255}");
            let made = fs::File::create(root.join("wide").join(name));
            drop(made.unwrap());
        }
    });
    let fs = assert_reads_like_the_kernel(&image, &Ignore::default());
    let wide = super::lookup(&fs, &fs.load(vfs::Ino(2)).unwrap(), b"wide").unwrap();
    let (info, _) = crate::dir::index::root(&mut &*fs, &fs.load(wide).unwrap()).unwrap();
    assert_eq!(info.indirect_levels, 2);
}

#[test]
fn deep_trees_of_extents_read() {
    require!(Root, Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    use std::os::unix::fs::FileExt;
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").block_size(1024).create(&image, 128 * MIB);
    populate_with_kernel(&image, "ext4", |root| {
        let file = fs::File::create(root.join("fragmented")).unwrap();
        for block in (0..40_000_u64).step_by(2) {
            file.write_all_at(&block.to_le_bytes().repeat(128), block * 1024).unwrap();
        }
        let file = fs::File::create(root.join("unwritten")).unwrap();
        use rustix::fs::{FallocateFlags, fallocate};
        fallocate(&file, FallocateFlags::empty(), 10_000, 300_000).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 600_000, 300_000).unwrap();
        file.write_all_at(b"in the middle", 100_000).unwrap();
    });
    let ignore = Ignore { lost_found: false, ..Ignore::default() };
    let fs = assert_reads_like_the_kernel(&image, &ignore);
    let file = super::lookup(&fs, &fs.load(vfs::Ino(2)).unwrap(), b"fragmented").unwrap();
    let handle = fs.load(file).unwrap();
    assert!(handle.inode.has_flag(flags::EXTENTS));
    assert!(handle.inode.i_block()[6] >= 2, "{}", debugfs(&image, "dump_extents /fragmented"));
}

#[test]
fn blocks_of_64_kib_made_by_mke2fs_read() {
    require!(Root, Tool("mke2fs"));
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    let sample = Sample { huge_sparse: false, wide_times: false, ..small(4096) };
    let _ = sample_tree(&source, &sample);
    let mke2fs = Mke2fs::new("ext4").block_size(65536).populate(&source);
    mke2fs.create(&image, 512 * MIB);
    let (actual, _) = tree_of(&open(&image));
    // mke2fs duplicates linked symbolic links and special files.
    let paths = vec![&b"links"[..]];
    let ignore = Ignore { holes: true, nanoseconds: true, root: true, paths, ..Ignore::default() };
    assert_same(&Tree::of(&source), &actual, &ignore);
}
