//! The libraries, each with its own adapter, set up as alike as they allow.

mod fractal;
mod fuse_backend;
mod fuser;

use std::io;
use std::path::Path;

use crate::memory::Memory;

/// Names that [`serve`] knows.
pub const LIBRARIES: [&str; 5] =
    ["fuser", "fuser-2", "fuse-backend-rs", "fuse-backend-rs-2", "fractal-fuse"];

/// Serves an empty file system at `mountpoint` until it is unmounted. A number at the end of a name is
/// that of the threads.
pub fn serve(library: &str, mountpoint: &Path) -> io::Result<()> {
    let memory = Memory::default();
    match library {
        "fuser" => fuser::serve(memory, mountpoint, 1),
        "fuser-2" => fuser::serve(memory, mountpoint, 2),
        "fuse-backend-rs" => fuse_backend::serve(memory, mountpoint, 1),
        "fuse-backend-rs-2" => fuse_backend::serve(memory, mountpoint, 2),
        "fractal-fuse" => fractal::serve(memory, mountpoint),
        _ => Err(io::Error::other(format!("{library}: not one of {}", LIBRARIES.join(", ")))),
    }
}
