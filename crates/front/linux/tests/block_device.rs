//! Mounts of block devices, whose end the kernel waits for.

use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use linux::{Errno, Handler, Kernel, MountOptions, Operation, Reply, Request, Session, Settings};
use rustix::mount::{UnmountFlags, unmount};
use testkit::LoopDevice;

use crate::common::{Memory, Transport, session_options};

/// File system that is unmounted by another program while it answers SYNCFS.
struct UnmountedInSyncfs<'a> {
    memory: Memory,
    place: &'a Path,
}

impl Handler for UnmountedInSyncfs<'_> {
    fn init(&self, kernel: &Kernel) -> Settings {
        self.memory.init(kernel)
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        match request.operation {
            Operation::Syncfs => unmount(self.place, UnmountFlags::DETACH),
            _ => self.memory.handle(request, reply),
        }
    }
}

/// The child that writes back holds the last reference to the mount. Its exit waits for the end of
/// the session, which thus must not wait for the child.
#[test]
fn the_session_ends_when_a_child_unmounts_it() {
    testkit::require!(Root, Loop, Fuse, Tool("losetup"));
    let dir = tempfile::tempdir().unwrap();
    let (place, backing) = (dir.path().join("mount"), dir.path().join("backing"));
    fs::create_dir(&place).unwrap();
    File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    let device = LoopDevice::new(&backing);
    let options = MountOptions {
        fs_name: device.path().into(),
        subtype: "memory".into(),
        block_size: Some(4096),
        ..MountOptions::default()
    };
    let session = Session::mount(&place, &options).unwrap();
    let write_back = session.write_back().unwrap();
    let (ended, ends) = mpsc::channel();
    let server = thread::spawn(move || {
        let handler = UnmountedInSyncfs { memory: Memory::new(0), place: &place };
        thread::scope(|scope| {
            let flush = || drop(scope.spawn(move || write_back.flush().unwrap()));
            let options = session_options(Transport::Device, 2);
            let unmounted = session.serve(&handler, &options, flush).unwrap();
            ended.send(()).unwrap();
            unmounted
        })
    });
    ends.recv_timeout(testkit::HANG_AFTER).expect("the session ends");
    drop(server.join().unwrap());
    // The kernel has released the device.
    File::options().write(true).open(device.path()).unwrap();
}
