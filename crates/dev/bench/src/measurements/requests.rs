//! Small random requests to one file, and the time of a sync: the access pattern of a database.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::measurements::options::RequestsOptions;
use crate::measurements::table::Table;

/// Size of a request, and alignment of buffers and offsets, in bytes.
const REQUEST: usize = 4096;
/// Write size during the creation of the file.
const PIECE: usize = 1 << 20;
/// Value of all bytes of the file, which reads verify.
const FILLED: u8 = 0xA5;
/// Cases: name, whether it writes, and number of concurrent requests.
const CASES: [(&str, bool, u64); 4] =
    [("read", false, 1), ("read", false, 16), ("write", true, 1), ("write", true, 16)];

/// Sends requests to a file in the directory, which is removed at the end.
pub(crate) fn run(options: &RequestsOptions) -> Result<Table, String> {
    let path = options.directory.join(format!("diskwright-bench-{}", std::process::id()));
    let outcome = measure(&path, options);
    let removed = std::fs::remove_file(&path);
    let table = outcome.map_err(|error| format!("{}: {error}", path.display()))?;
    removed.map_err(|error| error.to_string())?;
    Ok(table)
}

fn measure(path: &Path, options: &RequestsOptions) -> io::Result<Table> {
    let requests = (options.mebibytes * PIECE as u64) / REQUEST as u64;
    fill(path, options.mebibytes)?;
    let time = Duration::from_secs_f64(options.seconds);
    let mut table = Table::new(&["what", "in flight", "requests/s", "median us", "99 % us"]);
    let mut add = |what: &str, under_way: u64, took: Duration, mut times: Vec<Duration>| {
        times.sort_unstable();
        let at = |share: f64| {
            let at = (times.len() as f64 * share) as usize;
            times.get(at.min(times.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64)
        };
        table.row(vec![
            what.to_owned(),
            under_way.to_string(),
            format!("{:.0}", times.len() as f64 / took.as_secs_f64()),
            format!("{:.1}", at(0.5) * 1e6),
            format!("{:.1}", at(0.99) * 1e6),
        ]);
    };
    for (what, writes, under_way) in CASES {
        let (took, times) = at_once(path, requests, time, (writes, under_way))?;
        add(what, under_way, took, times);
    }
    let (took, times) = synced(path, requests, time)?;
    add("write and fsync", 1, took, times);
    Ok(table)
}

/// Creates the file with all of its space allocated.
fn fill(path: &Path, mebibytes: u64) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let piece = vec![FILLED; PIECE];
    for _ in 0..mebibytes {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// Runs `O_DIRECT` requests on several threads, each with one request at a time.
fn at_once(
    path: &Path,
    requests: u64,
    time: Duration,
    (writes, under_way): (bool, u64),
) -> io::Result<(Duration, Vec<Duration>)> {
    let start = Instant::now();
    let one = |number: u64| {
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        // A buffer of twice the size contains an aligned part.
        let mut memory = vec![FILLED; 2 * REQUEST];
        let from = memory.as_ptr().align_offset(REQUEST);
        let buffer = &mut memory[from..from + REQUEST];
        let mut random = fastrand::Rng::with_seed(number);
        let mut times = Vec::new();
        // A thread that starts late makes at least one request.
        while times.is_empty() || start.elapsed() < time {
            let place = random.u64(..requests) * REQUEST as u64;
            let began = Instant::now();
            if writes {
                file.write_all_at(buffer, place)?;
            } else {
                file.read_exact_at(buffer, place)?;
            }
            times.push(began.elapsed());
            if buffer[0] != FILLED || buffer[REQUEST - 1] != FILLED {
                return Err(io::Error::other("read something else than was written"));
            }
        }
        Ok(times)
    };
    let all: Vec<io::Result<Vec<Duration>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..under_way).map(|number| scope.spawn(move || one(number))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    let took = start.elapsed();
    let times = all.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok((took, times.into_iter().flatten().collect()))
}

/// Runs sequential requests through the cache, with a sync after each.
fn synced(path: &Path, requests: u64, time: Duration) -> io::Result<(Duration, Vec<Duration>)> {
    let file = OpenOptions::new().write(true).open(path)?;
    let mut random = fastrand::Rng::with_seed(99);
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || start.elapsed() < time {
        let place = random.u64(..requests) * REQUEST as u64;
        let began = Instant::now();
        file.write_all_at(&[FILLED; REQUEST], place)?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok((start.elapsed(), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_row_and_nothing_stays() {
        let scratch = testkit::scratch();
        let options =
            RequestsOptions { directory: scratch.path().into(), mebibytes: 1, seconds: 0.02 };
        let table: serde_json::Value =
            serde_json::from_str(&run(&options).unwrap().json()).unwrap();
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), CASES.len() + 1);
        for row in rows {
            assert!(row[2].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{row}");
        }
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
