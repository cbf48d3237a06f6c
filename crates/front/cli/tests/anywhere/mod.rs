//! Commands on images that are not local files.

mod bundles;
#[cfg(target_os = "linux")]
mod clone_faults;
#[cfg(target_os = "linux")]
mod clone_judges;
mod clones;
#[cfg(target_os = "linux")]
mod clones_of_machines;
mod disks;
mod failing;
#[cfg(target_os = "linux")]
mod locks;
mod obfuscated;
#[cfg(target_os = "linux")]
mod overlays;
mod published;
mod reading;
mod rounds;
mod secrets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::WebServer;

use crate::program::diskwright;

/// Runs a command line in a directory.
fn run(dir: &Path, line: &str) -> Output {
    let mut command = diskwright();
    command.env_remove("DISKWRIGHT_CACHE").env("XDG_CACHE_HOME", dir.join("xdg"));
    command.current_dir(dir).args(line.split_whitespace()).output().unwrap()
}

/// Runs a command line that must succeed without messages. Returns its output.
#[track_caller]
fn ok(dir: &Path, line: &str) -> Vec<u8> {
    let output = run(dir, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {} {said}", output.status);
    assert!(said.is_empty(), "{line}: {said}");
    output.stdout
}

/// Runs a command line that must end with this status. Returns its messages.
#[track_caller]
fn fails(dir: &Path, line: &str, status: i32) -> String {
    let output = run(dir, line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}: {said}");
    assert!(said.starts_with("diskwright: ") && !said.contains("panicked"), "{line}: {said}");
    said
}

/// Creates the source of the images: some directories, and a file larger than one request.
fn source(dir: &Path) {
    let source = dir.join("source");
    for name in ["etc", "usr/lib", "usr/share"] {
        fs::create_dir_all(source.join(name)).unwrap();
        for number in 0..40 {
            fs::write(source.join(format!("{name}/file-{number}")), format!("{number}\n")).unwrap();
        }
    }
    fs::write(source.join("etc/hostname"), "image\n").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = (0..6 << 20).map(|_| random.u8(..)).collect();
    fs::write(source.join("noise"), noise).unwrap();
}

/// Builds an image of the directory `many`, and puts it on the server.
fn serve_many(dir: &Path, server: &WebServer, format: &str) {
    let line = format!("build many {format}.img --fs {format} --size 512M");
    assert!(run(dir, &line).status.success(), "{line}");
    server.put(format, fs::read(dir.join(format!("{format}.img"))).unwrap(), "one");
}

/// Creates an image of each format, `ext4.img` and `xfs.img`, and a server that serves them.
fn served(dir: &Path) -> (WebServer, [&'static str; 2]) {
    source(dir);
    let server = WebServer::new();
    let images = ["ext4", "xfs"];
    for format in images {
        let small = if format == "xfs" { "--small" } else { "" };
        let line = format!("build source {format}.img --fs {format} {small} --free 20M");
        assert!(run(dir, &line).status.success(), "{line}");
        server.put(format, fs::read(image(dir, format)).unwrap(), "one");
    }
    (server, images)
}

fn image(dir: &Path, format: &str) -> PathBuf {
    dir.join(format!("{format}.img"))
}
