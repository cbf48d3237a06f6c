//! Images with every feature, golden images and crashed images, checked by a current kernel in the
//! guest.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use testkit::guest::{self, Access, Kernel};
use testkit::{
    Format, Ignore, Mke2fs, MkfsXfs, Sample, Tree, differences, effort, judge, require, scratch,
};

use crate::build::common::{build, sample_in, succeed};

use crate::place::{Wanted, prove, shell};
use crate::program::diskwright;

const MIB: u64 = 1 << 20;

/// Options of ext4 images: every feature that a build can switch on or off.
const EXT4: &[&str] = &[
    "",
    "--block-size 1K -O inline_data",
    "-O ^has_journal",
    "-O ^orphan_file",
    "-O ^metadata_csum",
    "-O meta_bg,^flex_bg --block-size 1K --size 600M",
    "-O ea_inode",
    "-O sparse_super2,^resize_inode",
    "-O ^metadata_csum_seed",
    "-O ^metadata_csum,uninit_bg,^64bit",
    "-O ^resize_inode",
    "-O ^64bit",
    "-O ^flex_bg",
    "-O ^sparse_super",
    "-O meta_bg",
    "-O sparse_super2",
    "-O ^huge_file",
    "-O ^dir_nlink",
    "-O ^extent,^64bit --block-size 2K",
    "-O ^dir_index",
    "-O ^filetype",
    "-O large_dir",
    "-O inline_data,^metadata_csum",
    "-O inline_data --inode-size 1024",
    "-O ^large_file",
];

/// The same for XFS images. Debian's newest kernel does not mount the feature `ascii-ci`.
const XFS: &[&str] = &[
    "",
    "--block-size 1K",
    "-O ^parent",
    "-O ^rmapbt",
    "--block-size 2K --dir-block-size 16K --inode-size 1K",
    "-O ^finobt,^rmapbt,^reflink,^inobtcount,^sparse,^bigtime,^nrext64,^exchange,^parent",
    "-O ^reflink",
    "-O ^nrext64",
    "-O ^exchange",
    "-O ^bigtime",
    "-O ^inobtcount",
    "-O ^finobt,^inobtcount",
    "-O ^sparse",
    "--dir-block-size 64K",
    "--inode-size 2048",
    "--size 600M --ag-count 9",
    "--small",
    "--dedupe",
];

/// Returns a tree with every kind of entry that an emulated kernel reads in a second.
fn sample() -> Sample {
    let (block_size, xattr_bytes_max) = (1024, 512);
    Sample {
        wide_names: 60,
        depth: 4,
        wide_times: false,
        block_size,
        xattr_bytes_max,
        ..Sample::for_xfs()
    }
}

/// Asserts that the guest's kernel shows a tree, reports no problem, and leaves a sound image.
#[track_caller]
fn assert_shown(image: &Path, tree: &Tree, kernel: Kernel, access: Access, options: &str) {
    let mut ignore = Ignore { root: true, ..Ignore::default() };
    // The kernel lists the access control lists of XFS a second time, in their stored form.
    ignore.xattr_prefixes.push(b"trusted.SGI_ACL_");
    let shown = guest::shown(image, kernel, access, "")
        .unwrap_or_else(|complaint| panic!("{options}: {kernel:?}, {access:?}: {complaint}"));
    let found = differences(tree, &shown, &ignore);
    assert!(found.is_empty(), "{options}: {kernel:?}, {access:?}: {found:#?}");
}

fn judge_build(fs: &str, all: &[&str]) {
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &sample());
    let image = directory.path().join("image");
    let everything = effort(false, false, true);
    for options in &all[..effort(2, 3, all.len())] {
        build(&source, &image, &format!("--fs {fs} --force {options}"));
        if everything {
            assert_shown(&image, &tree, Kernel::Newest, Access::ReadOnly, options);
            assert_shown(&image, &tree, Kernel::Stable, Access::ReadWrite, options);
        }
        assert_shown(&image, &tree, Kernel::Newest, Access::ReadWrite, options);
        if fs == "xfs" {
            guest::scrub(&image).unwrap_or_else(|found| panic!("{options}: {found}"));
        }
        judge(&image);
    }
}

#[test]
fn kernels_of_the_guest_show_what_went_into_ext4() {
    require!(Guest("EXT4_FS"), StableGuest("EXT4_FS"), GuestTree, Tool("e2fsck"), Root);
    judge_build("ext4", EXT4);
}

#[test]
fn kernels_of_the_guest_show_what_went_into_xfs() {
    require!(Guest("XFS_ONLINE_SCRUB"), StableGuest("XFS_FS"), GuestTree, Tool("xfs_repair"), Root);
    judge_build("xfs", XFS);
}

/// The older kernel still mounts it.
#[test]
fn the_stable_kernel_folds_names_in_ascii() {
    require!(StableGuest("XFS_SUPPORT_ASCII_CI"), GuestTree, Tool("xfs_repair"), Root);
    let directory = scratch();
    let (source, tree) = sample_in(directory.path(), &sample());
    fs::write(source.join("Mixed-Case"), "x").unwrap();
    let tree = Tree { nodes: tree.nodes.into_iter().chain(Tree::of(&source).nodes).collect() };
    let image = directory.path().join("image");
    build(&source, &image, "--fs xfs -O ascii-ci");
    assert_shown(&image, &tree, Kernel::Stable, Access::ReadWrite, "-O ascii-ci");
    let found = |name: &str| guest::finds_folded(&image, Kernel::Stable, name).unwrap();
    assert!(found("mIXED-cASE") && !found("mIXED-cASe-"));
    judge(&image);
}

/// Returns the golden images of a crate.
fn golden(name: &str) -> Vec<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../formats/{name}/tests/golden"));
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> =
        entries.filter(|path| path.extension() == Some(OsStr::new("gz"))).collect();
    images.sort();
    assert!(images.len() > 5, "{images:?}");
    images
}

/// Unpacks a file, once per compression suffix in its name.
fn unpack(packed: &Path, image: &Path) {
    fs::copy(packed, image).unwrap();
    for _ in packed.to_str().unwrap().matches(".gz") {
        let mut gzip = testkit::command("gzip");
        let output = gzip.arg("-dc").stdin(File::open(image).unwrap()).output().unwrap();
        fs::write(image, output.stdout).unwrap();
    }
}

#[test]
fn golden_images_are_mounted_by_the_guest() {
    require!(
        Guest("UNICODE"),
        Guest("XFS_ONLINE_SCRUB"),
        StableGuest("XFS_SUPPORT_V4"),
        Tool("gzip")
    );
    let directory = scratch();
    let unpacked = directory.path().join("unpacked");
    // Debian's newest kernel rejects version 4 of XFS.
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for packed in [golden("ext4"), golden("xfs")].concat() {
        let name = packed.file_name().unwrap().to_str().unwrap();
        // Files of the first two need a key. Kernels reject the log of the third, which earlier versions wrote. The
        // others have realtime devices, and a kernel of the guest made them.
        if ["encrypted", "fscrypt", "log-of-long-records", "realtime", "zoned"]
            .iter()
            .any(|it| name.starts_with(it))
        {
            continue;
        }
        unpack(&packed, &unpacked);
        let image = directory.path().join(name);
        testkit::copy_image(&unpacked, &image);
        if name.starts_with("v4") { old.push(image) } else { new.push(image) }
    }
    for (images, kernel) in [(new, Kernel::Newest), (old, Kernel::Stable)] {
        assert!(images.len() >= 2, "{images:?}");
        guest::accepts_all(&images, kernel).unwrap_or_else(|found| panic!("{kernel:?}: {found}"));
    }
}

/// The guest's kernel changes an image and is stopped. Our recovery and a kernel's recovery must
/// show the same tree.
#[test]
fn logs_that_the_guest_leaves_are_replayed_as_it_replays_them() {
    require!(
        Guest("XFS_FS"),
        GuestTree,
        Tool("mke2fs"),
        Tool("e2fsck"),
        Tool("mkfs.xfs"),
        Tool("xfs_repair")
    );
    const LOAD: &str = "mkdir $M/a $M/b; for n in $(seq 60); do echo $n >$M/a/file-$n; ln $M/a/file-$n $M/b/$n; done\n\
        sync; for n in $(seq 20 40); do mv $M/a/file-$n $M/b/moved-$n; rm $M/b/$n; done\n\
        setfattr -n user.name -v value $M/a/file-1; truncate -s 5000 $M/a/file-2; rm $M/a/file-3";
    let directory = scratch();
    let [ours, theirs] = ["ours", "theirs"].map(|name| directory.path().join(name));
    for is_log_flushed in [true, false] {
        for format in ["ext4", "xfs"] {
            match format {
                "ext4" => Mke2fs::new("ext4").create(&ours, 32 * MIB),
                _ => MkfsXfs::default().create(&ours, 64 * MIB),
            }
            guest::crash(&ours, Kernel::Newest, LOAD, is_log_flushed);
            fs::copy(&ours, &theirs).unwrap();
            succeed(diskwright().arg("recover").arg(&ours));
            judge(&ours);
            let expected = guest::shown(&theirs, Kernel::Newest, Access::ReadWrite, "").unwrap();
            assert!(expected.nodes.len() > 60, "{format}: {}", expected.nodes.len());
            assert_shown(&ours, &expected, Kernel::Newest, Access::ReadOnly, format);
        }
    }
}

/// Our mount changes an image and its server is killed. The guest's kernel replays our log and must
/// show the same tree as our recovery.
fn our_log_is_replayed_by_the_guest(name: &str, format: Format) {
    require!(Guest("XFS_FS"), Guest("EXT4_FS"), GuestTree);
    prove(name, Wanted { bytes: 310 << 20, ..Wanted::new(format) }, |place| {
        const LOAD: &str =
            "mkdir a b; for n in $(seq 60); do echo $n >a/$n; ln a/$n b/$n; done; sync .
            for n in $(seq 20 40); do mv a/$n b/moved-$n; rm b/$n; done; sync .";
        shell(place.path(), LOAD);
        place.crash();
        place.clear_away();
        let theirs = place.home().join("theirs");
        testkit::copy_image(place.image(), &theirs);
        succeed(diskwright().arg("recover").arg(place.image()));
        let ours = guest::shown(place.image(), Kernel::Newest, Access::ReadOnly, "").unwrap();
        let shown = guest::shown(&theirs, Kernel::Newest, Access::ReadWrite, "").unwrap();
        assert!(shown.nodes.contains_key(b"b/moved-30".as_slice()));
        let found = differences(&ours, &shown, &Ignore::default());
        assert!(found.is_empty(), "{found:#?}");
    });
}

#[test]
fn the_guest_replays_our_journal_of_ext4() {
    our_log_is_replayed_by_the_guest("the_guest_replays_our_journal_of_ext4", Format::Ext);
}

#[test]
fn the_guest_replays_our_log_of_xfs() {
    our_log_is_replayed_by_the_guest("the_guest_replays_our_log_of_xfs", Format::Xfs);
}
