//! Images with hash trees, checked by `veritysetup`, and files with fs-verity, checked by
//! `fsverity`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{LoopDevice, require, scratch};

use crate::build::common::{
    build_command, fail, names_in, same_every_time, sample_in, small_sample, small_xfs_sample,
    succeed,
};

use crate::program::diskwright;

/// Creates a source for an image with these options.
fn source(directory: &Path, options: &str) -> PathBuf {
    let is_xfs = options.contains("xfs");
    let sample = if is_xfs { small_xfs_sample() } else { small_sample(4096) };
    sample_in(directory, &sample).0
}

/// Builds an image. Returns the output of `--json`.
fn built(source: &Path, image: &Path, options: &str) -> Value {
    let mut command = same_every_time(source, image, options);
    serde_json::from_slice(&succeed(command.arg("--json")).stdout).unwrap()
}

fn verify(image: &Path, tree: &Path, root_hash: &str, offset: u64) -> bool {
    let mut command = testkit::command("veritysetup");
    command.arg("verify").arg(image).arg(tree).arg(root_hash);
    command.arg(format!("--hash-offset={offset}")).output().unwrap().status.success()
}

#[test]
fn a_tree_behind_the_file_system() {
    require!(Tool("veritysetup"), Tool("e2fsck"), Tool("xfs_repair"));
    for format in ["--fs ext4 --size 32M", "--fs ext4 --free 20M", "--fs xfs --small --free 5M"] {
        let directory = scratch();
        let (source, image) = (source(directory.path(), format), directory.path().join("image"));
        let report = built(&source, &image, &format!("{format} --verity --threads 1"));
        let verity = &report["verity"];
        let (root, offset) =
            (verity["root_hash"].as_str().unwrap(), verity["hash_offset"].as_u64().unwrap());
        assert_eq!(report["image_bytes"].as_u64(), Some(offset));
        assert_eq!(verity["data_blocks"].as_u64(), Some(offset / 4096));
        let end = offset + verity["hash_bytes"].as_u64().unwrap();
        assert_eq!(fs::metadata(&image).unwrap().len(), end);
        assert!(verify(&image, &image, root, offset), "{format}");
        testkit::judge(&image);
        let again = directory.path().join("again");
        built(&source, &again, &format!("{format} --verity --threads 3"));
        assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
        // A byte of the file system, and one of the tree.
        for at in [offset - 4096 - 1, offset + 4096 + 40] {
            let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(!verify(&image, &image, root, offset), "byte {at} counts for nothing");
            file.write_all_at(&byte, at).unwrap();
        }
        assert!(verify(&image, &image, root, offset));
    }
}

#[test]
fn a_tree_in_a_file_of_its_own() {
    require!(Tool("veritysetup"));
    let directory = scratch();
    let source = source(directory.path(), "");
    let [image, plain, tree, root] =
        ["image", "plain", "tree", "root"].map(|name| directory.path().join(name));
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    for salt in ["-", "00ff", &"5a".repeat(256)] {
        let options = format!(
            "--force --verity={} --verity-salt {salt} --verity-uuid {uuid} --root-hash-file {}",
            tree.display(),
            root.display()
        );
        let report = built(&source, &image, &options);
        assert_eq!(report["verity"]["hash_offset"], 0);
        assert_eq!(report["verity"]["salt"], salt.trim_start_matches('-'));
        let hash = fs::read_to_string(&root).unwrap();
        assert_eq!(report["verity"]["root_hash"].as_str(), Some(hash.as_str()));
        assert!(verify(&image, &tree, &hash, 0), "salt {salt}");
        let mut command = testkit::command("veritysetup");
        command.arg("verify").arg(&image).arg(&tree).arg("--root-hash-file").arg(&root);
        succeed(&mut command);
        let dump = succeed(testkit::command("veritysetup").arg("dump").arg(&tree)).stdout;
        assert!(String::from_utf8_lossy(&dump).contains(uuid));
        // The tree equals that of veritysetup.
        let theirs = directory.path().join("theirs");
        let mut command = testkit::command("veritysetup");
        command.arg("format").arg(&image).arg(&theirs);
        succeed(command.arg(format!("--salt={salt}")).arg(format!("--uuid={uuid}")));
        assert!(fs::read(&tree).unwrap() == fs::read(&theirs).unwrap(), "salt {salt}");
    }
    built(&source, &plain, "");
    assert_eq!(fs::metadata(&image).unwrap().len(), fs::metadata(&plain).unwrap().len());
}

#[test]
fn a_tree_in_other_formats() {
    require!(Tool("veritysetup"), Tool("simg2img"), Tool("zstd"), Tool("qemu-img"));
    let directory = scratch();
    let source = source(directory.path(), "");
    let at = |name: &str| directory.path().join(name);
    for (output, program, arguments) in [
        ("android-sparse", "simg2img", &["packed", "raw"][..]),
        ("zstd", "zstd", &["-d", "-q", "-f", "-o", "raw", "packed"]),
        ("qcow2", "qemu-img", &["convert", "-O", "raw", "packed", "raw"]),
    ] {
        let report =
            built(&source, &at("packed"), &format!("--force --free 9M --verity --output {output}"));
        let _ = fs::remove_file(at("raw"));
        succeed(testkit::command(program).args(arguments).current_dir(directory.path()));
        let root = report["verity"]["root_hash"].as_str().unwrap();
        let offset = report["verity"]["hash_offset"].as_u64().unwrap();
        assert!(verify(&at("raw"), &at("raw"), root, offset), "{output}");
    }
}

/// dm-verity creates devices with 4096-byte sectors, like this loop device.
#[test]
fn kernels_mount_it_from_large_sectors() {
    require!(Tool("losetup"), Mount("ext4"), Mount("xfs"), Loop);
    for format in ["--fs ext4 --size 32M", "--fs xfs --small --free 5M"] {
        let directory = scratch();
        let (source, image) = (source(directory.path(), format), directory.path().join("image"));
        let tree = directory.path().join("tree");
        built(&source, &image, &format!("{format} --verity={}", tree.display()));
        let device = LoopDevice::with_options(&image, &["--read-only", "--sector-size", "4096"]);
        let place = directory.path().join("mounted");
        fs::create_dir(&place).unwrap();
        let mounted = testkit::command("mount")
            .args(["-o", "ro", device.name()])
            .arg(&place)
            .output()
            .unwrap();
        let names = names_in(&place).len();
        if mounted.status.success() {
            testkit::umount_when_free(&place);
        }
        drop(device);
        assert!(mounted.status.success(), "{format}: {mounted:?}");
        assert!(names > 3);
    }
}

/// Sizes of files whose trees have no, one, two and three levels, or short blocks.
const SIZES: [usize; 8] = [0, 1, 4096, 4097, 65_536, 128 * 4096, 128 * 4096 + 1, 5_000_000];

fn protected_source(directory: &Path) -> PathBuf {
    let source = directory.join("files");
    fs::create_dir_all(source.join("bin/deep")).unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    for (number, size) in SIZES.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
        fs::write(source.join(format!("bin/file-{number}")), bytes).unwrap();
    }
    fs::hard_link(source.join("bin/file-3"), source.join("bin/deep/other")).unwrap();
    fs::write(source.join("plain"), "not protected").unwrap();
    // Data and a hole.
    let sparse = fs::File::create(source.join("bin/sparse")).unwrap();
    sparse.set_len(9_000_000).unwrap();
    sparse.write_all_at(b"in the middle", 4_000_000).unwrap();
    source
}

#[test]
fn fs_verity_has_the_digests_and_trees_of_its_own_tool() {
    require!(Tool("fsverity"), Tool("e2fsck"), Tool("debugfs"));
    for (block_size, features) in
        [(4096, ""), (4096, "-O inline_data,^has_journal"), (1024, ""), (2048, "-O ^flex_bg")]
    {
        let directory = scratch();
        let source = protected_source(directory.path());
        let image = directory.path().join("image");
        let options =
            format!("--block-size {block_size} {features} --fs-verity /bin/* --fs-verity **/other");
        let report = built(&source, &image, &format!("{options} --threads 1"));
        testkit::judge(&image);
        succeed(diskwright().arg("check").arg(&image));
        let files = report["fs_verity"].as_array().unwrap();
        assert_eq!(files.len(), SIZES.len() + 2);
        for file in files {
            let path = file["path"].as_str().unwrap();
            let host = source.join(path.trim_start_matches('/'));
            let [tree, descriptor] = ["tree", "descriptor"].map(|name| directory.path().join(name));
            let mut command = testkit::command("fsverity");
            command.args(["digest", "--compact", &format!("--block-size={block_size}")]);
            command.arg(format!("--out-merkle-tree={}", tree.display()));
            command.arg(format!("--out-descriptor={}", descriptor.display()));
            let digest = String::from_utf8(succeed(command.arg(&host)).stdout).unwrap();
            assert_eq!(file["digest"], format!("sha256:{}", digest.trim()), "{path}");
            let tree = fs::read(&tree).unwrap();
            let descriptor = fs::read(&descriptor).unwrap();
            let stored = stored_metadata(&image, path, block_size, &host);
            assert!(stored[..tree.len()] == tree, "{path}");
            let rest = &stored[tree.len().next_multiple_of(block_size)..];
            assert_eq!(rest.len(), block_size, "{path}");
            assert!(rest[..descriptor.len()] == descriptor, "{path}");
            assert_eq!(rest[block_size - 4..], (descriptor.len() as u32).to_le_bytes());
            let read = succeed(diskwright().arg("cat").arg(&image).arg(path)).stdout;
            assert!(read == fs::read(&host).unwrap(), "{path}");
        }
        let again = directory.path().join("again");
        built(&source, &again, &format!("{options} --threads 4"));
        assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
    }
}

/// Returns the data behind a file's contents, located by the extents from debugfs.
fn stored_metadata(image: &Path, path: &str, block_size: usize, host: &Path) -> Vec<u8> {
    let start = (fs::metadata(host).unwrap().len() as usize).next_multiple_of(65_536) / block_size;
    let shown = testkit::debugfs(image, &format!("dump_extents {path}"));
    let (file, mut bytes) = (fs::File::open(image).unwrap(), Vec::new());
    for line in shown.lines().skip(1) {
        // Level, entry, logical range, physical range; inner nodes of the tree are skipped.
        let numbers: Vec<usize> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        let [level, depth, _, _, first, last, physical, ..] = numbers[..] else { continue };
        if level != depth || last < start {
            continue;
        }
        let skipped = start.saturating_sub(first);
        let mut part = vec![0; (last + 1 - first - skipped) * block_size];
        file.read_exact_at(&mut part, ((physical + skipped) * block_size) as u64).unwrap();
        bytes.extend(part);
    }
    bytes
}

#[test]
fn protected_files_are_not_changed() {
    require!(Tool("e2fsck"));
    let directory = scratch();
    let source = protected_source(directory.path());
    let image = directory.path().join("image");
    built(&source, &image, "--free 5M --fs-verity bin/**");
    let before = fs::read(&image).unwrap();
    for arguments in [&["truncate", "--size", "5"][..], &["truncate", "--size", "9M"]] {
        let mut command = diskwright();
        command.args(arguments).arg(&image).arg("/bin/file-3");
        let text = fail(&mut command, 1);
        assert!(text.contains("fs-verity"), "{text}");
    }
    let mut command = diskwright();
    command.arg("lsattr").arg(&image).arg("/bin/file-3");
    assert!(String::from_utf8_lossy(&succeed(&mut command).stdout).contains('V'));
    succeed(diskwright().arg("rm").arg(&image).arg("/bin/file-7"));
    testkit::judge(&image);
    assert!(fs::read(&image).unwrap() != before);
    assert_eq!(names_in(directory.path()), ["files", "image"]);
}

#[test]
fn files_that_fs_verity_cannot_protect_are_refused() {
    let directory = scratch();
    let source = protected_source(directory.path());
    let image = directory.path().join("image");
    let text = fail(&mut build_command(&source, &image, "--fs-verity bin/none*"), 1);
    assert!(text.contains("bin/none*"), "{text}");
    let text = fail(&mut build_command(&source, &image, "--fs xfs --small --fs-verity *"), 2);
    assert!(text.contains("--fs-verity"), "{text}");
    let text = fail(&mut build_command(&source, &image, "-O ^verity --fs-verity plain"), 2);
    assert!(text.contains("feature verity"), "{text}");
    let text = fail(&mut build_command(&source, &image, "-O ^extent,^64bit --fs-verity plain"), 2);
    assert!(text.contains("extent"), "{text}");
    assert_eq!(names_in(directory.path()), ["files"]);
}
