//! Times three calls of the library of Rust, as `tests/c/speed.c` times those of C: speed IMAGE CALLS. `scripts/bench-capi`
//! runs both by turns.

use std::hint::black_box;
use std::time::Instant;

use diskwright::fs::{File, Image};

/// Bytes of the file that is read, all of it in pieces of 4 KiB.
const FILE_BYTES: u64 = 16 << 20;
const PIECE_BYTES: u64 = 4 << 10;

fn main() -> diskwright::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(Ok(calls))) = (arguments.next(), arguments.next().map(|n| n.parse()))
    else {
        return Err(diskwright::Error::Usage("write: speed IMAGE CALLS".into()));
    };
    let calls: u64 = calls;
    let image = Image::open(path)?;

    let file = File::open(&image, "/file")?;
    let mut buffer = [0; PIECE_BYTES as usize];
    let (mut place, mut sum) = (0, 0_u64);
    let start = Instant::now();
    for _ in 0..calls {
        place = (place + 7919 * PIECE_BYTES) % FILE_BYTES;
        sum += file.read_at(&mut buffer, place)? as u64;
    }
    tell("pread", start, calls);
    assert_eq!(sum, calls * PIECE_BYTES);

    let start = Instant::now();
    for _ in 0..calls {
        sum = sum.wrapping_add(black_box(image.metadata("/dir/sub/name")?).len());
    }
    tell("stat", start, calls);

    let start = Instant::now();
    let mut names = 0;
    while names < calls {
        for entry in image.read_dir("/names")? {
            sum = sum.wrapping_add(black_box(entry?).file_name().len() as u64);
            names += 1;
        }
    }
    tell("list", start, names);
    black_box(sum);
    Ok(())
}

fn tell(what: &str, start: Instant, calls: u64) {
    println!("{what} {:.1}", start.elapsed().as_nanos() as f64 / calls as f64);
}
