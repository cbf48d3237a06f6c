//! What the library makes of the same work on this host: one line of digests, which must be the same everywhere.
//!
//! It makes an image of each format in memory, changes it at random, reads it, checks it, damages it in many ways,
//! checks and repairs that, and reads a compressed archive. With the name of a directory it puts the images there, for
//! others to judge, and reads files of this host; there is a second line then. Where nothing can be printed (wasm32-unknown-unknown), it fails unless its line is that of another
//! host, which `DISKWRIGHT_EXPECTED` named when it was compiled.
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

use images::Format;

/// Every time in the images: 2020-09-13.
const TIME: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 0 };

/// The line of another host.
const EXPECTED: Option<&str> = option_env!("DISKWRIGHT_EXPECTED");

fn main() -> Result<(), Box<dyn Error>> {
    // Nobody knows the time on some hosts, and it is not to be another one on each.
    if !vfs::clock::provide(|| TIME) {
        return Err("somebody else provides the time".into());
    }
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let mut line = Vec::new();
    for format in [Format::Ext4, Format::Xfs] {
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
