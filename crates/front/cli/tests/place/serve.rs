//! Mounts of images on a disk that loses unflushed data. The server is a second process of the test
//! program, which runs only the test [`server`]. In other runs that test does nothing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use disk::FileDevice;
use ext4::Ext4;
use fuse::{Adapter, Options};
use linux::{MountOptions, Session, SessionOptions};
use testkit::Format;
use vfs::FileSystem;
use xfs::Xfs;

use super::volatile::VolatileDevice;

const VARIABLE: &str = "DISKWRIGHT_PROOFS_SERVE";

/// Returns a command that serves an image at a mount point.
pub(super) fn command(image: &Path, point: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = concat!(module_path!(), "::server");
    let test = test.split_once("::").expect("the name of the program comes first").1;
    command.args(["--exact", test, "--nocapture", "--quiet"]);
    command.env(VARIABLE, "1").env("IMAGE", image).env("POINT", point);
    command
}

#[test]
fn server() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let [image, point] =
        ["IMAGE", "POINT"].map(|name| PathBuf::from(std::env::var_os(name).unwrap()));
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let device = Arc::new(VolatileDevice::new(Arc::new(FileDevice::new(file).unwrap())));
    match Format::of(&image) {
        Format::Ext => {
            let fs = Ext4::open_writable(device, &ext4::OpenOptions::default()).unwrap();
            serve(&fs, &point);
            fs.close().unwrap();
        }
        Format::Xfs => {
            let fs = Xfs::open_writable(device, &xfs::OpenOptions::default()).unwrap();
            serve(&fs, &point);
            fs.close().unwrap();
        }
    }
}

fn serve(fs: &dyn FileSystem, point: &Path) {
    let options = MountOptions {
        fs_name: "proof".into(),
        subtype: "diskwright".into(),
        allow_other: true,
        suid: true,
        dev: true,
        ..MountOptions::default()
    };
    let session = Session::mount(point, &options).unwrap();
    let adapter = Adapter::new(fs, Options::default());
    let options = SessionOptions { threads: 2, io_uring: false };
    session.serve(&adapter, &options, || {}).unwrap();
}
