//! Overhead of a file of the library over the underlying call of the file system.

use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{BlockDevice, MemoryDevice};
use diskwright::fs::{Ext4Options, File, FormatOptions, Image, ImageOptions, XfsOptions};
use vfs::{FileSystem, Ino};

use crate::measurements::options::LibraryOptions;
use crate::measurements::table::Table;

/// Size of the image in bytes.
const IMAGE_BYTES: u64 = 512 << 20;
/// Size of the file in bytes, and the value of all its bytes.
const FILE_BYTES: u64 = 64 << 20;
const FILLED: u8 = 0xA5;
/// Request sizes in bytes.
const REQUESTS: [usize; 3] = [512, 4 << 10, 64 << 10];

/// Reads one file from memory through both interfaces alternately.
pub(crate) fn run(options: &LibraryOptions) -> Result<Table, String> {
    let columns = ["format", "request", "FileSystem::read ns", "File::read_at", "Read for File"];
    let mut table = Table::new(&columns);
    let formats: [(&str, FormatOptions); 2] =
        [("ext4", Ext4Options::new().into()), ("xfs", XfsOptions::new().into())];
    for (name, format) in formats {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        fill(&device, format).map_err(text)?;
        let raw = open_raw(name, device.clone()).map_err(text)?;
        let ino = raw.lookup(raw.root(), b"file").map_err(text)?;
        let image = ImageOptions::new().open_device(device).map_err(text)?;
        let mut file = File::open(&image, "file").map_err(text)?;
        for request in REQUESTS {
            let compared = compare(&*raw, ino, &mut file, request, options).map_err(text)?;
            table.row(vec![
                name.to_owned(),
                request.to_string(),
                format!("{:.0}", compared.raw_ns),
                format!("{:.3}", compared.read_at),
                format!("{:.3}", compared.read),
            ]);
        }
    }
    Ok(table)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn fill(device: &Arc<MemoryDevice>, format: FormatOptions) -> diskwright::Result<()> {
    let image = Image::format(device.clone(), format)?;
    let file = File::create_new(&image, "file")?;
    let piece = vec![FILLED; 1 << 20];
    for at in (0..FILE_BYTES).step_by(piece.len()) {
        file.write_at(&piece, at)?;
    }
    drop(file);
    image.close()
}

fn open_raw(name: &str, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn FileSystem>> {
    Ok(match name {
        "ext4" => Box::new(ext4::Ext4::open(device, &ext4::OpenOptions::default())?),
        _ => Box::new(xfs::Xfs::open(device, &xfs::OpenOptions::default())?),
    })
}

/// Time of the underlying call, and the relative times of the two others.
struct Compared {
    raw_ns: f64,
    read_at: f64,
    read: f64,
}

fn compare(
    raw: &dyn FileSystem,
    ino: Ino,
    file: &mut File,
    request: usize,
    options: &LibraryOptions,
) -> std::io::Result<Compared> {
    let mut buffer = vec![0; request];
    let places = FILE_BYTES / request as u64;
    let calls = places.min(options.calls);
    let (mut times, mut read_at, mut read) = (Vec::new(), Vec::new(), Vec::new());
    // The first round is a warm-up.
    for turn in 0..=options.rounds {
        let mut random = fastrand::Rng::with_seed(turn.into());
        let first = random.u64(..places);
        let place = |number: u64| (first + number * 7919) % places * request as u64;
        // The first read brings the contents into the processor's cache and is not counted for either.
        time(calls, |number| Ok(raw.read(ino, place(number), &mut buffer)?))?;
        let beneath = time(calls, |number| Ok(raw.read(ino, place(number), &mut buffer)?))?;
        check(&buffer);
        let at = time(calls, |number| Ok(file.read_at(&mut buffer, place(number))?))?;
        check(&buffer);
        // Both run sequentially: a cursor has no random access.
        let start = first.min(places - calls) * request as u64;
        time(calls, |number| Ok(raw.read(ino, start + number * request as u64, &mut buffer)?))?;
        let in_order = time(calls, |number| {
            Ok(raw.read(ino, start + number * request as u64, &mut buffer)?)
        })?;
        file.seek(SeekFrom::Start(start))?;
        let by_cursor = time(calls, |_| file.read(&mut buffer))?;
        check(&buffer);
        if turn > 0 {
            times.push(beneath.as_nanos() as f64 / calls as f64);
            read_at.push(at.as_secs_f64() / beneath.as_secs_f64());
            read.push(by_cursor.as_secs_f64() / in_order.as_secs_f64());
        }
    }
    Ok(Compared { raw_ns: median(times), read_at: median(read_at), read: median(read) })
}

fn time(
    calls: u64,
    mut call: impl FnMut(u64) -> std::io::Result<usize>,
) -> std::io::Result<Duration> {
    let start = Instant::now();
    for number in 0..calls {
        black_box(call(number)?);
    }
    Ok(start.elapsed())
}

fn check(buffer: &[u8]) {
    assert!(buffer.iter().all(|byte| *byte == FILLED), "read something else than was written");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_row() {
        let table = run(&LibraryOptions { rounds: 1, calls: 20 }).unwrap();
        let table: serde_json::Value = serde_json::from_str(&table.json()).unwrap();
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * REQUESTS.len());
        for row in rows {
            assert!(row[3].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{row}");
        }
    }
}
