//! Images in other formats, checked by the programs that read them.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Sample, require, scratch};

use crate::build::common::{
    build, build_command, fail, names_in, same_every_time, sample_in, small_sample,
    small_xfs_sample, succeed,
};

/// Returns options for small images, each with a sample that fits.
fn small() -> [(&'static str, Sample); 2] {
    [
        ("--fs ext4 --free 40M", small_sample(4096)),
        ("--fs xfs --small --free 40M", small_xfs_sample()),
    ]
}

fn source(directory: &Path, sample: &Sample) -> PathBuf {
    let (source, _) = sample_in(directory, sample);
    // Compressible data, a hole, and written zeros.
    fs::write(source.join("text"), "It was a dark and stormy night. ".repeat(100_000)).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let noise: Vec<u8> = (0..3 << 20).map(|_| random.u8(..)).collect();
    fs::write(source.join("noise"), noise).unwrap();
    fs::write(source.join("zeros"), vec![0; 2 << 20]).unwrap();
    source
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// Creates an image of each file system, in a format and raw.
fn each_format(name: &str, judge: impl Fn(&Path, &Path, &Path)) {
    for (options, sample) in small() {
        let directory = scratch();
        let at = |name: &str| directory.path().join(name);
        let source = source(directory.path(), &sample);
        succeed(&mut same_every_time(&source, &at("raw"), options));
        for (threads, file) in [("1", "one"), ("3", "three")] {
            let options = format!("{options} --output {name} --threads {threads}");
            succeed(&mut same_every_time(&source, &at(file), &options));
        }
        assert!(same(&at("one"), &at("three")), "threads change {name}");
        judge(directory.path(), &at("raw"), &at("one"));
    }
}

#[test]
fn qcow2_is_what_qemu_reads() {
    require!(Tool("qemu-img"));
    each_format("qcow2", |directory, raw, image| {
        let qemu = |arguments: &[&str]| {
            let mut command = testkit::command("qemu-img");
            succeed(command.args(arguments).current_dir(directory)).stdout
        };
        qemu(&["check", "-f", "qcow2", "one"]);
        qemu(&["compare", "-f", "raw", "-F", "qcow2", "raw", "one"]);
        let info: serde_json::Value =
            serde_json::from_slice(&qemu(&["info", "--output=json", "one"])).unwrap();
        assert_eq!(info["virtual-size"].as_u64(), Some(fs::metadata(raw).unwrap().len()));
        assert_eq!(info["format-specific"]["data"]["compat"], "1.1");
        let len = fs::metadata(image).unwrap().len();
        assert!(len + (30 << 20) < fs::metadata(raw).unwrap().len(), "{len} bytes");
    });
}

#[test]
fn android_sparse_is_what_simg2img_reads() {
    require!(Tool("simg2img"));
    each_format("android-sparse", |directory, raw, image| {
        let unpacked = directory.join("unpacked");
        succeed(testkit::command("simg2img").arg(image).arg(&unpacked));
        assert!(same(raw, &unpacked));
        let bytes = fs::read(image).unwrap();
        // Chunks by type: only free space is DONT_CARE.
        let (mut at, mut left_alone) = (28, 0);
        while at < bytes.len() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            if word(at) == 0xcac3 {
                left_alone += u64::from(word(at + 4)) * 4096;
            }
            at += word(at + 8) as usize;
        }
        assert!(left_alone >= 39 << 20, "{left_alone} bytes");
        assert!(left_alone < fs::metadata(raw).unwrap().len() - (6 << 20));
    });
}

#[test]
fn zstd_is_what_zstd_reads() {
    require!(Tool("zstd"));
    each_format("zstd", |directory, raw, image| {
        let unpacked = directory.join("unpacked");
        let mut command = testkit::command("zstd");
        succeed(command.args(["-d", "-q", "-o"]).arg(&unpacked).arg(image));
        assert!(same(raw, &unpacked));
        // Little larger than the output of zstd in one piece.
        let whole = directory.join("whole.zst");
        succeed(testkit::command("zstd").args(["-3", "-q", "-o"]).arg(&whole).arg(raw));
        let (ours, theirs) =
            (fs::metadata(image).unwrap().len(), fs::metadata(&whole).unwrap().len());
        assert!(ours < theirs + theirs / 20, "{ours} bytes, and zstd -3 {theirs}");
        let bytes = fs::read(image).unwrap();
        let frames = u32::from_le_bytes(bytes[bytes.len() - 9..][..4].try_into().unwrap());
        assert_eq!(u64::from(frames), fs::metadata(raw).unwrap().len().div_ceil(1 << 20));
    });
}

#[test]
fn the_report_says_what_was_written() {
    let directory = scratch();
    let (source, image) =
        (source(directory.path(), &small_sample(4096)), directory.path().join("image"));
    let output = succeed(&mut build_command(&source, &image, "--output zst --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["output"], "zstd");
    assert_eq!(report["output_bytes"].as_u64(), Some(fs::metadata(&image).unwrap().len()));
    assert!(report["image_bytes"].as_u64() > report["output_bytes"].as_u64());
    let output = succeed(&mut build_command(&source, &image, "--json --force"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.get("output").is_none() && report.get("verity").is_none());
}

#[test]
fn images_that_exceed_an_output_format_are_refused() {
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    let refused = |options: &str, words: &[&str]| {
        let text = fail(&mut build_command(&source, &image, options), 2);
        for word in words {
            assert!(text.contains(word), "{options}: no {word:?} in {text}");
        }
    };
    refused("--output sparse --size 20001K", &["android-sparse", "4096", "--size"]);
    refused("--output sparse --size 16T", &["4294967295 blocks"]);
    refused("--output zstd --size 129T", &["frames of 1 MiB"]);
    refused("--verity --size 20001K", &["dm-verity", "4096", "--size"]);
    refused("--verity --block-size 1K", &["dm-verity", "--block-size"]);
    refused("--verity --verity-salt abc", &["hexadecimal"]);
    refused(&format!("--verity --verity-salt {}", "ab".repeat(257)), &["257", "256"]);
    refused("--verity-salt ab", &["--verity"]);
    refused(&format!("--verity={}", image.display()), &["--verity", "another"]);
    let dotted = directory.path().join("source/../tree");
    let tree = directory.path().join("tree");
    let both = format!("--verity={} --root-hash-file {}", tree.display(), dotted.display());
    refused(&both, &["--root-hash-file", "another"]);
    assert_eq!(names_in(directory.path()), ["source"]);
    fs::write(&tree, "precious").unwrap();
    refused(&format!("--verity={}", tree.display()), &["--force"]);
    assert_eq!(fs::read(&tree).unwrap(), b"precious");
    assert_eq!(names_in(directory.path()), ["source", "tree"]);
}

#[test]
fn a_failed_build_leaves_neither_file() {
    let directory = scratch();
    let source = source(directory.path(), &small_sample(4096));
    let [image, tree, root] = ["image", "tree", "root"].map(|name| directory.path().join(name));
    let options = format!(
        "--size 2M --output qcow2 --verity={} --root-hash-file {}",
        tree.display(),
        root.display()
    );
    fail(&mut build_command(&source, &image, &options), 4);
    assert_eq!(names_in(directory.path()), ["source"]);
    build(&source, &image, &options.replace("--size 2M", ""));
    assert_eq!(names_in(directory.path()), ["image", "root", "source", "tree"]);
}
