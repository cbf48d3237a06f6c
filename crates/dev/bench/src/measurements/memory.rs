//! Memory of an open file system per cached inode and per cached directory entry.

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use testkit::Format;
use vfs::{Cookie, FileSystem, FileType, Ino};

use crate::measurements::options::MemoryOptions;
use crate::measurements::table::Table;

/// Large enough for everything to stay cached.
const CACHE_BYTES: usize = 16 << 30;
/// Page size in bytes, the kernel's unit.
const PAGE: u64 = 4096;

/// Walks an image twice: all entries, then all inodes.
pub(crate) fn run(options: &MemoryOptions) -> Result<Table, String> {
    let file = File::open(&options.image).map_err(text)?;
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(file).map_err(text)?);
    let fs: Box<dyn FileSystem> = match Format::of(&options.image) {
        Format::Ext => {
            let options = ext4::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Box::new(ext4::Ext4::open(device, &options).map_err(text)?)
        }
        Format::Xfs => {
            let options = xfs::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Box::new(xfs::Xfs::open(device, &options).map_err(text)?)
        }
    };
    let totals = fs.statfs().map_err(text)?;
    let used = totals.inodes.saturating_sub(totals.inodes_free) as usize;
    // Allocated and touched before the first measurement, so that it affects none.
    let mut inodes = vec![1; used + 16];
    inodes.clear();
    let start = resident()?;
    let (entries, inodes) = list(&*fs, inodes)?;
    let listed = resident()?;
    for &ino in &inodes {
        fs.attributes(Ino(ino)).map_err(text)?;
    }
    let known = resident()?;
    let mut table = Table::new(&["what", "how many", "MiB", "bytes each"]);
    for (what, count, bytes) in
        [("entries", entries, listed - start), ("inodes", inodes.len() as u64, known - listed)]
    {
        let each = bytes as f64 / count.max(1) as f64;
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        let cells =
            [what.into(), count.to_string(), format!("{mebibytes:.0}"), format!("{each:.0}")];
        table.row(cells.into());
    }
    Ok(table)
}

/// Lists every directory. Returns the number of entries, and all inode numbers.
fn list(fs: &dyn FileSystem, mut inodes: Vec<u64>) -> Result<(u64, Vec<u64>), String> {
    let (mut pending, mut entries) = (vec![fs.root()], 0);
    while let Some(dir) = pending.pop() {
        fs.readdir(dir, Cookie::default(), &mut |entry| {
            entries += 1;
            if !matches!(entry.name, b"." | b"..") {
                inodes.push(entry.ino.0);
                if entry.file_type == Some(FileType::Directory) {
                    pending.push(entry.ino);
                }
            }
            ControlFlow::Continue(())
        })
        .map_err(text)?;
    }
    Ok((entries, inodes))
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64, String> {
    let statistics = std::fs::read_to_string("/proc/self/statm").map_err(text)?;
    let pages = statistics.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * PAGE).ok_or_else(|| format!("statm: {statistics}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
