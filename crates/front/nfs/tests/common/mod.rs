//! Shared by the tests: images of both formats in memory, and a server for them.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

mod client;
mod xdr;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use nfs::{NfsCallers, NfsOptions, NfsServer, ServedOutcome};
pub use testkit::{MemoryImage, on_both_formats as on_both};

pub use client::{CreateHow, Handle, MOUNT, NFS, NewAttr, NfsClient, Wcc, record};
pub use xdr::Message;

pub const UUID: [u8; 16] = *b"0123456789abcdef";
pub const EXPORT: &str = "/export";

/// Statuses of replies.
pub const OK: u32 = 0;
pub const PERM: u32 = 1;
pub const NOENT: u32 = 2;
pub const IO: u32 = 5;
pub const ACCES: u32 = 13;
pub const EXIST: u32 = 17;
pub const NOTDIR: u32 = 20;
pub const ISDIR: u32 = 21;
pub const INVAL: u32 = 22;
pub const FBIG: u32 = 27;
pub const ROFS: u32 = 30;
pub const NAMETOOLONG: u32 = 63;
pub const NOTEMPTY: u32 = 66;
pub const STALE: u32 = 70;
pub const BADHANDLE: u32 = 10_001;
pub const NOT_SYNC: u32 = 10_002;
pub const BAD_COOKIE: u32 = 10_003;
pub const TOOSMALL: u32 = 10_005;
pub const BADTYPE: u32 = 10_007;

/// Returns the options of a writable export at [`EXPORT`] that checks no permissions.
pub fn options() -> NfsOptions {
    NfsOptions::new(EXPORT.parse().unwrap(), UUID)
}

/// Returns the options of an export that checks permissions.
pub fn checked() -> NfsOptions {
    NfsOptions { callers: NfsCallers::Checked, ..options() }
}

/// Runs a test with a client of an image of each format, which must be sound afterwards.
pub fn served(options: &NfsOptions, test: impl Fn(&mut NfsClient, &Handle)) {
    on_both(|image| {
        serve(image, options, |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            test(&mut client, &root);
        });
    });
}

/// Sets a flag, also when a test panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves an image during a test.
pub fn serve(
    image: &MemoryImage,
    options: &NfsOptions,
    test: impl FnOnce(SocketAddr),
) -> ServedOutcome {
    let server = NfsServer::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(image.fs(), &stop).unwrap());
        let stopped = Stop(&stop);
        test(server.address());
        drop(stopped);
        serving.join().unwrap()
    })
}
