//! The same source and options produce the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use testkit::{require, scratch};

use crate::build::common::{
    EPOCH, FORMATS, build_command, common_sample, sample_in, small_sample, small_xfs_sample,
    succeed, tar,
};

/// Builds with a fixed epoch. Returns the size and a checksum of the image.
fn image_of(source: &Path, image: &Path, options: &str) -> (u64, u32) {
    let mut command = build_command(source, image, &format!("--force {options}"));
    succeed(command.env("SOURCE_DATE_EPOCH", EPOCH.to_string()));
    testkit::digest(image)
}

#[test]
fn threads_do_not_matter() {
    require!(Tool("tar"));
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &common_sample());
    let image = directory.path().join("image");
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    for source in [&source, &archive] {
        for options in [
            "",
            "--size 500M",
            "--block-size 1K -O ^extent,^64bit,inline_data",
            "--fs xfs",
            "--fs xfs --size 500M --block-size 1K --ag-count 7",
        ] {
            let first = image_of(source, &image, &format!("{options} --threads 1"));
            for threads in ["--threads 2", "--threads 8", ""] {
                let other = image_of(source, &image, &format!("{options} {threads}"));
                assert_eq!(first, other, "{options} {threads}");
            }
        }
    }
}

fn names_as_listed(directory: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Creates the names of a directory again, in reverse order of listing.
fn reverse(directory: &Path, aside: &Path) {
    fs::create_dir(aside).unwrap();
    let time = fs::metadata(directory).unwrap().modified().unwrap();
    let names = names_as_listed(directory);
    for name in &names {
        fs::rename(directory.join(name), aside.join(name)).unwrap();
    }
    for name in &names {
        // tmpfs lists names by age, so this reverses the order.
        fs::rename(aside.join(name), directory.join(name)).unwrap();
    }
    fs::File::open(directory).unwrap().set_modified(time).unwrap();
}

#[test]
fn the_order_of_the_host_does_not_matter() {
    require!(Tool("tar"), Tool("cp"));
    FORMATS.into_iter().for_each(host_order);
}

fn host_order(format: &str) {
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &common_sample());
    let image = directory.path().join("image");
    let first = image_of(&source, &image, format);
    let copy = directory.path().join("copy");
    succeed(Command::new("cp").arg("--archive").arg(&source).arg(&copy));
    assert_eq!(first, image_of(&copy, &image, format), "a copy");
    let before = names_as_listed(&copy.join("wide"));
    reverse(&copy.join("wide"), &directory.path().join("aside"));
    assert_ne!(before, names_as_listed(&copy.join("wide")), "the test has nothing to show");
    assert_eq!(first, image_of(&copy, &image, format), "another order");
    // Access times do not matter either.
    assert_eq!(first, image_of(&source, &image, format));
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
    assert_eq!(first, testkit::digest(&image), "standard input");
}

/// Data replaced during the build is not in the image and does not affect it, including its UUID.
#[test]
fn replaced_data_does_not_affect_the_image() {
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &small_xfs_sample());
    let image = directory.path().join("image");
    let file = source.join("late");
    fs::write(&file, "contents").unwrap();
    let set_time = |sec: i64| {
        let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(sec).unwrap());
        fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    };
    for options in
        ["", "--fs xfs", "--owner 5:6", "--fs xfs --owner 5:6", "--owner 5:6 --chmod *=644"]
    {
        set_time(EPOCH + 1);
        let first = image_of(&source, &image, options);
        // Later than the epoch, as before.
        set_time(EPOCH + 1_000_000);
        assert_eq!(first, image_of(&source, &image, options), "{options}");
        set_time(EPOCH - 1);
        assert_ne!(first, image_of(&source, &image, options), "{options}");
    }
    if rustix::process::geteuid().is_root() {
        set_time(EPOCH + 1);
        let first = image_of(&source, &image, "--owner 5:6");
        std::os::unix::fs::chown(&file, Some(77), Some(78)).unwrap();
        assert_eq!(first, image_of(&source, &image, "--owner 5:6"), "another owner");
        let first = image_of(&source, &image, "");
        std::os::unix::fs::chown(&file, Some(79), Some(78)).unwrap();
        assert_ne!(first, image_of(&source, &image, ""), "another owner");
    }
}
