//! `diskwright deleted` and `diskwright timeline`, on images with a known history.

mod ext;
mod output;
mod timeline;
mod xfs;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs a command line in a directory.
fn run(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(line.split_whitespace()).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!messages.contains("panicked"), "{line}: {messages}");
    output
}

/// Runs a command line. Returns exit status, output and messages.
fn said(dir: &Path, line: &str) -> (i32, String, String) {
    let output = run(dir, line);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs a command line that must succeed.
fn done(dir: &Path, line: &str) -> String {
    let (status, output, messages) = said(dir, line);
    assert_eq!(status, 0, "{line}: {messages}");
    output
}

/// Returns bytes that differ for each seed and in each block.
fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Deleted files of an image, extracted into a directory.
struct Deleted {
    home: tempfile::TempDir,
    files: Vec<Value>,
}

impl Deleted {
    /// Searches an image and extracts the files found. The image must not change.
    #[track_caller]
    fn of(image: &Path, options: &str) -> Self {
        let home = testkit::scratch();
        let before = testkit::digest(image);
        let line = format!("deleted {} --json --extract out {options}", image.display());
        let report: Value = serde_json::from_str(&done(home.path(), &line)).unwrap();
        assert_eq!(before, testkit::digest(image), "the image was changed");
        assert_eq!(report["complete"], true);
        let written = fs::read(home.path().join("out/report.json")).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let files = written["deleted"].as_array().unwrap().clone();
        assert_eq!(files.len(), report["deleted"].as_array().unwrap().len());
        Self { home, files }
    }

    /// Returns the files with an inode number.
    fn inode(&self, ino: u64) -> Vec<&Value> {
        self.files.iter().filter(|file| file["inode"] == ino).collect()
    }

    /// Returns the certainty of the most certain file with an inode number whose extracted contents are these.
    #[track_caller]
    fn certainty_of(&self, ino: u64, contents: &[u8]) -> &str {
        let has_contents = |file: &&&Value| self.read(file).is_some_and(|found| found == contents);
        match self.inode(ino).iter().find(has_contents) {
            Some(file) => file["certainty"].as_str().unwrap(),
            None => panic!("inode {ino} was not recovered: {:#?}", self.inode(ino)),
        }
    }

    fn read(&self, file: &Value) -> Option<Vec<u8>> {
        let name = file["extracted"].as_str()?;
        Some(fs::read(self.home.path().join("out").join(name)).unwrap())
    }

    /// Returns all paths of names.
    fn paths(&self) -> BTreeSet<String> {
        let names = self.files.iter().flat_map(|file| file["names"].as_array().unwrap());
        names.filter_map(|name| name["path"].as_str().map(str::to_owned)).collect()
    }
}
