//! Changes that are written together once all of them are known.

use disk::BlockDevice;
use operations::repair::Staging;

/// Offsets and contents to write.
#[derive(Default)]
pub(super) struct Draft {
    writes: Vec<(u64, Vec<u8>)>,
}

impl Draft {
    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        self.writes.push((offset, bytes));
    }

    /// Writes everything, or nothing if one of the positions cannot be read. Returns whether it was written.
    ///
    /// # Errors
    /// Only errors that reading did not show before.
    pub(super) fn apply(self, staging: &Staging) -> vfs::Result<bool> {
        let mut page = Vec::new();
        for (offset, bytes) in &self.writes {
            // The surrounding bytes must be readable too, because the staging keeps whole pages.
            let start = offset / operations::repair::PAGE_BYTES * operations::repair::PAGE_BYTES;
            let end =
                (offset + bytes.len() as u64).next_multiple_of(operations::repair::PAGE_BYTES);
            page.resize((end.min(staging.len()).saturating_sub(start)) as usize, 0);
            if staging.read_at(start, &mut page).is_err() {
                return Ok(false);
            }
        }
        for (offset, bytes) in &self.writes {
            staging.write_at(*offset, bytes).map_err(vfs::Error::Device)?;
        }
        Ok(true)
    }
}
