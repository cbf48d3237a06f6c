//! Prints the rate at which one thread decrypts blocks of AES-256 in memory, in MiB per second. `scripts/bench-layers`
//! compares it with reads of LUKS volumes.

use std::time::{Duration, Instant};

use aes::cipher::{BlockDecrypt, KeyInit};
use aes::{Aes256, Block};

/// Bytes between two looks at the clock, as many as a LUKS volume decrypts at a time.
const PART_BYTES: usize = 64 << 10;

fn main() {
    let cipher = Aes256::new(&[7; 32].into());
    let mut blocks = vec![Block::default(); PART_BYTES / size_of::<Block>()];
    let (start, mut parts) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(1) {
        cipher.decrypt_blocks(&mut blocks);
        parts += 1;
    }
    let bytes = parts * PART_BYTES as u64;
    println!("{:.0}", bytes as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 20));
}
