//! Shared by the tests: a server for images of both formats in memory, and a client.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

mod client;

use std::sync::atomic::{AtomicBool, Ordering};

pub use testkit::{MemoryImage, on_both_formats as on_both};
use webdav::{ServedOutcome, WebdavAccess, WebdavOptions, WebdavSecret, WebdavServer};

pub use client::{DavClient, raw, send};

/// Returns the options of a writable server with a secret in its address.
pub fn options() -> WebdavOptions {
    WebdavOptions::new(WebdavAccess::Secret(WebdavSecret::random().unwrap()))
}

/// Runs a test with a client of an image of each format, which must be sound afterwards.
pub fn served(options: &WebdavOptions, test: impl Fn(&DavClient, &MemoryImage)) {
    on_both(|image| {
        serve(image, options, |client| test(client, image));
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
    options: &WebdavOptions,
    test: impl FnOnce(&DavClient),
) -> ServedOutcome {
    let server = WebdavServer::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(image.fs(), &stop).unwrap());
        let stopped = Stop(&stop);
        test(&DavClient::new(server.address(), &server.url()));
        drop(stopped);
        serving.join().unwrap()
    })
}

/// Returns the contents of a file in an image.
pub fn contents(image: &MemoryImage, path: &str) -> vfs::Result<Vec<u8>> {
    vfs::Paths::new(image.fs()).read(path.as_bytes(), 1 << 30)
}

/// Returns bytes that do not compress and differ at each position.
pub fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
