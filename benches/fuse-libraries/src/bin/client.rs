//! `client DIR [THREADS]`: uses a mount once and prints the figures.

use std::io;
use std::path::Path;

use fuse_libraries::client::{FILES, MEASURES, own_work, run};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, threads) = match &arguments[..] {
        [directory] => (directory, 1),
        [directory, threads] => (directory, threads.parse().map_err(io::Error::other)?),
        _ => return Err(io::Error::other("usage: client DIR [THREADS]")),
    };
    let figures = run(Path::new(directory), threads, FILES, &own_work)?;
    for ((name, unit), figure) in MEASURES.iter().zip(figures) {
        println!("{name}: {:.0} {unit}", figure.rate);
    }
    Ok(())
}
