//! Data ranges of a file, and complete reads.

use std::ops::ControlFlow;

use crate::{Corruption, ExtentPlace, FileSystem, Ino, Result};

/// A range of a file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Returns the data ranges of a file of `size` bytes: sorted, merged and within the size.
///
/// # Errors
/// `Corrupt` if ranges overlap or extend past the size.
pub fn data_runs(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut is_ordered = true;
    let mut position = 0;
    fs.extent_map(ino, 0, size, &mut |extent| {
        let end = extent.offset.checked_add(extent.len).filter(|&end| end <= size);
        let Some(end) = end.filter(|_| extent.offset >= position && extent.len > 0) else {
            is_ordered = false;
            return ControlFlow::Break(());
        };
        position = end;
        if matches!(extent.place, ExtentPlace::Device(_) | ExtentPlace::Inline) {
            match runs.last_mut() {
                Some(last) if last.offset + last.len == extent.offset => last.len += extent.len,
                _ => runs.push(Run { offset: extent.offset, len: extent.len }),
            }
        }
        ControlFlow::Continue(())
    })?;
    if !is_ordered {
        let problem = "runs overlap or are past the end of the file";
        return Err(Corruption::new("extent map", problem).of_inode(ino.0).into());
    }
    Ok(runs)
}

/// Fills `buf` with the bytes from `offset` on, which must be within the file.
///
/// # Errors
/// `Corrupt` if the contents end early.
pub fn read_exactly(fs: &dyn FileSystem, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match fs.read(ino, offset + done as u64, &mut buf[done..])? {
            0 => {
                let damage = Corruption::new("file contents", "unexpected end of file");
                return Err(damage.of_inode(ino.0).into());
            }
            count => done += count,
        }
    }
    Ok(())
}
