//! Valid images of many kinds have no findings.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use ext4::{Ext4, OpenOptions};
use testkit::crash::{CrashCase, Judge, Options};
use testkit::operation::Mix;
use testkit::{Mke2fs, Sample, require, sample_tree, scratch};
use vfs::FileSystem;

use super::{assert_sound, check, show};
use crate::changing::ImageParameters;
use crate::changing::crashing::Ext4Target;
use crate::common::image::{GOLDEN, device, golden};

pub(crate) fn file_device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::new(File::open(path).expect("an image")).expect("a file"))
}

#[test]
fn golden_images_have_no_finding_and_are_counted() {
    for (name, _) in GOLDEN {
        let summary = assert_sound(name, device(&golden(name)));
        let fs = Ext4::open(device(&golden(name)), &OpenOptions::default()).unwrap();
        let totals = fs.statfs().unwrap();
        assert!(
            summary.directories >= 5 && summary.inodes > summary.directories,
            "{name}: {summary:?}"
        );
        let cluster = u64::from(fs.geometry().cluster_blocks());
        assert_eq!((summary.blocks - summary.blocks_used) * cluster, totals.blocks_free, "{name}");
    }
}

#[test]
fn the_device_is_not_written() {
    for name in ["ext4", "journal"] {
        let image = golden(name);
        let memory = device(&image);
        check(memory.clone()).unwrap();
        let mut after = vec![0; image.len()];
        memory.read_at(0, &mut after).unwrap();
        assert!(after == image, "{name}");
    }
}

/// Features and options of mke2fs that each change the layout of an image.
const KINDS: &[(&str, &[&str])] = &[
    ("ext2", &["-t", "ext2"]),
    ("ext3", &["-t", "ext3"]),
    ("ext4", &["-t", "ext4"]),
    ("ext4 of 1 KiB", &["-t", "ext4", "-b", "1024"]),
    ("ext4 of 2 KiB", &["-t", "ext4", "-b", "2048", "-I", "128"]),
    ("no checksums", &["-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg"]),
    ("no flex_bg", &["-t", "ext4", "-O", "^flex_bg,^resize_inode"]),
    ("no sparse_super", &["-t", "ext4", "-O", "^sparse_super,^resize_inode", "-b", "1024"]),
    ("sparse_super2", &["-t", "ext4", "-O", "sparse_super2", "-b", "1024"]),
    ("meta_bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024", "-g", "1024"]),
    ("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"]),
    ("inline_data", &["-t", "ext4", "-O", "inline_data", "-I", "512"]),
    ("ea_inode", &["-t", "ext4", "-O", "ea_inode"]),
    ("casefold", &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8"]),
    ("orphan_file", &["-t", "ext4", "-O", "orphan_file"]),
    ("large_dir and mmp", &["-t", "ext4", "-O", "large_dir,mmp,verity,encrypt"]),
    ("no journal", &["-t", "ext4", "-O", "^has_journal,^dir_index"]),
];

/// Counts the usage of the files that mke2fs copied, because mke2fs does not.
pub(crate) fn settle(image: &Path) {
    let output = testkit::command("e2fsck").arg("-fy").arg(image).output().expect("e2fsck");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
}

#[test]
fn images_of_mke2fs_have_no_finding() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let tree = work.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    sample_tree(&tree, &Sample { wide_names: 300, ..Sample::for_block_size(1024) });
    for (name, arguments) in KINDS {
        let image = work.path().join("image");
        let fs_type = arguments[1];
        let fs_type: &'static str = if fs_type == "ext2" {
            "ext2"
        } else if fs_type == "ext3" {
            "ext3"
        } else {
            "ext4"
        };
        Mke2fs::new(fs_type)
            .arguments(arguments[2..].iter().copied())
            .populate(&tree)
            .create(&image, 64 << 20);
        testkit::e2fsck(&image);
        assert_sound(name, file_device(&image));
    }
}

/// Our own check as a judge: of the recovered image, and of the crashed image, whose journal it replays itself.
struct Checker;

impl Judge for Checker {
    fn name(&self) -> &str {
        "our own check"
    }

    fn one_in(&self) -> u64 {
        1
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        for (what, device) in [("crashed", case.crashed), ("recovered", case.recovered)] {
            let (findings, _) =
                check(Arc::new(device.fork())).map_err(|error| error.to_string())?;
            if let Some(first) = findings.first() {
                return Err(format!("{what}: {} findings, {}", findings.len(), show(first)));
            }
        }
        Ok(())
    }
}

#[test]
fn crashed_images_have_no_finding() {
    let mixes = vec![Mix::METADATA, Mix::ALL];
    for layout in [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS, ImageParameters::PLAIN]
    {
        let options = Options { mixes: mixes.clone(), ..Options::default() };
        testkit::assert_survives(&Ext4Target::new(layout), &[&Checker], options, 200);
    }
}

#[test]
fn images_of_diskwright_have_no_finding() {
    for (name, _) in GOLDEN {
        let memory = device(&golden(name));
        let Ok(fs) = Ext4::open_writable(memory.clone(), &OpenOptions::default()) else { continue };
        fill(&fs);
        fs.close().unwrap();
        assert_sound(name, memory);
    }
}

/// Creates files of all kinds for an owner other than root.
fn fill(fs: &Ext4) {
    let new = vfs::NewInode {
        permissions: 0o644,
        uid: 7,
        gid: 8,
        time: vfs::Timestamp { sec: 1_700_000_000, nsec: 0 },
        parent_time: None,
    };
    let root = vfs::Ino(2);
    for number in 0..10 {
        let made = fs.create(root, format!("file-{number}").as_bytes(), &new);
        if let Ok(ino) = made {
            let _ = fs.write(ino, number * 1000, &[7; 3000], None);
            let _ = fs.set_xattr(ino, b"user.some", &[3; 50]);
        }
    }
    let _ = fs.mkdir(root, b"directory", &new);
    let _ = fs.symlink(root, b"link", &[b'l'; 100], &new);
}

#[test]
fn usage_is_counted() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let image = work.path().join("image");
    Mke2fs::new("ext4").features("quota,project").create(&image, 64 << 20);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    let fs = Ext4::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    fill(&fs);
    fs.close().unwrap();
    testkit::e2fsck(&image);
    let summary = assert_sound("quota", device);
    assert!(summary.inodes > 14, "{summary:?}");
}
