//! Writing the steps of a plan to the image.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use disk::{BlockDevice, end_at};
use vfs::{Error, Result};

use crate::repair::{PAGE_BYTES, Page, Staging, Step, StepWriter};

/// Maximum size of a write in bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Returns all pages that steps change.
pub fn pages_of(steps: &[Step]) -> BTreeSet<u64> {
    steps.iter().flat_map(|step| step.pages.keys().copied()).collect()
}

/// Returns whether `writer` accepts the steps, and each fits into one transaction, so that it is atomic.
pub fn fits(writer: &dyn StepWriter, steps: &[Step]) -> bool {
    steps.iter().all(|step| blocks_max(step, writer.block_size()) <= writer.blocks_max())
        && writer.accepts(steps)
}

/// Returns the maximum number of blocks that a step changes.
fn blocks_max(step: &Step, block_size: usize) -> usize {
    step.pages.len() * (PAGE_BYTES as usize).div_ceil(block_size)
}

/// Writes steps in place, the pages of all steps in ascending order. Use it only for an image with an undo file,
/// because an interruption leaves a mixture of old and new pages. Calls `progress` with the number of written pages and
/// the total; it returns whether to continue.
///
/// # Errors
/// If the device fails. `Interrupted` if `progress` returns false.
pub fn write_in_place(
    device: &dyn BlockDevice,
    steps: &[Step],
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let mut last: BTreeMap<u64, &Page> = BTreeMap::new();
    for step in steps {
        last.extend(step.pages.iter().map(|(number, page)| (*number, page)));
    }
    let total = last.len() as u64;
    let mut run: Option<(u64, Vec<u8>)> = None;
    for (done, (number, page)) in last.into_iter().enumerate() {
        let start = number * PAGE_BYTES;
        let count = PAGE_BYTES.min(end_at(device, start).saturating_sub(start)) as usize;
        let fits_on = |(at, bytes): &(u64, Vec<u8>)| {
            at + bytes.len() as u64 == start && bytes.len() < WRITE_BYTES_MAX
        };
        if !run.as_ref().is_some_and(fits_on) {
            write_run(device, run.take())?;
            if !progress(done as u64, total) {
                return Err(Error::Device(io::ErrorKind::Interrupted.into()));
            }
        }
        run.get_or_insert_with(|| (start, Vec::new())).1.extend_from_slice(&page[..count]);
    }
    write_run(device, run)?;
    device.flush().map_err(Error::Device)?;
    progress(total, total);
    Ok(())
}

fn write_run(device: &dyn BlockDevice, run: Option<(u64, Vec<u8>)>) -> Result<()> {
    let Some((start, bytes)) = run else { return Ok(()) };
    device.write_at(start, &bytes).map_err(Error::Device)
}

/// Writes steps through the image's log: each is atomic across a crash, in order. `device` is the image, after `writer`
/// has written back the contents of its log. Calls `progress` as [`write_in_place`] does, but counts steps.
///
/// # Errors
/// If the device fails. If `progress` returns false, it ends between two steps, with an empty log and `Interrupted`.
pub fn write_through_log(
    device: std::sync::Arc<dyn BlockDevice>,
    mut writer: Box<dyn StepWriter>,
    steps: &[Step],
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let (block_size, blocks_max) = (writer.block_size(), writer.blocks_max());
    // The state of the device after the writes that are still in progress.
    let ahead = Staging::new(device);
    let mut together: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let total = steps.len() as u64;
    for (done, step) in steps.iter().enumerate() {
        if !progress(done as u64, total) {
            write_together(&mut *writer, &mut together)?;
            writer.close()?;
            return Err(Error::Device(io::ErrorKind::Interrupted.into()));
        }
        let blocks = changed_blocks(&ahead, step, block_size).map_err(Error::Device)?;
        let more = blocks.keys().filter(|block| !together.contains_key(block)).count();
        if together.len() + more > blocks_max {
            write_together(&mut *writer, &mut together)?;
        }
        together.extend(blocks);
    }
    write_together(&mut *writer, &mut together)?;
    writer.close()?;
    progress(total, total);
    Ok(())
}

fn write_together(
    writer: &mut dyn StepWriter,
    together: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<()> {
    if !together.is_empty() {
        writer.write(together)?;
        together.clear();
    }
    Ok(())
}

/// Returns the whole blocks that a step changes, in their state after it.
fn changed_blocks(
    ahead: &Staging,
    step: &Step,
    block_size: usize,
) -> io::Result<BTreeMap<u64, Vec<u8>>> {
    let size = block_size as u64;
    let numbers: BTreeSet<u64> = step
        .pages
        .keys()
        .flat_map(|page| {
            let start = page * PAGE_BYTES;
            // A partial block at the end of the image does not belong to the file system.
            let end = (start + PAGE_BYTES).min(end_at(ahead, start) / size * size);
            start / size..end.div_ceil(size)
        })
        .collect();
    let read = |number: u64| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; block_size];
        ahead.read_at(number * size, &mut bytes)?;
        Ok(bytes)
    };
    let before = numbers.iter().map(|&number| read(number)).collect::<io::Result<Vec<_>>>()?;
    for (number, page) in &step.pages {
        let start = number * PAGE_BYTES;
        let count = PAGE_BYTES.min(end_at(ahead, start) - start) as usize;
        ahead.write_at(start, &page[..count])?;
    }
    let mut blocks = BTreeMap::new();
    for (number, before) in numbers.into_iter().zip(before) {
        let after = read(number)?;
        if after != before {
            blocks.insert(number, after);
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::repair::Action;
    use disk::MemoryDevice;
    use parking_lot::Mutex;

    fn all(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Three steps over an image that does not end at a page boundary.
    fn steps(device: &Arc<MemoryDevice>) -> (Vec<Step>, Vec<u8>) {
        let staging = Staging::new(device.clone());
        for (offset, len) in [(100, 9000), (1024, 1024), (30_000, 720)] {
            staging.write_at(offset, &vec![offset as u8 | 1; len]).unwrap();
            staging.end_step(vec![Action::new("Some.")]).unwrap();
        }
        (staging.steps(), all(&staging))
    }

    /// A writer that writes immediately.
    struct Plain {
        device: Arc<MemoryDevice>,
        block_size: usize,
        transactions: Arc<Mutex<Vec<Vec<u64>>>>,
    }

    impl StepWriter for Plain {
        fn block_size(&self) -> usize {
            self.block_size
        }
        fn blocks_max(&self) -> usize {
            12
        }
        fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()> {
            self.transactions.lock().push(blocks.keys().copied().collect());
            for (block, bytes) in blocks {
                let offset = block * self.block_size as u64;
                self.device.write_at(offset, bytes).map_err(Error::Device)?;
            }
            Ok(())
        }
        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn both_ways_of_writing_give_the_planned_result() {
        let device = Arc::new(MemoryDevice::new(30_720));
        let (steps, expected) = steps(&device);
        for block_size in [1024, 4096, 2048] {
            let image = Arc::new(device.fork());
            let transactions = Arc::default();
            let plain = Plain { device: image.clone(), block_size, transactions };
            let transactions = plain.transactions.clone();
            assert!(fits(&plain, &steps));
            write_through_log(image.clone(), Box::new(plain), &steps, &mut |_, _| true).unwrap();
            let is_right = all(&*image) == expected;
            // The partial block at the end is not written: the last 2 KiB with a block size of 4 KiB.
            assert!(is_right || block_size == 4096, "{block_size}");
            if block_size == 1024 {
                // The second step changes a block of the first, and both fit into one transaction.
                let transactions = transactions.lock();
                assert_eq!(*transactions, [vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 29]]);
            }
        }
        let image = device.fork();
        write_in_place(&image, &steps, &mut |_, _| true).unwrap();
        assert_eq!(all(&image), expected);
        assert_eq!(pages_of(&steps), [0, 1, 2, 7].into());
    }

    #[test]
    fn progress_callbacks_can_cancel() {
        let device = Arc::new(MemoryDevice::new(30_720));
        let (steps, _) = steps(&device);
        let error = write_in_place(&*device, &steps, &mut |done, _| done == 0).unwrap_err();
        assert!(matches!(error, Error::Device(e) if e.kind() == io::ErrorKind::Interrupted));
    }
}
