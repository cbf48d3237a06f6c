//! stress-orphan: each thread truncates a file of its own byte by byte.
//!
//! The program of the orphan file's author was never published; he described it as "truncating
//! files byte-by-byte from N processes in parallel". Here a file has 4096 bytes, and is filled again
//! when it is empty. All numbers of threads share the same number of operations.

use super::Timing;
use super::names::in_threads;
use super::target::{Contestant, Image};

/// Size of each file, in bytes: as many truncates make it empty.
pub(super) const FILE_BYTES: u64 = 4096;

/// Rounds per thread, so that all threads together do about `truncates`.
pub(super) fn rounds(threads: u32, truncates: u64) -> u64 {
    (truncates / u64::from(threads) / FILE_BYTES).max(1)
}

/// Runs the rounds of all threads.
pub(super) fn run(
    contestant: Contestant,
    image: &Image,
    threads: u32,
    rounds: u64,
) -> Result<Vec<(&'static str, Timing)>, String> {
    let target = image.open(contestant)?;
    for thread in 0..threads {
        target.add_file(&format!("f{thread}"))?;
    }
    target.sync()?;
    let contents = [b'x'; FILE_BYTES as usize];
    let timing = in_threads(&*target, threads, |target, file| {
        for _ in 0..rounds {
            target.write(file, &contents)?;
            for size in (0..FILE_BYTES).rev() {
                target.truncate(file, size)?;
            }
        }
        Ok(())
    })?;
    target.close()?;
    Ok(vec![("truncate", timing)])
}
