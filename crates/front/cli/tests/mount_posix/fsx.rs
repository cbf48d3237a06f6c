//! `fsx`: random reads, writes, mappings, truncation, allocation, holes and copies of one file.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Need, satisfied};

use crate::place::{Place, prove_on_both, run, tool};

/// Number of operations per run: later operations of `fsx` take longer and longer.
fn operations() -> u64 {
    testkit::effort(4_000, 5_000, 24_000)
}

/// Seeds of the runs with each kind of file.
const SEEDS: [u64; 2] = [1, 20_240_229];

/// Duration of further runs with new seeds.
fn more() -> Duration {
    Duration::from_secs(testkit::effort(0, 0, 3_600))
}

/// Files larger than a request, with all operations and unaligned sizes. Sizes are never 0, which
/// posix_fallocate rejects.
const LARGE: &str = "
flen = 3145728
[opsize]
max = 196608
min = 1
";

/// Small files whose operations repeatedly affect the same pages, without an msync after each
/// mapped write: only the kernel's cache has the current data.
const SMALL: &str = "
flen = 65536
nomsyncafterwrite = true
[opsize]
max = 9000
min = 1
";

/// Aligned operations, as of programs that know the block size. Without posix_fallocate: near the
/// end `fsx` aligns its length to 0, which is an error.
const ALIGNED: &str = "
flen = 2097152
[opsize]
max = 131072
align = 4096
";

const WEIGHTS: &str = "
[weights]
close_open = 2
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 12
truncate = 4
fsync = 1
fdatasync = 1
posix_fallocate = FALLOCATE
punch_hole = 4
sendfile = 3
posix_fadvise = 2
copy_file_range = 4
";

fn exercise(place: &Place, name: &str, configuration: &str, seed: u64) {
    let config = place.home().join(format!("{name}.toml"));
    let fallocate = if configuration == ALIGNED { "0" } else { "3" };
    let weights = WEIGHTS.replace("FALLOCATE", fallocate);
    fs::write(&config, format!("{configuration}{weights}")).unwrap();
    let artifacts = place.home().join(format!("{name}-{seed}"));
    fs::create_dir(&artifacts).unwrap();
    println!("fsx {name}, seed {seed}, {} operations", operations());
    let mut command = tool("fsx");
    command.arg("-f").arg(config).arg("-P").arg(artifacts);
    command.args(["-N", &operations().to_string(), "-S", &seed.to_string()]);
    let file = place.join(format!("{name}-{seed}"));
    run(command.arg(&file));
    fs::remove_file(file).unwrap();
}

/// Several runs at once, so that requests for different files overlap.
fn contents_are_what_fsx_expects(place: &mut Place) {
    if !satisfied("fsx", &[Need::Tool("fsx")]) {
        return;
    }
    let end = Instant::now() + more();
    let place = &*place;
    thread::scope(|scope| {
        for (name, configuration) in [("large", LARGE), ("small", SMALL), ("aligned", ALIGNED)] {
            scope.spawn(move || {
                for &seed in &SEEDS[..testkit::effort(1, 1, 2)] {
                    exercise(place, name, configuration, seed);
                }
                while Instant::now() < end {
                    exercise(place, name, configuration, fastrand::u64(..1 << 32));
                }
            });
        }
    });
}

prove_on_both!(contents_are_what_fsx_expects);
