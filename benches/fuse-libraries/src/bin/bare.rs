//! `bare LIBRARY MOUNTPOINT`: serves the file system in memory until it is unmounted.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, mountpoint] = &arguments[..] else {
        return Err(io::Error::other("usage: bare LIBRARY MOUNTPOINT"));
    };
    fuse_libraries::serve::serve(library, Path::new(mountpoint))
}
