//! Prefetching of file contents in the order of a walk.
//!
//! The device knows where bytes are, but not in which order a walk reads them. This scout follows the same order, so it
//! requests each file once, before the walk reads it. Neighbouring files share a request.

use std::collections::{HashSet, VecDeque};
use std::ops::{ControlFlow, Range};

use disk::ranges::merged;
use parking_lot::{Condvar, Mutex};
use vfs::path::{Order, WalkSteps};
use vfs::{Attributes, ExtentPlace, FileSystem, FileType, Ino};

/// Maximum number of bytes that were requested and not read yet. The device keeps 192 MiB. Up to a third of them were
/// already read.
pub(super) const LEAD_BYTES_MAX: u64 = 48 << 20;

/// Maximum number of files that were visited before the walk.
const LEAD_FILES_MAX: usize = 50_000;

/// Number of bytes that are requested together. The first batches are small, because the walk waits for them.
pub(super) const BATCH_BYTES: Range<u64> = 256 << 10..16 << 20;

/// Maximum number of bytes of one file that are requested. The device detects sequential reads of the rest.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Bytes that a request for an extent far from the previous one fetches around it: a unit of the device. Extents that are
/// nearer than [`NEAR_BYTES`] mostly share such units.
const AROUND_BYTES: u64 = 128 << 10;
const NEAR_BYTES: u64 = 1 << 20;

/// Maximum distance of extents in one request, in bytes. Fetching it takes less time than another request.
const GAP_BYTES_MAX: u64 = 128 << 10;

/// The files that the scout has visited and the walk has not.
#[derive(Default)]
pub(super) struct ContentsLead {
    state: Mutex<LeadState>,
    has_changed: Condvar,
}

#[derive(Default)]
struct LeadState {
    /// Requested bytes of each file that the walk has not passed.
    files: VecDeque<u64>,
    /// Sum of `files`.
    bytes: u64,
    /// Number of files that the walk passed before the scout.
    missed: u64,
    is_waiting: bool,
    is_over: bool,
}

impl LeadState {
    fn is_far_ahead(&self, bytes_max: u64) -> bool {
        self.bytes > bytes_max || self.files.len() > LEAD_FILES_MAX
    }
}

impl ContentsLead {
    /// Records that the walk visits the next file.
    pub(super) fn pass(&self) {
        let mut state = self.state.lock();
        match state.files.pop_front() {
            Some(bytes) => state.bytes -= bytes,
            None => state.missed += 1,
        }
        // The scout continues when it can request a whole batch.
        if state.is_waiting && !state.is_far_ahead(LEAD_BYTES_MAX - BATCH_BYTES.end) {
            state.is_waiting = false;
            self.has_changed.notify_all();
        }
    }

    /// Ends the scout.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.has_changed.notify_all();
    }

    /// Adds the next file with its requested bytes. Returns whether the lead is at its maximum.
    fn add(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        if state.missed > 0 {
            state.missed -= 1;
        } else {
            state.files.push_back(bytes);
            state.bytes += bytes;
        }
        state.is_far_ahead(LEAD_BYTES_MAX)
    }

    /// Returns whether the walk has already passed the next file.
    fn is_late(&self) -> bool {
        self.state.lock().missed > 0
    }

    /// Waits until the walk has come closer. Returns false at the end of the walk.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        state.is_waiting = state.is_far_ahead(LEAD_BYTES_MAX);
        while state.is_waiting && !state.is_over {
            self.has_changed.wait(&mut state);
        }
        !state.is_over
    }

    /// Visits all files below `top` before the walk, and requests their contents. The walk reports any errors.
    pub(super) fn scout(&self, fs: &dyn FileSystem, top: Ino) {
        let mut walk = WalkSteps::new(top, Order::Sorted);
        let mut batch = Batch::new();
        while let Some(visit) = walk.advance(fs) {
            let bytes = match visit {
                Ok(visit) if !self.is_late() => batch.add(fs, &visit.attributes),
                _ => 0,
            };
            let is_far_ahead = self.add(bytes);
            if is_far_ahead || batch.is_full() {
                batch.request(fs);
            }
            if !self.wait() {
                return;
            }
        }
        batch.request(fs);
    }
}

/// Extents that will be requested together.
pub(super) struct Batch {
    extents: Vec<Range<u64>>,
    bytes: u64,
    /// Number of bytes from which the batch is full.
    full_bytes: u64,
    /// Place behind the last extent.
    end: u64,
    /// Files with several names that were requested. Only their first name is read.
    linked: HashSet<Ino>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            extents: Vec::new(),
            bytes: 0,
            full_bytes: BATCH_BYTES.start,
            end: 0,
            linked: HashSet::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.full_bytes
    }

    /// Adds the start of a file. Returns the number of bytes.
    pub(super) fn add(&mut self, fs: &dyn FileSystem, attributes: &Attributes) -> u64 {
        let &Attributes { ino, size, links, file_type, .. } = attributes;
        if file_type != FileType::Regular || links > 1 && !self.linked.insert(ino) {
            return 0;
        }
        let before = self.bytes;
        // Extents before an error are still useful.
        let _ = fs.extent_map(ino, 0, size.min(FILE_BYTES_MAX), &mut |extent| {
            if let ExtentPlace::Device(start) = extent.place {
                self.extents.push(start..start.saturating_add(extent.len));
                let is_far = start.abs_diff(self.end) > NEAR_BYTES;
                self.end = start.saturating_add(extent.len);
                let bytes = extent.len.saturating_add(if is_far { AROUND_BYTES } else { 0 });
                self.bytes = self.bytes.saturating_add(bytes);
            }
            ControlFlow::Continue(())
        });
        self.bytes - before
    }

    /// Requests all extents, in the order of the device. The next batch is larger.
    pub(super) fn request(&mut self, fs: &dyn FileSystem) {
        for extent in merged(std::mem::take(&mut self.extents), GAP_BYTES_MAX) {
            fs.read_ahead(extent.start, extent.end - extent.start);
        }
        self.bytes = 0;
        self.full_bytes = (self.full_bytes * 2).min(BATCH_BYTES.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_limited_and_late_files_are_not_counted() {
        let lead = ContentsLead::default();
        assert!(!lead.is_late());
        lead.pass();
        assert!(lead.is_late());
        assert!(!lead.add(LEAD_BYTES_MAX + 1), "the walk has passed this file");
        assert!(!lead.is_late());
        assert!(!lead.add(LEAD_BYTES_MAX));
        assert!(lead.add(1));
        lead.pass();
        assert!(lead.wait(), "one byte is ahead");
        lead.end();
        assert!(!lead.wait());
    }
}
