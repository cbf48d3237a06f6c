//! Mounts served by a process of the test program itself: it is started again for nothing but the test
//! [`server`], which does nothing in other runs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use blockdev::{BlockDevice, FileDevice};
use ext4::Ext4;
use fuse::{Adapter, Options};
use fuse_device::{MountOptions, Session, SessionOptions};
use vfs::FileSystem;
use xfs::Xfs;

use super::volatile::VolatileDevice;

/// XFS in a file that is large enough, made at the start and finished at the end.
pub(super) const FRESH_XFS: &str = "fresh-xfs";

/// An image of ext4 on a disk that loses what is not flushed.
pub(super) const VOLATILE_EXT4: &str = "volatile-ext4";

const VARIABLE: &str = "DISKWRIGHT_PROOFS_SERVE";

/// What serves an image at a path.
pub(super) fn command(what: &str, image: &Path, point: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = concat!(module_path!(), "::server");
    let test = test.split_once("::").expect("the name of the program comes first").1;
    command.args(["--exact", test, "--nocapture", "--quiet"]);
    command.env(VARIABLE, what).env("IMAGE", image).env("POINT", point);
    command
}

#[test]
fn server() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let [image, point] =
        ["IMAGE", "POINT"].map(|name| PathBuf::from(std::env::var_os(name).unwrap()));
    let file = File::options().read(true).write(true).open(image).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    match what.as_str() {
        FRESH_XFS => {
            let plan = xfs::mkfs::plan(&xfs::mkfs::Options::new(device.len())).unwrap();
            xfs::mkfs::format(&*device, &plan, xfs::mkfs::Contents::Zeros).unwrap();
            let fs = Xfs::open_fresh(device, xfs::CACHE_BYTES_DEFAULT).unwrap();
            serve(&fs, &point);
            fs.finish(None).unwrap();
        }
        VOLATILE_EXT4 => {
            let device = Arc::new(VolatileDevice::new(device));
            let fs = Ext4::open_writable(device, &ext4::OpenOptions::default()).unwrap();
            serve(&fs, &point);
            fs.close().unwrap();
        }
        other => panic!("{other} is nothing to serve"),
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
