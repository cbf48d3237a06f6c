//! Log records with blocks larger than a record. After a crash that left intents, new records keep the size that the
//! kernel chose.

use std::sync::Arc;

use disk::MemoryDevice;
use engine::Log;
use testkit::{KernelMount, MountOptions, require};
use vfs::{FileSystem, NewInode};

use super::{Position, XfsLog, recover};
use crate::mkfs::{self, Options, PreviousContents};
use crate::volume::read_superblock;
use crate::{Xfs, XfsCore};
use operations::Mode;

#[test]
fn blocks_longer_than_records_are_logged_in_parts() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let options = Options { block_size: 64 << 10, allow_small: true, ..Options::new(512 << 20) };
    let device = Arc::new(MemoryDevice::new(options.size_bytes));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let sb = read_superblock(&*device).unwrap();
    let position = recover(&*device, &sb).unwrap().position;
    let position = Position { record_size: Some(32 << 10), ..position };
    let log = XfsLog::open(device.clone(), &sb, position).unwrap();
    let hook: Box<dyn Log> = Box::new(log.clone());
    let core = XfsCore::with_device(device.clone(), Some(hook), 64 << 20, Mode::Writable);
    let mut fs = Xfs::new(core.unwrap());
    fs.log = Some(log);
    for number in 0..3000 {
        let name = format!("a file with a name of some length {number}");
        fs.create(fs.root_ino(), name.as_bytes(), &NewInode::default()).unwrap();
        if number % 500 == 0 {
            fs.sync().unwrap();
        }
    }
    fs.sync().unwrap();
    assert!(fs.engine.log_blocks_max() > 8);
    let folder = testkit::scratch();
    let path = folder.path().join("left");
    testkit::crash::write_image(&device, &path).unwrap();
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 3000);
    mount.unmount();
    testkit::xfs_repair(&path);
    // This implementation recovers it, too.
    drop(fs);
    let fs = Xfs::open_writable(device.clone(), &Default::default()).unwrap();
    assert!(fs.recovered().transactions > 5);
    let name = b"a file with a name of some length 2999";
    fs.lookup(fs.root_ino(), name).unwrap();
    fs.close().unwrap();
    testkit::show_image(&device, |path| testkit::xfs_repair(path));
}
