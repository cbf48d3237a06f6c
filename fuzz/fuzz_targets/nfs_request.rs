//! Sends arbitrary messages to an NFS service of an image in memory: as they are, and as arguments of each procedure with a
//! valid handle. Errors are fine; panics, and damage of the image, are bugs.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use disk::MemoryDevice;
use ext4::Ext4;
use libfuzzer_sys::fuzz_target;
use nfs::{NfsCallers, NfsOptions, NfsService};

const SIZE: u64 = 4 << 20;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fuzz_target!(|input: (bool, Vec<(u32, bool, Vec<u8>)>)| {
    let (is_checked, messages) = input;
    let device = Arc::new(empty_image().fork());
    let fs = Ext4::open_writable(device, &ext4::OpenOptions::default()).expect("the image is new");
    let mut options = NfsOptions::new("/x".parse().expect("a valid path"), [7; 16]);
    options.sync = false;
    if is_checked {
        options.callers = NfsCallers::Checked;
    }
    let service = NfsService::new(&fs, options).expect("the host has random numbers");
    let mounted = service.answer(CLIENT, &call(1, MOUNT, 1, b"\0\0\0\x02/x\0\0"));
    // Length and bytes of the handle follow the record mark, six words of RPC, and the status.
    let root = mounted.expect("a reply")[32..80].to_vec();
    for (xid, (procedure, is_raw, bytes)) in messages.into_iter().enumerate().take(64) {
        if is_raw {
            service.answer(CLIENT, &bytes);
        } else {
            let arguments = [&root[..], &bytes].concat();
            let message = call(xid as u32, NFS, procedure % 23, &arguments);
            service.answer(CLIENT, &message).expect("calls have replies");
        }
    }
    service.sync().expect("memory does not fail");
    assert!(!service.is_damaged());
});

/// Returns a call with `AUTH_SYS` and the user and group 0.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let head = [xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
    let head = head.iter().flat_map(|word| word.to_be_bytes());
    head.chain(arguments.iter().copied()).collect()
}

fn empty_image() -> &'static MemoryDevice {
    static IMAGE: OnceLock<MemoryDevice> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let options = ext4::mkfs::Options::new(SIZE);
        let layout = ext4::mkfs::plan(&options).expect("the size is valid");
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros)
            .expect("memory does not fail");
        let fs = Ext4::open_in_progress(device.clone(), 1 << 20).expect("the image is new");
        fs.finish(None).expect("memory does not fail");
        device.fork()
    })
}
