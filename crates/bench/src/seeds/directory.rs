//! The table of the seed of 2018: files made in one directory, by their number, for every way of
//! finding a place for a name, and in the kernel.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use oracle::{KernelMount, MountOptions};
use rustix::fs::{FileType, Mode, OFlags};
use vfs::FileSystem;
use workload::report::Summary;
use xfs::FreeIndexStrategy;

use super::image::{NEW, Names, Ours, judge};
use super::text;
use crate::DirectoryOptions;

/// Names that are made up at once, outside of what is timed.
const BATCH: usize = 1000;
/// Bytes of an image per file: four times those of inodes, which may take a quarter, and some for
/// entries. They take memory only when written.
const BYTES_PER_FILE: u64 = 2400;
/// Files of a small directory that are made in one timing, in directories of new images.
const FILES_PER_TIMING: u32 = 100_000;

#[derive(Clone, Copy)]
enum Who {
    Ours(FreeIndexStrategy),
    Kernel,
}

/// Makes directories of all sizes asked for; a table of rates.
pub(crate) fn run(options: &DirectoryOptions) -> Result<String, String> {
    let mut table = String::from("| files | way | runs | s | files/s | spread |\n");
    table.push_str("|--:|---|--:|--:|--:|--:|\n");
    let mut contestants: Vec<(Who, &str)> =
        super::strategies(&options.only).into_iter().map(|(s, n)| (Who::Ours(s), n)).collect();
    if !options.alone {
        contestants.push((Who::Kernel, "kernel XFS"));
    }
    for &files in &options.files {
        let mut times = vec![Vec::new(); contestants.len()];
        // The first round also warms memory up. It counts where the case is long enough.
        let is_long = files >= options.once;
        let rounds = if is_long { 0..1 } else { 0..options.rounds + 1 };
        for round in rounds {
            for ((who, name), times) in contestants.iter().zip(&mut times) {
                eprintln!("bench: {files} files, {name}, round {round}");
                let time = measure(*who, files, options)?;
                if round > 0 || is_long {
                    times.push(time);
                }
            }
        }
        for ((_, name), times) in contestants.iter().zip(&times) {
            let summary = Summary::of(times).ok_or("no rounds")?;
            let rate = f64::from(files) / summary.median_s;
            let (runs, spread) = (summary.runs, summary.spread * 100.0);
            let seconds = summary.median_s;
            let _ = writeln!(
                table,
                "| {files} | {name} | {runs} | {seconds:.3} | {rate:.0} | {spread:.0} % |"
            );
        }
    }
    Ok(table)
}

/// The time that making `files` files in one directory takes. Small directories are made several
/// times, in images of their own; the time is their mean.
fn measure(who: Who, files: u32, options: &DirectoryOptions) -> Result<Duration, String> {
    let repeats = (FILES_PER_TIMING / files).max(1);
    let mut total = Duration::ZERO;
    for repeat in 0..repeats {
        let path =
            options.scratch.join(format!("diskwright-bench-directory-{}.img", std::process::id()));
        total += match who {
            Who::Ours(strategy) => ours(strategy, files, repeat == 0, options, &path)?,
            Who::Kernel => kernel(files, &path)?,
        };
    }
    Ok(total / repeats)
}

fn image_bytes(files: u32) -> u64 {
    (u64::from(files) * BYTES_PER_FILE + (1 << 30)).next_multiple_of(1 << 20)
}

fn ours(
    strategy: FreeIndexStrategy,
    files: u32,
    is_judged: bool,
    options: &DirectoryOptions,
    path: &Path,
) -> Result<Duration, String> {
    let (fs, device) = Ours { bytes: image_bytes(files), parent: true, strategy }.make()?;
    let dir = fs.mkdir(fs.root(), b"d", &NEW).map_err(text)?;
    let mut names = Names::new(1);
    let mut total = Duration::ZERO;
    let mut left = files as usize;
    while left > 0 {
        let batch = names.batch(left.min(BATCH));
        let start = Instant::now();
        for name in batch {
            fs.create(dir, name, &NEW).map_err(text)?;
        }
        total += start.elapsed();
        left -= batch.len();
    }
    if is_judged && files <= options.judge_max {
        judge(fs, &device, path)?;
    }
    Ok(total)
}

fn kernel(files: u32, path: &Path) -> Result<Duration, String> {
    let _image = Image::make(path.to_owned(), image_bytes(files), true)?;
    let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
    let dir = mount.path().join("d");
    std::fs::create_dir(&dir).map_err(text)?;
    let dir = rustix::fs::open(&dir, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty());
    let dir = dir.map_err(text)?;
    let mut names = Names::new(1);
    let mut total = Duration::ZERO;
    let mut left = files as usize;
    while left > 0 {
        let batch = names.batch(left.min(BATCH));
        let start = Instant::now();
        for name in batch {
            // mknod makes a file without opening it, which is the kernel's fastest way.
            let mode = Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(&dir, &name[..], FileType::RegularFile, mode, 0).map_err(text)?;
        }
        total += start.elapsed();
        left -= batch.len();
    }
    drop(dir);
    mount.unmount();
    Ok(total)
}

/// An image made by mkfs.xfs, removed when dropped.
pub(super) struct Image {
    path: PathBuf,
}

impl Image {
    pub(super) fn make(path: PathBuf, bytes: u64, parent: bool) -> Result<Self, String> {
        let naming = format!("-n parent={}", u8::from(parent));
        oracle::MkfsXfs::default().options(&naming).create(&path, bytes);
        Ok(Self { path })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
