//! Recovery of a crashed image, and checks of the result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};

use super::allowed::{self, ModelSnapshot};
use super::{CrashCase, CrashTarget};
use crate::fs_tree::{FsTree, Rules};

/// A crashed image after recovery.
pub(super) struct Recovered {
    device: Arc<MemoryDevice>,
    pub(super) tree: FsTree,
}

impl Recovered {
    pub(super) fn case<'c>(&'c self, crashed: &'c MemoryDevice) -> CrashCase<'c> {
        CrashCase { crashed, recovered: &self.device, tree: &self.tree }
    }
}

/// Opens a crashed image, compares it with the allowed states, and closes it.
pub(super) fn recover(
    target: &dyn CrashTarget,
    crashed: &MemoryDevice,
    allowed: &[ModelSnapshot],
) -> Result<Recovered, String> {
    let device = Arc::new(crashed.fork());
    let fs = target.open(device.clone()).map_err(|error| format!("open: {error}"))?;
    let tree = FsTree::of(fs.file_system())?;
    if target.files_may_wait() {
        allowed::check(&allowed::without_lost(allowed, &tree), &tree)?;
    } else {
        allowed::check(allowed, &tree)?;
    }
    fs.close().map_err(|error| format!("close: {error}"))?;
    Ok(Recovered { device, tree })
}

/// Interrupts the recovery of a crashed image at a random point and repeats it.
pub(super) fn recrash(
    target: &dyn CrashTarget,
    crashed: &MemoryDevice,
    expected: &FsTree,
    seed: u64,
) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let recording = Arc::new(RecordingDevice::new(Arc::new(crashed.fork())));
    let opened = target.open(recording.clone()).map_err(|error| format!("open: {error}"))?;
    drop(opened);
    let events = recording.take();
    let end = rng.usize(..=events.len());
    let last_flush = events[..end].iter().rposition(|event| *event == Event::Flush).unwrap_or(0);
    let image = crashed.fork();
    for (number, event) in events[..end].iter().enumerate() {
        if number < last_flush || rng.bool() {
            event.replay(&image).map_err(|error| error.to_string())?;
        }
    }
    let device: Arc<dyn BlockDevice> = Arc::new(image);
    let fs = target.open(device).map_err(|error| format!("recovery stopped, open: {error}"))?;
    let tree = FsTree::of(fs.file_system()).map_err(|what| format!("recovery stopped: {what}"))?;
    let differences = expected.differences(&tree, Rules::default());
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!(
        "recovery stopped before event {end} of {} and done again shows something else:\n{}",
        events.len(),
        differences.join("\n")
    ))
}

/// Converts a panic into an error, so that it does not end the exploration.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a message")))
    })
}
