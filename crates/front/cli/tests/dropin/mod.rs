//! Programs of e2fsprogs, xfsprogs and others under their own names: calls of image builders, every
//! option of the manual pages, and exit statuses.

mod android;
mod callers;
mod debugfs;
mod debugfs_beside;
mod dumpe2fs;
mod ext;
mod fakeroot;
mod features;
mod foreign;
mod in_place;
mod invocation_cases;
mod invocations;
mod matrix;
mod mke2fs;
mod mount;
mod online;
mod options;
mod probe;
mod protofile;
mod sequences;
mod shown_alike;
mod tune;
mod xfs;
mod xfs_options;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Exit status and output of a program.
#[derive(Debug)]
struct Ended {
    status: i32,
    out: String,
    messages: String,
}

/// Runs a program in a directory. Words of the line contain no spaces.
fn run(dir: &Path, line: &str) -> Ended {
    run_with(dir, line, &[])
}

/// Like [`run`], with environment variables.
fn run_with(dir: &Path, line: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    // Exclude the machine's own configuration.
    command.env("MKE2FS_CONFIG", "none.conf").env("LC_ALL", "C");
    command.envs(variables.iter().copied());
    command.current_dir(dir).arg("as").args(line.split_whitespace()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let messages = text(output.stderr);
    assert!(!messages.contains("panicked"), "{line}: {messages}");
    let status = output.status.code().unwrap_or_else(|| panic!("{line}: {:?}", output.status));
    Ended { status, out: text(output.stdout), messages }
}

/// Runs a program that must succeed. Returns its output.
fn done(dir: &Path, line: &str) -> String {
    let ended = run(dir, line);
    assert_eq!(ended.status, 0, "{line}: {ended:?}");
    ended.out
}

/// Creates a directory with a small tree in `tree`.
fn home() -> TempDir {
    let home = testkit::scratch();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("etc/empty")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("etc/hostname", tree.join("link")).unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("etc/file-{number}")), number.to_string()).unwrap();
    }
    home
}

/// Creates a file of this number of zero bytes.
fn file(dir: &Path, name: &str, bytes: u64) {
    fs::File::create(dir.join(name)).unwrap().set_len(bytes).unwrap();
}

/// Returns the contents of a file in an image.
fn contents(dir: &Path, image: &str, path: &str) -> String {
    let image = diskwright::fs::Image::open(dir.join(image)).unwrap();
    image.read_to_string(path).unwrap()
}
