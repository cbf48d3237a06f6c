//! Listings of large directories: the cost per entry as a directory grows, compared with the kernel.

use std::fmt::Write as _;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::Summary;
use disk::FileDevice;
use ext4::{Ext4, OpenOptions};
use testkit::{KernelMount, Mke2fs, MountOptions};
use vfs::{Cookie, FileSystem, Ino, NewInode};

use crate::measurements::options::ListOptions;
use crate::measurements::table::Table;

/// Ways of listing a directory.
const WAYS: [&str; 3] = ["diskwright, hash order", "diskwright, any order", "kernel ext4"];

/// Lists directories of all requested sizes. Returns a table of nanoseconds per entry.
pub(crate) fn run(options: &ListOptions) -> Result<Table, String> {
    let mut table = Table::new(&["entries", "way", "runs", "ns/entry", "spread"]);
    for &entries in &options.entries {
        cli::terminal::message(&format_args!("a directory of {entries}"));
        let path =
            options.scratch.join(format!("diskwright-bench-list-{}.img", std::process::id()));
        let times = measure(&path, entries, options.rounds);
        let _ = std::fs::remove_file(&path);
        for (way, times) in WAYS.iter().zip(times?) {
            let summary = Summary::of(&times).ok_or("no rounds")?;
            let per_entry = summary.median_s * 1e9 / f64::from(entries);
            table.row(vec![
                entries.to_string(),
                (*way).to_owned(),
                summary.runs.to_string(),
                format!("{per_entry:.0}"),
                format!("{:.0} %", summary.spread * 100.0),
            ]);
        }
    }
    Ok(table)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn measure(path: &Path, entries: u32, rounds: u32) -> Result<[Vec<Duration>; 3], String> {
    let fs = make(path, entries)?;
    let dir = fs.lookup(fs.root(), b"d").map_err(text)?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        times[0].push(list(&fs, dir, entries, true)?);
        times[1].push(list(&fs, dir, entries, false)?);
    }
    fs.close().map_err(text)?;
    let mount = KernelMount::new(path, &MountOptions::read_only("ext4"));
    // The first round loads the directory into memory. Our image is already in memory.
    for round in 0..=rounds {
        let start = Instant::now();
        let count = std::fs::read_dir(mount.path().join("d")).map_err(text)?.count();
        if round > 0 {
            times[2].push(start.elapsed());
        }
        if count != entries as usize {
            return Err(format!("the kernel lists {count} of {entries} entries"));
        }
    }
    mount.unmount();
    Ok(times)
}

/// Creates an image with a directory `d` of `entries` empty files.
fn make(path: &Path, entries: u32) -> Result<Ext4, String> {
    let bytes = u64::from(entries) * 1024 + (1 << 30);
    let options = Mke2fs::new("ext4").inode_count(entries + 1000);
    options.extended("lazy_itable_init=0,lazy_journal_init=0,nodiscard").create(path, bytes);
    let file = File::options().read(true).write(true).open(path).map_err(text)?;
    let device = Arc::new(FileDevice::new(file).map_err(text)?);
    // The whole directory stays in memory, as in the kernel.
    let options = OpenOptions { cache_bytes: 2 << 30, ..OpenOptions::default() };
    let fs = Ext4::open_writable(device, &options).map_err(text)?;
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    let dir = fs.mkdir(fs.root(), b"d", &new).map_err(text)?;
    let mut name = String::new();
    for entry in 0..entries {
        name.clear();
        let _ = write!(name, "file-{entry:08}");
        fs.create(dir, name.as_bytes(), &new).map_err(text)?;
    }
    fs.sync().map_err(text)?;
    Ok(fs)
}

fn list(fs: &Ext4, dir: Ino, entries: u32, in_order: bool) -> Result<Duration, String> {
    let start = Instant::now();
    let mut count = 0;
    let mut each = |_: vfs::DirEntry<'_>| {
        count += 1;
        ControlFlow::Continue(())
    };
    if in_order {
        fs.readdir(dir, Cookie(0), &mut each).map_err(text)?;
    } else {
        fs.for_each_entry(dir, &mut each).map_err(text)?;
    }
    let elapsed = start.elapsed();
    // `.` and `..` are the two additional entries.
    if count == entries + 2 { Ok(elapsed) } else { Err(format!("{count} of {entries} entries")) }
}
