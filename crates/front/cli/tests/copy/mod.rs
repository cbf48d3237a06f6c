//! `diskwright copy`: copies in all formats, on devices and of disks, with the judges of others.

mod refusals;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ignore, KernelMount, LoopDevice, MountOptions, Tree, assert_same};

use crate::disk;
use crate::program::{diskwright, fails, ok};

const FORMATS: [(&str, &str); 2] = [("ext4", ""), ("xfs", "--small")];
const MIB: u64 = 1 << 20;

/// Creates an image of 128 MiB with files, and free blocks with old contents.
fn image(fs_type: &str, small: &str) -> TempDir {
    let home = testkit::scratch();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("kept/empty")).unwrap();
    fs::create_dir_all(tree.join("removed")).unwrap();
    for nth in 0..40_u64 {
        let name = if nth % 2 == 0 { "kept" } else { "removed" };
        let mut bytes = vec![nth as u8 + 1; (200_000 + nth * 1000) as usize];
        bytes[..8].copy_from_slice(&nth.to_le_bytes());
        fs::write(tree.join(name).join(nth.to_string()), bytes).unwrap();
    }
    let sparse = File::create(tree.join("kept/sparse")).unwrap();
    sparse.write_all_at(b"far", 100 * MIB).unwrap();
    ok(home.path(), &format!("build tree image.img --fs {fs_type} {small} --size 128M"));
    ok(home.path(), "rm -r image.img /removed");
    home
}

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(dir, &format!("{line} --json"))).unwrap()
}

/// Returns the ranges of bytes in use.
fn used(dir: &Path, image: &str) -> Vec<(u64, u64)> {
    let text = ok(dir, &format!("map {image} --format ddrescue"));
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap();
    let lines = text.lines().filter(|line| line.ends_with('+'));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| (number(words[0]), number(words[1]))).collect()
}

/// Checks that a file has the bytes in use of the image, and zeros elsewhere.
fn assert_copied(dir: &Path, copy: &str) {
    let (image, copy) =
        (fs::read(dir.join("image.img")).unwrap(), fs::read(dir.join(copy)).unwrap());
    let mut expected = vec![0; image.len()];
    for (start, len) in used(dir, "image.img") {
        let range = start as usize..(start + len) as usize;
        expected[range.clone()].copy_from_slice(&image[range]);
    }
    assert_eq!(copy.len(), image.len());
    assert!(copy == expected && copy != image);
}

#[test]
fn a_copy_in_each_format_has_the_blocks_in_use() {
    testkit::require!(Tool("qemu-img"), Tool("zstd"), Tool("e2fsck"), Tool("xfs_repair"));
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        let raw = json(dir, "copy image.img raw.img");
        assert_copied(dir, "raw.img");
        testkit::judge(dir.join("raw.img"));
        let stored = fs::metadata(dir.join("raw.img")).unwrap().blocks() * 512;
        assert!(stored <= raw["used_bytes"].as_u64().unwrap(), "{stored} {raw}");
        let info = json(dir, "info image.img");
        let blocks = info["blocks"].as_u64().unwrap() - info["blocks_free"].as_u64().unwrap();
        let counted = blocks * info["block_size"].as_u64().unwrap();
        // XFS counts blocks that are reserved for its trees as used.
        let used = raw["used_bytes"].as_u64().unwrap();
        assert!(used <= counted && used + 2 * MIB > counted, "{used} {counted}");
        for (line, name) in [
            ("copy image.img a.qcow2 --output qcow2 --state q.state", "a.qcow2"),
            ("copy image.img a.zst --output zstd --state z.state", "a.zst"),
            ("copy image.img b.img --state r.state", "b.img"),
        ] {
            assert_eq!(json(dir, line)["sha256"], raw["sha256"], "{name}");
        }
        let state = fs::read(dir.join("r.state")).unwrap();
        assert!(
            ["q.state", "z.state"].iter().all(|name| fs::read(dir.join(name)).unwrap() == state)
        );
        assert!(fs::read(dir.join("b.img")).unwrap() == fs::read(dir.join("raw.img")).unwrap());
        for arguments in [&["check", "a.qcow2"][..], &["compare", "a.qcow2", "raw.img"]] {
            let mut qemu = testkit::command("qemu-img");
            let said = qemu.current_dir(dir).args(arguments).output().unwrap();
            assert!(said.status.success(), "{said:?}");
        }
        let mut zstd = testkit::command("zstd");
        assert!(
            zstd.current_dir(dir).args(["-qd", "a.zst", "-o", "z.img"]).status().unwrap().success()
        );
        assert!(fs::read(dir.join("z.img")).unwrap() == fs::read(dir.join("raw.img")).unwrap());
        let difference =
            diskwright().current_dir(dir).args(["diff", "image.img", "raw.img"]).output();
        let difference = difference.unwrap();
        assert!(difference.status.success() && difference.stdout.is_empty(), "{difference:?}");
    }
}

#[test]
fn the_kernel_shows_the_same_files_on_the_copy() {
    testkit::require!(Root, Loop, Mount("ext4"), Mount("xfs"));
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        ok(dir, "copy image.img copy.img");
        let tree = |name: &str| {
            let options = MountOptions::read_only(fs_type);
            let mounted = KernelMount::new(dir.join(name), &options);
            let tree = Tree::of(mounted.path());
            mounted.unmount();
            tree
        };
        assert_same(&tree("image.img"), &tree("copy.img"), &Ignore::default());
    }
}

/// The copies of e2image and partclone contain the same blocks.
#[test]
fn other_programs_copy_the_same() {
    testkit::require!(Tool("e2image"), Tool("partclone.extfs"), Tool("partclone.xfs"));
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        ok(dir, "copy image.img copy.img");
        let ours = fs::read(dir.join("copy.img")).unwrap();
        let same = |name: &str| {
            let theirs = fs::read(dir.join(name)).unwrap();
            // Blocks that only one of them copies are zeros in the other.
            let blocks = ours.chunks(4096).zip(theirs.chunks(4096));
            let mut only = [0, 0];
            for (mine, other) in blocks.filter(|(mine, other)| mine != other) {
                let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
                assert!(is_zero(mine) || is_zero(other), "{name}: different contents");
                only[usize::from(is_zero(mine))] += 1;
            }
            only
        };
        if fs_type == "ext4" {
            let mut e2image = testkit::command("e2image");
            let said = e2image.current_dir(dir).args(["-ra", "image.img", "e2image.img"]).output();
            assert!(said.as_ref().unwrap().status.success(), "{said:?}");
            // e2image copies the blocks of the journal that are in use only.
            let [ours_only, theirs_only] = same("e2image.img");
            assert_eq!(theirs_only, 0, "{ours_only} only in ours");
        }
        let program = if fs_type == "ext4" { "partclone.extfs" } else { "partclone.xfs" };
        File::create(dir.join("partclone.img")).unwrap().set_len(ours.len() as u64).unwrap();
        let mut partclone = testkit::command(program);
        partclone.current_dir(dir).args(["-b", "-q", "-F", "-C", "-L", "log", "-s", "image.img"]);
        let said = partclone.args(["-O", "partclone.img"]).stdin(Stdio::null()).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let [ours_only, theirs_only] = same("partclone.img");
        assert!(theirs_only == 0 && ours_only < 300, "{ours_only} {theirs_only}");
    }
}

#[test]
fn a_partition_is_copied_to_a_device_and_changed_there() {
    testkit::require!(Root, Loop, Tool("losetup"), Tool("e2fsck"), Tool("xfs_repair"));
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        disk::with_partition(&dir.join("disk.img"), &fs::read(dir.join("image.img")).unwrap());
        // Old contents of the device, also where the image has zeros in use.
        fs::write(dir.join("device"), vec![0xa5; (128 * MIB + 4096) as usize]).unwrap();
        let device = LoopDevice::new(dir.join("device"));
        let line = format!("copy disk.img --partition 1 {} --state 0.state", device.name());
        assert!(fails(dir, &line, 4).contains("--force"));
        ok(dir, &format!("{line} --force"));
        let copied = fs::read(dir.join("device")).unwrap();
        let image = fs::read(dir.join("image.img")).unwrap();
        for (start, len) in used(dir, "image.img") {
            let range = start as usize..(start + len) as usize;
            assert!(copied[range.clone()] == image[range], "{start}+{len}");
        }
        assert!(copied.ends_with(&[0xa5; 4096]));
        drop(device);
        File::options().write(true).open(dir.join("device")).unwrap().set_len(128 * MIB).unwrap();
        testkit::judge(dir.join("device"));
        // An increment of the same partition.
        fs::write(dir.join("new"), vec![1; 300_000]).unwrap();
        ok(dir, "cp new image.img:/kept/2");
        disk::with_partition(&dir.join("disk.img"), &fs::read(dir.join("image.img")).unwrap());
        ok(dir, "copy disk.img --partition 1 1.inc --since 0.state");
        let device = LoopDevice::new(dir.join("device"));
        ok(dir, &format!("copy --restore 1.inc {}", device.name()));
        let read = ok(dir, &format!("check {}", device.name()));
        assert!(read.contains("clean"), "{read}");
        drop(device);
        testkit::judge(dir.join("device"));
        assert_eq!(ok(dir, "cat device /kept/2").len(), 300_000);
    }
}
