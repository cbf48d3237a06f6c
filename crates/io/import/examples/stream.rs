//! Streams a source and prints how long that took: `stream SOURCE [THREADS] [RUNS]`.
//! `stream --create DIRECTORY COUNT` makes a directory of empty files to measure.

extern crate diskwright_import as import;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use import::{EntryKind, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    if arg(0) == Some("--create") {
        let directory = Path::new(arg(1).ok_or("no directory")?);
        fs::create_dir_all(directory)?;
        for i in 0..arg(2).ok_or("no count")?.parse()? {
            // Scattered names, so that neither creation nor sorting gets them in order.
            let scattered = u64::wrapping_mul(i, 0x9e37_79b9_7f4a_7c15);
            File::create(directory.join(format!("file-{scattered:016x}")))?;
        }
        return Ok(());
    }
    let path = Path::new(arg(0).ok_or("usage: stream SOURCE [THREADS] [RUNS]")?);
    let threads = arg(1).unwrap_or("2").parse()?;
    for _ in 0..arg(2).unwrap_or("1").parse()? {
        let start = Instant::now();
        let mut source = import::open(path, &Options { threads, exclude: Vec::new() })?;
        let (mut entries, mut bytes, mut xattrs, mut streamed) = (0_u64, 0, 0, 0);
        let mut buffer = vec![0; 1 << 20];
        while let Some(entry) = source.next_entry()? {
            entries += 1;
            xattrs += entry.xattrs.len();
            if let EntryKind::File(content) = &entry.kind {
                bytes += content.data_len();
                loop {
                    match source.read(&mut buffer)? {
                        0 => break,
                        n => streamed += n as u64,
                    }
                }
            }
        }
        let elapsed = start.elapsed();
        println!(
            "{:.2} ms: {entries} entries, {xattrs} xattrs, {bytes} bytes of data, {streamed} streamed",
            elapsed.as_secs_f64() * 1e3
        );
    }
    let status = fs::read_to_string("/proc/self/status")?;
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or(""));
    Ok(())
}
