//! The same source and options give the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

use oracle::{require, scratch};

use crate::common::{EPOCH, build_command, sample_in, small_sample, succeed, tar};

/// Builds with a fixed epoch and returns a checksum of the image.
fn image_of(source: &Path, image: &Path, options: &str) -> (u64, u32) {
    let mut command = build_command(source, image, &format!("--force {options}"));
    succeed(command.env("SOURCE_DATE_EPOCH", EPOCH.to_string()));
    let bytes = fs::read(image).unwrap();
    (bytes.len() as u64, crc32c::crc32c(&bytes))
}

#[test]
fn threads_do_not_matter() {
    require!(Tool("tar"));
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &small_sample(4096));
    let image = directory.path().join("image");
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    for source in [&source, &archive] {
        for options in ["", "--size 500M", "--block-size 1K -O ^extent,^64bit,inline_data"] {
            let first = image_of(source, &image, &format!("{options} --threads 1"));
            for threads in ["--threads 2", "--threads 8", ""] {
                let other = image_of(source, &image, &format!("{options} {threads}"));
                assert_eq!(first, other, "{options} {threads}");
            }
        }
    }
}

#[test]
fn the_order_of_the_host_does_not_matter() {
    require!(Tool("tar"), Tool("cp"));
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &small_sample(4096));
    let image = directory.path().join("image");
    let first = image_of(&source, &image, "");
    // tmpfs lists names by when they were made, so two copies in a row list them differently.
    let copy = directory.path().join("copy");
    let copies = [copy.with_extension("1"), copy.with_extension("2")];
    for (from, to) in [(&source, &copies[0]), (&copies[0], &copies[1])] {
        succeed(Command::new("cp").arg("--archive").arg(from).arg(to));
        assert_eq!(first, image_of(to, &image, ""), "{}", to.display());
    }
    let order = |path: &Path| {
        let entries = fs::read_dir(path.join("wide")).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let orders = [order(&source), order(&copies[0]), order(&copies[1])];
    assert!(orders[0] != orders[1] || orders[1] != orders[2], "the test has nothing to show");
    // Nor does having been read.
    assert_eq!(first, image_of(&source, &image, ""));
}

#[test]
fn compression_does_not_matter() {
    require!(Tool("tar"), Tool("zstd"));
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &small_sample(4096));
    let image = directory.path().join("image");
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    let first = image_of(&archive, &image, "");
    for more in [&["--gzip"], &["--zstd"]] {
        let packed = directory.path().join("packed");
        tar(&source, &packed, more);
        assert_eq!(first, image_of(&packed, &image, ""), "{more:?}");
    }
    let mut command = build_command(Path::new("-"), &image, "--force");
    command.env("SOURCE_DATE_EPOCH", EPOCH.to_string());
    succeed(command.stdin(fs::File::open(&archive).unwrap()));
    let bytes = fs::read(&image).unwrap();
    assert_eq!(first, (bytes.len() as u64, crc32c::crc32c(&bytes)), "standard input");
}
