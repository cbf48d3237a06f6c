//! Executes the same work on every host and prints one line of digests, which must be the same everywhere.
//!
//! It creates an image of each format in memory, changes it at random, reads and checks it, damages it in many ways,
//! checks and repairs the results, and reads a compressed archive. With a directory as argument it also writes the
//! images there, for external checkers, and reads files of this host; it then prints a second line. If nothing can be
//! printed (wasm32-unknown-unknown), it fails unless its line equals that of another host in `DISKWRIGHT_EXPECTED` at
//! compile time.
#![forbid(unsafe_code)]

mod archive;
mod damage;
mod digest;
mod images;
mod load;
mod tree;

use std::error::Error;
use std::path::PathBuf;

use vfs::Timestamp;

use images::ImageFormat;

/// Timestamp of all files in the images: 2020-09-13.
const TIME: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 0 };

/// Output of another host, which this host's output must equal. Set at compile time.
const EXPECTED: Option<&str> = option_env!("DISKWRIGHT_EXPECTED");

fn main() -> Result<(), Box<dyn Error>> {
    // Fixed, because some hosts have no clock, and the time must be the same on all hosts.
    if !vfs::clock::provide(|| TIME) {
        return Err("somebody else provides the time".into());
    }
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let mut line = Vec::new();
    for format in [ImageFormat::Ext4, ImageFormat::Xfs] {
        let image = images::make(format)?;
        if let Some(directory) = &directory {
            std::fs::write(directory.join(format.name()), digest::bytes_of(&*image)?)?;
        }
        line.push(format!("{}:{:08x}", format.name(), digest::of_device(&*image)?));
        line.push(format!("read:{:08x}", images::read(format, &image)?));
        line.push(format!("damaged:{:08x}", damage::look(format, &image)?));
    }
    line.push(format!("archive:{:08x}", archive::read()?));
    let line = line.join(" ");
    println!("{line}");
    if let Some(directory) = &directory {
        println!("tree:{:08x}", tree::read(&directory.join("tree"))?);
    }
    match EXPECTED {
        Some(expected) if expected != line => Err(format!("expected: {expected}").into()),
        _ => Ok(()),
    }
}
