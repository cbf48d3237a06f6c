//! Archives that can be read only once: they are copied while they are read. If the input is not an
//! archive, nothing is kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use testkit::{require, scratch};

use crate::build::common::{build_command, names_in, same_every_time, succeed, tar};

/// More bytes than all buffers between a pipe and the parser contain.
const BUFFERS: usize = 16 << 20;

/// Starts a build from standard input.
fn start(image: &Path, options: &str) -> (Child, ChildStdin) {
    let mut command = same_every_time(Path::new("-"), image, options);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

/// Writes bytes repeatedly, up to a limit. Returns the number of bytes accepted.
fn feed(input: &mut ChildStdin, bytes: &[u8], at_most: usize) -> usize {
    let mut fed = 0;
    while fed < at_most {
        match input.write(bytes) {
            Ok(n) => fed += n,
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
                break;
            }
        }
    }
    fed
}

/// Returns the disk usage of all files in a directory that a process has open, including unlinked
/// ones.
fn open_bytes(child: &Child, dir: &Path) -> u64 {
    let files = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let here = files.filter(|file| fs::read_link(file).is_ok_and(|to| to.starts_with(dir)));
    here.map(|file| fs::metadata(file).unwrap().blocks() * 512).sum()
}

/// Creates a source of a few files, and an archive of it.
fn archive(dir: &Path) -> (PathBuf, PathBuf) {
    let (source, archive) = (dir.join("source"), dir.join("source.tar"));
    fs::create_dir(&source).unwrap();
    for n in 0..20_u8 {
        fs::write(source.join(format!("file-{n}")), vec![n; usize::from(n) * 9000]).unwrap();
    }
    tar(&source, &archive, &[]);
    (source, archive)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut command = testkit::command("gzip");
    command.arg("-1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let feeder = thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output.stdout
}

/// The output of `yes`, also with a compression that does not reduce the size.
#[test]
fn streams_that_are_not_archives_are_refused_at_the_first_header() {
    require!(Tool("gzip"));
    let directory = scratch();
    let image = directory.path().join("image");
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(8 << 20).collect();
    let inputs = [b"y\n".repeat(1 << 16), noise.clone(), gzip(&noise)];
    for bytes in inputs {
        for options in ["", "--size 100M", "--fs xfs", "--size 100M --inodes 1000"] {
            let (child, mut input) = start(&image, options);
            let fed = feed(&mut input, &bytes, 4 * BUFFERS);
            drop(input);
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(said.contains("not a tar archive"), "{said}");
            assert!(fed < BUFFERS, "{options}: took {fed} bytes of it");
            assert_eq!(names_in(directory.path()), [""; 0]);
        }
    }
}

/// Some writers pad archives, and some never stop. All input is read, so that they can finish, but
/// not kept.
#[test]
fn bytes_after_an_archive_are_not_stored() {
    require!(Tool("tar"), Tool("gzip"), Tool("e2fsck"));
    let directory = scratch();
    let (source, archive) = archive(directory.path());
    let (image, expected) = (directory.path().join("image"), directory.path().join("expected"));
    succeed(&mut same_every_time(&archive, &expected, ""));
    let bytes = fs::read(&archive).unwrap();
    let (child, mut input) = start(&image, "");
    input.write_all(&bytes).unwrap();
    assert_eq!(feed(&mut input, &[0; 1 << 16], 4 * BUFFERS), 4 * BUFFERS);
    let kept = open_bytes(&child, &directory.path().canonicalize().unwrap());
    assert!((1..BUFFERS as u64).contains(&kept), "{kept} bytes are kept");
    drop(input);
    assert!(child.wait_with_output().unwrap().status.success());
    testkit::judge(&image);
    assert!(fs::read(&image).unwrap() == fs::read(&expected).unwrap(), "not the same image");
    // The checksum of a compressed archive comes last and is verified.
    let mut packed = gzip(&bytes);
    let last = packed.len() - 6;
    packed[last] ^= 1;
    fs::write(directory.path().join("packed"), packed).unwrap();
    let mut command = build_command(Path::new("-"), &image, "--force");
    let output = command.stdin(File::open(directory.path().join("packed")).unwrap()).output();
    assert_eq!(output.unwrap().status.code(), Some(3));
    drop(source);
    assert_eq!(names_in(directory.path()), ["expected", "image", "packed", "source", "source.tar"]);
}

/// Data read from a pipe cannot be read again: an archive in a named pipe is handled like one on
/// standard input.
#[test]
fn a_named_pipe_is_a_source() {
    require!(Tool("tar"), Tool("gzip"), Tool("e2fsck"), Tool("xfs_repair"));
    let directory = scratch();
    let (_, archive) = archive(directory.path());
    let bytes = fs::read(&archive).unwrap();
    let pipe = directory.path().join("pipe");
    succeed(Command::new("mkfifo").arg(&pipe));
    let image = directory.path().join("image");
    for (bytes, options) in [
        (bytes.clone(), ""),
        (gzip(&bytes), ""),
        (bytes.clone(), "--size 100M"),
        (gzip(&bytes), "--size 100M"),
        (gzip(&bytes), "--fs xfs --size 100M --small"),
    ] {
        let expected = directory.path().join("expected");
        let file = directory.path().join("file");
        fs::write(&file, &bytes).unwrap();
        succeed(&mut same_every_time(&file, &expected, &format!("--force {options}")));
        thread::scope(|scope| {
            scope.spawn(|| fs::write(&pipe, &bytes).unwrap());
            succeed(&mut same_every_time(&pipe, &image, &format!("--force {options}")));
        });
        testkit::judge(&image);
        assert!(fs::read(&image).unwrap() == fs::read(&expected).unwrap(), "{options}");
    }
}
