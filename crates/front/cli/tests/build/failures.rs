//! Builds that fail.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use testkit::{Tree, require, scratch};

use crate::build::common::{
    FORMATS, build, build_command, fail, judge, names_in, sample_in, small_sample, succeed, tar,
};

/// Creates a source of 8 MiB in 8 files.
fn plain_source(directory: &Path) -> PathBuf {
    let source = directory.join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..8_u8 {
        fs::write(source.join(format!("file-{n}")), vec![n + 1; 1 << 20]).unwrap();
    }
    source
}

#[test]
fn a_source_that_does_not_fit() {
    require!(Tool("tar"));
    let directory = scratch();
    let source = plain_source(directory.path());
    tar(&source, &directory.path().join("source.tar"), &[]);
    let image = directory.path().join("image");
    for from in ["source", "source.tar"] {
        for threads in ["--threads 1", "--threads 4"] {
            let from = directory.path().join(from);
            let text = fail(&mut build_command(&from, &image, &format!("--size 6M {threads}")), 4);
            assert!(text.contains("file-") && text.contains("--size"), "{text}");
        }
    }
    let large = scratch();
    for n in 0..24_u8 {
        fs::write(large.path().join(format!("file-{n}")), vec![n + 1; 1 << 20]).unwrap();
    }
    let options = "--fs xfs --small --size 32M --log-size 12M";
    let text = fail(&mut build_command(large.path(), &image, options), 4);
    assert!(text.contains("file-") && text.contains("--size"), "{text}");
    let text = fail(&mut build_command(&source, &image, "--size 40M --inodes 12"), 4);
    assert!(text.contains("inode"), "{text}");
    let mut command = build_command(Path::new("-"), &image, "--size 6M");
    command.stdin(File::open(directory.path().join("source.tar")).unwrap());
    fail(&mut command, 4);
    assert_eq!(names_in(directory.path()), ["source", "source.tar"]);
}

#[test]
fn a_size_that_no_file_system_supports() {
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    let sizes = ["0", "1", "1000", "16K"].map(|size| format!("--size {size}"));
    let small = ["0", "1", "16K", "1M", "15M", "16M", "31M"]
        .map(|size| format!("--fs xfs --small --size {size}"));
    for options in sizes.iter().chain(&small) {
        let output = build_command(&source, &image, options).output().unwrap();
        let code = output.status.code();
        assert!(code == Some(2) || code == Some(4), "{options}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(names_in(directory.path()), ["source"]);
}

#[test]
fn xfs_has_a_copy_of_its_superblock() {
    require!(Tool("xfs_repair"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let image = directory.path().join("image");
    for options in ["--size 400M --ag-count 1", "--size 400M --ag-size 400M", "--small --size 20M"]
    {
        let text = fail(&mut build_command(&source, &image, &format!("--fs xfs {options}")), 2);
        let phrase = "must have at least 2 superblocks for redundancy!";
        assert!(text.contains(phrase) && text.contains("xfs_repair"), "{options}: {text}");
    }
    // xfs_repair checks the smallest image without an extra option.
    build(&source, &image, "--fs xfs --small");
    let mut repair = testkit::command("xfs_repair");
    assert!(repair.args(["-n", "-f"]).arg(&image).output().unwrap().status.success());
}

#[test]
fn an_existing_image_is_kept_unless_forced() {
    let directory = scratch();
    let source = plain_source(directory.path());
    let image = directory.path().join("image");
    fs::write(&image, b"precious").unwrap();
    let text = fail(&mut build_command(&source, &image, ""), 2);
    assert!(text.contains("--force"), "{text}");
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    // A failed build does not remove the existing image either.
    fail(&mut build_command(&source, &image, "--force --size 6M"), 4);
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    build(&source, &image, "--force");
    fail(&mut build_command(&source, &image, ""), 2);
    File::create(&image).unwrap();
    build(&source, &image, "");
    assert_eq!(names_in(directory.path()), ["image", "source"]);
}

#[test]
fn an_image_inside_the_source_is_not_part_of_it() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let source = plain_source(directory.path());
    let expected = Tree::of(&source);
    let image = source.join("image");
    let ignore = testkit::Ignore { mtime: true, ..testkit::Ignore::default() };
    // Again with the image of the first build in the source, which would double the size.
    for options in ["", "--force", "--fs xfs --force"] {
        build(&source, &image, options);
        testkit::judge(&image);
        let mount = crate::build::common::mount(&image);
        testkit::assert_same(&expected, &Tree::of(mount.path()), &ignore);
    }
}

#[test]
fn an_empty_directory_is_a_source() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    for options in
        ["", "--block-size 1K", "-O inline_data", "--size 100M", "--fs xfs", "--fs xfs --size 1G"]
    {
        build(&source, &image, &format!("--force {options}"));
        judge(&image, &Tree::of(&source));
    }
}

#[test]
fn a_missing_source() {
    let directory = scratch();
    let image = directory.path().join("image");
    fs::write(directory.path().join("text"), "no archive at all\n".repeat(100)).unwrap();
    let text = fail(&mut build_command(&directory.path().join("text"), &image, ""), 3);
    assert!(text.contains("text"), "{text}");
    let text = fail(&mut build_command(&directory.path().join("absent"), &image, ""), 4);
    assert!(text.contains("absent"), "{text}");
    let text = fail(&mut build_command(Path::new("/dev/null"), &image, ""), 3);
    assert!(text.contains("/dev/null"), "{text}");
    let nowhere = directory.path().join("no/such/directory/image");
    fail(&mut build_command(directory.path(), &nowhere, ""), 4);
    assert_eq!(names_in(directory.path()), ["text"]);
}

/// A truncated archive, as a file and on standard input.
#[test]
fn an_archive_that_ends_early() {
    require!(Tool("tar"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let (whole, cut) = (directory.path().join("whole"), directory.path().join("cut"));
    let image = directory.path().join("image");
    for more in [&[] as &[&str], &["--gzip"]] {
        tar(&source, &whole, more);
        let bytes = fs::read(&whole).unwrap();
        fs::write(&cut, &bytes[..bytes.len() / 2 + 77]).unwrap();
        for options in ["", "--size 100M --inodes 1000"] {
            fail(&mut build_command(&cut, &image, options), 3);
            let mut command = build_command(Path::new("-"), &image, options);
            fail(command.stdin(File::open(&cut).unwrap()), 3);
        }
    }
    assert_eq!(names_in(directory.path()), ["cut", "source", "whole"]);
}

/// Returns a command that runs as an unprivileged user.
fn as_nobody(command: &Command) -> Command {
    let mut other = testkit::command("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    other.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    other
}

#[test]
fn an_unreadable_file() {
    require!(Root, Tool("setpriv"), Tool("tar"), Tool("e2fsck"), Mount("ext4"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    for path in [directory.path(), &out] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    // The program itself may be in a directory that only its owner can access.
    let program = directory.path().join("diskwright");
    testkit::copy_program(env!("CARGO_BIN_EXE_diskwright"), &program);
    let image = out.join("image");
    let build_as_nobody = |from: &Path, options: &str| {
        let mut command = Command::new(&program);
        command.arg("build").args(options.split_whitespace()).arg(from).arg(&image);
        as_nobody(&command)
    };
    succeed(&mut build_as_nobody(&source, ""));
    fs::remove_file(&image).unwrap();

    let forbidden = source.join("file-5");
    fs::set_permissions(&forbidden, PermissionsExt::from_mode(0o000)).unwrap();
    for options in ["", "--threads 1", "--size 100M"] {
        let text = fail(&mut build_as_nobody(&source, options), 4);
        assert!(text.contains("file-5") && text.contains("ermission denied"), "{text}");
        assert_eq!(names_in(&out), [""; 0]);
    }
    // The archive's contents are readable by all users, and root can read everything.
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    succeed(&mut build_as_nobody(&archive, ""));
    judge(&image, &Tree::of(&source));
    build(&source, &image, "--force");
    judge(&image, &Tree::of(&source));
    fs::remove_file(&image).unwrap();

    fs::set_permissions(&forbidden, PermissionsExt::from_mode(0o644)).unwrap();
    fs::create_dir(source.join("closed")).unwrap();
    fs::set_permissions(source.join("closed"), PermissionsExt::from_mode(0o000)).unwrap();
    let text = fail(&mut build_as_nobody(&source, ""), 4);
    assert!(text.contains("closed") && text.contains("ermission denied"), "{text}");
    assert_eq!(names_in(&out), [""; 0]);
}

/// Files of sysfs report 4096 bytes and contain fewer: to a reader they shrink.
#[test]
fn a_file_shorter_than_announced() {
    let source = Path::new("/sys/kernel/mm/transparent_hugepage");
    if !source.join("enabled").exists() {
        eprintln!("SKIPPED a_file_shorter_than_announced: no {}", source.display());
        return;
    }
    let directory = scratch();
    let image = directory.path().join("image");
    for threads in ["--threads 1", "--threads 4"] {
        let text = fail(&mut build_command(source, &image, threads), 4);
        assert!(text.contains("transparent_hugepage/"), "{text}");
    }
    assert_eq!(names_in(directory.path()), [""; 0]);
}

/// If the source changes during a build, the result is a sound image, or an error and no image.
#[test]
fn a_source_that_changes_while_it_is_read() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let image = directory.path().join("image");
    let is_done = AtomicBool::new(false);
    let mut failed = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                for n in 0..8 {
                    let file = source.join(format!("file-{n}"));
                    File::options().write(true).open(&file).unwrap().set_len(4096).unwrap();
                    fs::remove_file(&file).unwrap();
                    fs::write(&file, vec![n + 1; 1 << 20]).unwrap();
                }
            }
        });
        // The thread that changes the source must stop in every case.
        let _stop = SetOnDrop(&is_done);
        // One of the builds encounters a change; a slow machine gets more attempts.
        for turn in 0..1000 {
            if failed >= 3 {
                break;
            }
            let options = format!("{} --threads {}", FORMATS[turn % 2], turn % 3 + 1);
            let mut command = build_command(&source, &image, &options);
            if command.output().unwrap().status.success() {
                testkit::judge(&image);
                fs::remove_file(&image).unwrap();
            } else {
                failed += 1;
                assert!(!image.exists());
            }
            assert_eq!(names_in(directory.path()), ["source"]);
        }
    });
    assert!(failed > 0, "nothing happened");
}

/// Sets a flag when it goes out of scope.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A mounted tmpfs of a given size, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
        let directory = scratch();
        let options = format!("size={size}");
        let mut command = testkit::command("mount");
        command.args(["-t", "tmpfs", "-o", &options, "small"]).arg(directory.path());
        succeed(&mut command);
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = testkit::command("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk() {
    require!(Root, Tool("mount"), Tool("umount"), Tool("tar"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    let disk = SmallDisk::new("5M");
    let image = disk.0.path().join("image");
    for from in [&source, &archive] {
        for options in ["--threads 1", "--threads 3", "--size 64M"] {
            let text = fail(&mut build_command(from, &image, options), 4);
            assert!(text.contains("No space left on device"), "{text}");
            assert_eq!(names_in(disk.0.path()), [""; 0]);
        }
    }
    // The copy of standard input is removed too.
    fail(build_command(Path::new("-"), &image, "").stdin(File::open(&archive).unwrap()), 4);
    assert_eq!(names_in(disk.0.path()), [""; 0]);
}

/// A pipe whose writer ends early, and a build that is interrupted.
#[test]
fn a_pipe_that_breaks_leaves_nothing() {
    require!(Tool("tar"));
    let directory = scratch();
    let source = plain_source(directory.path());
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    let bytes = fs::read(&archive).unwrap();
    let image = directory.path().join("image");
    let mut command = build_command(Path::new("-"), &image, "--size 100M --inodes 100");
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&bytes[..3 << 20]).unwrap();
    drop(pipe);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(names_in(directory.path()), ["source", "source.tar"]);
}

/// An ordinary user's image contains all names of a sample.
#[test]
fn an_ordinary_user_builds_images_too() {
    require!(Root, Tool("setpriv"), Tool("tar"), Tool("e2fsck"), Mount("ext4"));
    let directory = scratch();
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let (source, tree) = sample_in(directory.path(), &small_sample(4096));
    let archive = directory.path().join("source.tar");
    tar(&source, &archive, &[]);
    let program = directory.path().join("diskwright");
    testkit::copy_program(env!("CARGO_BIN_EXE_diskwright"), &program);
    let image = directory.path().join("image");
    let mut command = Command::new(&program);
    succeed(&mut as_nobody(command.arg("build").arg(&archive).arg(&image)));
    judge(&image, &crate::build::common::as_in_gnu_tar(&tree));
}
