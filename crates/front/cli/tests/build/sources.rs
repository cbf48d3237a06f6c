//! The same tree from every kind of source, with the options that change the image.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use testkit::{Ignore, Sample, Tree, require, scratch};

use crate::build::common::{
    EPOCH, FORMATS, as_in_gnu_tar, build, build_command, common_sample, judge, judge_but, mount,
    narrow_sample, sample_in, small_sample, succeed, tar,
};

use crate::mount_cli::common::may_copy_mounts;
use crate::program::diskwright;

/// Builds from a directory and from archives of it in every form.
fn every_source(sample: &Sample, options: &str) {
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), sample);
    let image = directory.path().join("image");
    build(&source, &image, options);
    judge(&image, &tree);

    let tree = as_in_gnu_tar(&tree);
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    for more in [&["--gzip"], &["--zstd"]] {
        let packed = directory.path().join("packed");
        tar(&source, &packed, more);
        build(&packed, &image, &format!("{options} --force"));
        judge(&image, &tree);
    }
    build(&archive, &image, &format!("{options} --force"));
    judge(&image, &tree);
    // With a computed size, which takes two passes, and in one pass.
    let one_pass = if options.contains("xfs") { "--size 1G" } else { "--size 1G --inodes 20000" };
    for more in ["", one_pass] {
        let mut command =
            build_command(Path::new("-"), &image, &format!("{options} {more} --force"));
        succeed(command.stdin(File::open(&archive).unwrap()));
        judge(&image, &tree);
    }
}

#[test]
fn every_source_in_4k_blocks() {
    require!(Tool("e2fsck"), Tool("tar"), Tool("zstd"), Mount("ext4"));
    every_source(&Sample::default(), "");
}

#[test]
fn every_source_in_xfs() {
    crate::require_all_formats!(Tool("tar"), Tool("zstd"));
    every_source(&Sample::for_xfs(), "--fs xfs");
}

#[test]
fn every_source_in_xfs_of_1k_blocks() {
    crate::require_all_formats!(Tool("tar"), Tool("zstd"));
    every_source(&common_sample(), "--fs xfs --block-size 1K -O ^parent,^rmapbt");
}

#[test]
fn every_size_of_xfs() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let image = directory.path().join("image");
    let (source, tree) = sample_in(directory.path(), &common_sample());
    // From 6.12 on, kernels also mount blocks larger than a page.
    for (block_size, inode_size) in
        [(1024, 512), (2048, 1024), (4096, 2048), (8192, 512), (65536, 512)]
    {
        let sizes = format!("--fs xfs --block-size {block_size} --inode-size {inode_size} --force");
        // Holes smaller than a block are stored as zeros.
        let ignore = Ignore { holes: block_size > 4096, ..Ignore::default() };
        build(&source, &image, &sizes);
        judge_but(&image, &tree, &ignore);
        build(&source, &image, &format!("{sizes} --size 400M --ag-count 3"));
        assert_eq!(image.metadata().unwrap().len(), 400 << 20);
        judge_but(&image, &tree, &ignore);
    }
}

#[test]
fn small_images_of_xfs_must_be_asked_for() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let image = directory.path().join("image");
    let (source, tree) = sample_in(directory.path(), &common_sample());
    build(&source, &image, "--fs xfs");
    assert_eq!(image.metadata().unwrap().len(), 300 << 20);
    let options = "--fs xfs --size 100M --force";
    let text = crate::build::common::fail(&mut build_command(&source, &image, options), 2);
    assert!(text.contains("300 MiB") && text.contains("--small"), "{text}");
    build(&source, &image, &format!("{options} --small"));
    judge(&image, &tree);
    build(&source, &image, "--fs xfs --small --force");
    assert!(image.metadata().unwrap().len() < 100 << 20);
    judge(&image, &tree);
}

#[test]
fn options_of_another_format_are_refused() {
    let directory = scratch();
    let image = directory.path().join("image");
    for (options, name) in [
        ("--fs xfs --inodes 100", "--inodes"),
        ("--fs xfs --bytes-per-inode 16K", "--bytes-per-inode"),
        ("--fs xfs --no-journal", "--no-journal"),
        ("--fs xfs --hash-seed 0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "--hash-seed"),
        ("--ag-count 4", "--ag-count"),
        ("--ag-size 64M", "--ag-size"),
        ("--log-size 64M", "--log-size"),
        ("--dir-block-size 8K", "--dir-block-size"),
        ("--small", "--small"),
        ("--fs xfs -O dir_index", "dir_index"),
        ("-O reflink", "reflink"),
    ] {
        let text =
            crate::build::common::fail(&mut build_command(directory.path(), &image, options), 2);
        assert!(text.contains(name), "{options}: {text}");
    }
    assert!(!image.exists());
}

#[test]
fn every_source_in_2k_blocks() {
    require!(Tool("e2fsck"), Tool("tar"), Tool("zstd"), Mount("ext4"));
    every_source(&small_sample(2048), "--block-size 2K");
}

#[test]
fn every_source_in_1k_blocks() {
    require!(Tool("e2fsck"), Tool("tar"), Tool("zstd"), Mount("ext4"));
    every_source(&Sample { depth: 20, ..Sample::for_block_size(1024) }, "--block-size 1K");
}

#[test]
fn every_block_and_inode_size() {
    require!(Tool("e2fsck"), Mount("ext4"));
    for block_size in [1024, 2048, 4096] {
        let directory = scratch();
        let image = directory.path().join("image");
        let (source, tree) = sample_in(directory.path(), &narrow_sample(block_size));
        for inode_size in [128, 256, 512, 1024] {
            let sizes = format!("--block-size {block_size} --inode-size {inode_size} --force");
            build(&source, &image, &sizes);
            judge(&image, &tree);
            build(&source, &image, &format!("{sizes} --size 300M"));
            assert_eq!(image.metadata().unwrap().len(), 300 << 20);
            judge(&image, &tree);
        }
    }
}

#[test]
fn the_requested_space_remains_free() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &common_sample());
    let image = directory.path().join("image");
    for (options, free) in [
        ("--block-size 1K", 1 << 20),
        ("", 100 << 20),
        ("", 3 << 30),
        ("--fs xfs", 400 << 20),
        ("--fs xfs", 3 << 30),
        ("--fs xfs --block-size 1K", 3 << 30),
    ] {
        build(&source, &image, &format!("{options} --free {free} --force"));
        judge_free(&image, free);
        judge(&image, &tree);
    }
}

fn judge_free(image: &Path, free: u64) {
    let mount = mount(image);
    let stat = rustix::fs::statvfs(mount.path()).unwrap();
    let available = stat.f_bavail * stat.f_frsize;
    assert!(available >= free, "{available} bytes are available instead of {free}");
    // Not wasteful either: metadata and the root's reserve are not included.
    assert!(available <= free + free / 10 + (8 << 20), "{available} for {free}");
}

#[test]
fn a_computed_size_is_whole_blocks_and_tight() {
    require!(Tool("e2fsck"), Mount("ext4"));
    let directory = scratch();
    let image = directory.path().join("image");
    let (source, _) = sample_in(directory.path(), &small_sample(1024));
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for (source, block_size) in [(&source, 4096), (&source, 1024), (&empty, 1024), (&empty, 4096)] {
        let options = format!("--block-size {block_size} --force -O inline_data");
        build(source, &image, &options);
        let size = image.metadata().unwrap().len();
        assert_eq!(size % block_size, 0, "{size} is not whole blocks of {block_size}");
        let smaller = format!("{options} --inodes 16 --size {}", size - size / 20 - 8 * block_size);
        crate::build::common::fail(&mut build_command(source, &image, &smaller), 4);
    }
}

#[test]
fn one_owner_for_everything() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let (source, mut tree) = sample_in(directory.path(), &common_sample());
    let image = directory.path().join("image");
    for node in tree.nodes.values_mut() {
        (node.uid, node.gid) = (4_294_967_294, 70_000);
    }
    for format in FORMATS {
        build(&source, &image, &format!("{format} --force --owner 4294967294:70000"));
        judge(&image, &tree);
    }
}

/// Limits all times of a tree to the epoch.
pub(crate) fn clamped(mut tree: Tree) -> Tree {
    for node in tree.nodes.values_mut() {
        node.mtime = node.mtime.min((EPOCH, 0));
    }
    tree
}

#[test]
fn no_time_is_after_the_epoch() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &small_sample(4096));
    let image = directory.path().join("image");
    let mut command = build_command(&source, &image, "");
    succeed(command.env("SOURCE_DATE_EPOCH", EPOCH.to_string()));
    judge(&image, &clamped(tree));
    let mount = mount(&image);
    for path in ["", "lost+found", "wide"] {
        let metadata = mount.path().join(path).symlink_metadata().unwrap();
        for time in [metadata.atime(), metadata.mtime(), metadata.ctime()] {
            assert!(time <= EPOCH, "{path:?}: {time}");
        }
    }
    let superblock = testkit::debugfs(&image, "show_super_stats -h");
    assert!(
        superblock.contains("Filesystem created:       Fri Jul 14 02:40:00 2017"),
        "{superblock}"
    );
}

#[test]
fn label_and_uuid_are_those_asked_for() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &narrow_sample(4096));
    let image = directory.path().join("image");
    let uuid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    for features in ["+dir_index", "^metadata_csum_seed", "^metadata_csum"] {
        let options = format!("--label sixteen-letters. --uuid {uuid} --force -O {features}");
        build(&source, &image, &options);
        judge(&image, &tree);
        let superblock = testkit::debugfs(&image, "show_super_stats -h");
        assert!(superblock.contains(uuid), "{superblock}");
        assert!(superblock.contains("sixteen-letters.\n"), "{superblock}");
    }
    let options = "--label seventeen-letters --force";
    crate::build::common::fail(&mut build_command(&source, &image, options), 2);
}

#[test]
fn the_root_of_the_source_becomes_the_root() {
    crate::require_all_formats!(Root, Tool("tar"));
    let directory = scratch();
    let source = directory.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o2751)).unwrap();
    std::os::unix::fs::chown(&source, Some(12), Some(34)).unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(&source, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("user.of-root", b"value");
    set("trusted.of-root", b"\0");
    let touch = Command::new("touch").args(["-d", "2001-02-03 04:05:06.789"]).arg(&source).status();
    assert!(touch.unwrap().success());
    let tree = Tree::of(&source);
    assert_eq!((tree.node(b"").permissions, tree.node(b"").xattrs.len()), (0o2751, 2));
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    let image = directory.path().join("image");
    for from in [&source, &archive] {
        for format in FORMATS {
            build(from, &image, &format!("--force {format}"));
            judge(&image, &tree);
        }
    }
}

/// A file of `/proc` among others, longer than the read size.
#[test]
fn a_file_of_unknown_size_is_read_to_its_end() {
    require!(Root, Tool("unshare"), Tool("mount"), Tool("e2fsck"), Tool("xfs_repair"));
    let symbols = Path::new("/proc/kallsyms");
    let Ok(expected) = std::fs::read(symbols) else {
        eprintln!("SKIPPED: no {}", symbols.display());
        return;
    };
    let directory = scratch();
    let source = directory.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["before", "symbols", "then"] {
        std::fs::write(source.join(name), "").unwrap();
    }
    let image = directory.path().join("image");
    let _copies = may_copy_mounts();
    let script = "mount --bind /proc/kallsyms \"$0/symbols\" && exec \"$@\"";
    for options in ["", "--threads 1", "--fs xfs"] {
        let build = build_command(&source, &image, &format!("--force {options}"));
        let mut command = testkit::command("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&source);
        succeed(command.arg(build.get_program()).args(build.get_args()));
        testkit::judge(&image);
        for (name, expected) in [("before", &b""[..]), ("symbols", &expected), ("then", b"")] {
            let output = succeed(diskwright().arg("cat").arg(&image).arg(name));
            assert!(output.stdout == expected, "{options}: {name}");
        }
    }
}
