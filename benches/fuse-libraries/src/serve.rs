//! The libraries, each with its adapter, with settings that are as equal as possible.

mod fractal;
mod fuse_backend;
mod fuser;
mod ours;

use std::io;
use std::path::Path;

use linux::SessionOptions;

use crate::memory::Memory;

/// Names that [`serve`] accepts. A number at the end is the number of threads.
pub const LIBRARIES: [&str; 8] = [
    "fuser",
    "fuser-2",
    "fuse-backend-rs",
    "fuse-backend-rs-2",
    "fractal-fuse",
    "ours",
    "ours-2",
    "ours-io_uring",
];

/// Serves an empty file system at `mountpoint` until it is unmounted.
pub fn serve(library: &str, mountpoint: &Path) -> io::Result<()> {
    let memory = Memory::default();
    match library {
        "fuser" => fuser::serve(memory, mountpoint, 1),
        "fuser-2" => fuser::serve(memory, mountpoint, 2),
        "fuse-backend-rs" => fuse_backend::serve(memory, mountpoint, 1),
        "fuse-backend-rs-2" => fuse_backend::serve(memory, mountpoint, 2),
        "fractal-fuse" => fractal::serve(memory, mountpoint),
        "ours" => ours::serve(memory, mountpoint, &SessionOptions { threads: 1, io_uring: false }),
        "ours-2" => {
            ours::serve(memory, mountpoint, &SessionOptions { threads: 2, io_uring: false })
        }
        "ours-io_uring" => {
            ours::serve(memory, mountpoint, &SessionOptions { threads: 1, io_uring: true })
        }
        _ => Err(io::Error::other(format!("{library}: not one of {}", LIBRARIES.join(", ")))),
    }
}
