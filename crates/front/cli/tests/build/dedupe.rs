//! Contents that share blocks, checked by xfs_repair, by the kernel's view, and by writing to one
//! of the copies.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use testkit::{Ignore, KernelMount, MountOptions, Tree, assert_same, require, scratch};

use crate::build::common::{build_command, fail, mount, same_every_time, succeed, tar};

const OPTIONS: &str = "--fs xfs --size 400M";

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

/// Creates a source with equal files, files with equal blocks, and files that differ slightly.
fn source(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir_all(source.join("b")).unwrap();
    let large = noise(1, 3_000_001);
    for name in ["a", "b/a", "z"] {
        fs::write(source.join(name), &large).unwrap();
    }
    // Equal blocks elsewhere, in another order, and within one file.
    let mixed: Vec<u8> = [&large[8192..40_960], &noise(2, 5000)[..], &large[..4096]].concat();
    fs::write(source.join("mixed"), &mixed).unwrap();
    let aligned: Vec<u8> =
        [&noise(3, 4096)[..], &large[8192..409_600], &large[8192..409_600], b"end"].concat();
    fs::write(source.join("aligned"), aligned).unwrap();
    let mut nearly = large.clone();
    nearly[1_500_000] ^= 1;
    fs::write(source.join("nearly"), &nearly).unwrap();
    for number in 0..40_u8 {
        fs::write(source.join(format!("small{number}")), vec![number % 4; 3000]).unwrap();
        fs::write(source.join(format!("empty{number}")), []).unwrap();
    }
    // The same data around a hole, and around written zeros.
    for name in ["hole1", "hole2"] {
        let file = fs::File::create(source.join(name)).unwrap();
        file.write_all_at(&large[..70_000], 0).unwrap();
        file.write_all_at(&large[..70_000], 1 << 20).unwrap();
        file.set_len(3 << 20).unwrap();
    }
    fs::write(source.join("zeros"), vec![0; 1 << 20]).unwrap();
    source
}

/// Builds an image. Returns its JSON report.
fn built(source: &Path, image: &Path, options: &str) -> serde_json::Value {
    let options = format!("{OPTIONS} --json {options}");
    let output = succeed(&mut same_every_time(source, image, &options));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shared(report: &serde_json::Value) -> u64 {
    report["shared_bytes"].as_u64().unwrap()
}

/// Returns the used space in units of 512 bytes.
fn used(image: &Path) -> u64 {
    let mounted = mount(image);
    let totals = rustix::fs::statvfs(mounted.path()).unwrap();
    let used = (totals.f_blocks - totals.f_bfree) * totals.f_frsize / 512;
    mounted.unmount();
    used
}

/// Returns the tree that the kernel shows.
fn tree(image: &Path) -> Tree {
    let mounted = mount(image);
    let tree = Tree::of(mounted.path());
    mounted.unmount();
    tree
}

#[test]
fn equal_files_share_blocks() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let source = source(home.path());
    let image = |name: &str| home.path().join(name);
    let (plain, files, blocks) = (image("plain"), image("files"), image("blocks"));
    assert_eq!(shared(&built(&source, &plain, "")), 0);
    let by_file = shared(&built(&source, &files, "--dedupe"));
    // The host reports data in units of its own blocks.
    let around_holes = 2 * 70_000_u64.next_multiple_of(4096);
    assert_eq!(by_file, 2 * 3_000_001 + 36 * 3000 + around_holes);
    let by_block = shared(&built(&source, &blocks, "--dedupe=blocks"));
    assert!(by_block > by_file + 2_995_000 + 2 * 401_408 + 1_000_000, "{by_block} and {by_file}");
    let ignore = Ignore::default();
    for image in [&files, &blocks] {
        testkit::xfs_repair(image);
        assert_same(&tree(&plain), &tree(image), &ignore);
    }
    let [plain, files, blocks] = [&plain, &files, &blocks].map(|image| used(image));
    assert!(files + by_file / 512 < plain + 1000, "{files} of {plain}");
    assert!(blocks + by_block / 512 < plain + 1000, "{blocks} of {plain}");
}

#[test]
fn small_and_large_blocks_are_shared() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let source = source(home.path());
    let (plain, image) = (home.path().join("plain"), home.path().join("image"));
    for options in ["--block-size 1K", "--block-size 64K", "--features ^rmapbt", "--ag-count 13"] {
        built(&source, &plain, options);
        for dedupe in ["--dedupe=files", "--dedupe=blocks"] {
            let report = built(&source, &image, &format!("{options} {dedupe} --force"));
            assert!(shared(&report) > 5_000_000, "{options} {dedupe}: {report}");
            testkit::xfs_repair(&image);
            assert_same(&tree(&plain), &tree(&image), &Ignore::default());
        }
        fs::remove_file(&plain).unwrap();
    }
}

#[test]
fn a_write_to_one_copy_leaves_the_others() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let source = source(home.path());
    let image = home.path().join("image");
    for dedupe in ["--dedupe", "--dedupe=blocks"] {
        built(&source, &image, &format!("{dedupe} --force"));
        let mounted = KernelMount::new(&image, &MountOptions::read_write("xfs"));
        let at = mounted.path().join("b/a");
        let file = fs::File::options().write(true).open(&at).unwrap();
        file.write_all_at(&[7; 10_000], 4000).unwrap();
        file.set_len(1_000_000).unwrap();
        drop(file);
        fs::remove_file(mounted.path().join("a")).unwrap();
        fs::File::options().append(true).open(&at).unwrap().write_all(b"more").unwrap();
        mounted.unmount();
        testkit::xfs_repair(&image);
        let mounted = mount(&image);
        for name in ["z", "nearly", "mixed", "aligned", "small3", "hole1", "hole2"] {
            let (found, expected) = (mounted.path().join(name), source.join(name));
            assert!(fs::read(found).unwrap() == fs::read(expected).unwrap(), "{dedupe}: {name}");
        }
        assert_eq!(fs::metadata(mounted.path().join("b/a")).unwrap().size(), 1_000_004);
        mounted.unmount();
    }
}

/// Sharing does not depend on the kind of source or on the number of threads.
#[test]
fn the_same_is_shared_however_it_is_read() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let source = source(home.path());
    let archive = home.path().join("source.tar");
    tar(&source, &archive, &[]);
    let image = |name: &str| home.path().join(name);
    for dedupe in ["--dedupe", "--dedupe=blocks"] {
        let first = image("first");
        built(&source, &first, &format!("{dedupe} --threads 1 --force"));
        let expected = fs::read(&first).unwrap();
        for threads in [2, 5] {
            let other = image("other");
            built(&source, &other, &format!("{dedupe} --threads {threads} --force"));
            assert!(fs::read(&other).unwrap() == expected, "{threads} threads");
        }
        drop(expected);
        let from_tar = built(&archive, &image("tar"), &format!("{dedupe} --force"));
        // Sequentially, from a pipe.
        let options = format!("{OPTIONS} --json --force {dedupe}");
        let mut piped = same_every_time(Path::new("-"), &image("pipe"), &options);
        piped.stdin(fs::File::open(&archive).unwrap());
        let from_pipe: serde_json::Value =
            serde_json::from_slice(&succeed(&mut piped).stdout).unwrap();
        assert_eq!(shared(&from_tar), shared(&from_pipe), "{dedupe}");
        assert!(shared(&from_tar) > 5_000_000);
        for name in ["tar", "pipe"] {
            testkit::xfs_repair(image(name));
            let ignore = Ignore { holes: true, ..Ignore::default() };
            assert_same(&tree(&first), &tree(&image(name)), &ignore);
        }
    }
}

#[test]
fn sharing_takes_a_file_system_that_can() {
    let home = scratch();
    let source = source(home.path());
    let image = home.path().join("image");
    let said = fail(&mut build_command(&source, &image, "--dedupe"), 2);
    assert!(said.contains("--fs xfs"), "{said}");
    let without = "--fs xfs --features ^reflink --dedupe=blocks";
    let said = fail(&mut build_command(&source, &image, without), 2);
    assert!(said.contains("reflink"), "{said}");
    let output = build_command(&source, &image, "--fs xfs --dedupe=bytes").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("files, blocks"), "{said}");
}

/// Runs `dedupe` on an image. Returns its JSON report.
fn deduped(image: &Path, options: &[&str]) -> serde_json::Value {
    let mut dedupe = crate::program::diskwright();
    let output = succeed(dedupe.arg("dedupe").arg(image).args(options).arg("--json"));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn contents_of_an_existing_image_are_shared() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let source = source(home.path());
    let image = home.path().join("image");
    for options in ["", "--block-size 1K", "--features ^rmapbt"] {
        built(&source, &image, &format!("--force {options}"));
        let (expected, full) = (tree(&image), used(&image));
        let mut shared_before = 0;
        // The second run of each kind finds nothing.
        for (arguments, shared_min) in [(&[][..], 2 * 3_000_001), (&["--blocks"][..], 2_995_000)] {
            let report = deduped(&image, arguments);
            let [shared, freed] = ["shared", "freed"].map(|name| report[name].as_u64().unwrap());
            assert!(shared >= shared_min && freed >= shared_min, "{options}: {report}");
            shared_before += freed;
            testkit::xfs_repair(&image);
            assert_same(&expected, &tree(&image), &Ignore { holes: true, ..Ignore::default() });
            assert!(used(&image) + shared_before / 512 < full + 1000, "{options}: {report}");
            let again = deduped(&image, arguments);
            assert_eq!(again["shared"], 0, "{options}: {again}");
        }
        // Writes copy shared blocks.
        let mut cp = crate::program::diskwright();
        let host = home.path().join("host");
        fs::write(&host, b"short").unwrap();
        succeed(cp.arg("cp").arg(&host).arg(format!("{}:/b/a", image.display())));
        testkit::xfs_repair(&image);
        let mounted = mount(&image);
        for name in ["a", "z", "nearly", "mixed", "aligned", "hole2"] {
            let (found, expected) = (mounted.path().join(name), source.join(name));
            assert!(fs::read(found).unwrap() == fs::read(expected).unwrap(), "{options}: {name}");
        }
        mounted.unmount();
    }
}

#[test]
fn only_files_below_a_path_are_shared() {
    let home = scratch();
    let source = source(home.path());
    let image = home.path().join("image");
    built(&source, &image, "");
    assert_eq!(deduped(&image, &["/b"])["shared"], 0);
    assert_eq!(deduped(&image, &["/b"])["files"], 1);
    let ext4 = home.path().join("ext4");
    succeed(&mut build_command(&source, &ext4, "--fs ext4"));
    let mut dedupe = crate::program::diskwright();
    let said = fail(dedupe.arg("dedupe").arg(&ext4), 3);
    assert!(said.contains("XFS image with the feature reflink"), "{said}");
}
