//! What every part of a check knows.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::check::{Code, Finding, Observer, Waiting};
use blockdev::BlockDevice;
use transaction::Corruption;

use super::codes;
use crate::format::address::{AgNumber, Block};
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;

/// A cycle that no log reaches: at a round of 1 GiB a second, it takes 34 years.
pub(crate) const CYCLE_ABSURD: u64 = 1 << 30;

/// The image, and who is told of it.
pub(super) struct Context<'a> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) geometry: Geometry,
    pub(super) observer: &'a dyn Observer,
    pub(super) threads: NonZero<usize>,
    /// Findings about inodes, until their paths are known.
    pub(super) waiting: Waiting,
    /// The log of the image is clean, so that no mount frees inodes without names.
    pub(super) is_log_clean: bool,
    /// Where the log goes on: no structure can have been written behind that.
    head: Option<u64>,
    has_gaps: AtomicBool,
    /// The latest place in the log that any structure says it was written at.
    lsn_max: AtomicU64,
    /// The same without places that no log has.
    lsn_max_real: AtomicU64,
    has_names_gaps: AtomicBool,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        sb: Superblock,
        observer: &'a dyn Observer,
        threads: NonZero<usize>,
        head: Option<u64>,
    ) -> Self {
        let geometry = Geometry::new(&sb);
        let (waiting, has_gaps) = (Waiting::default(), AtomicBool::new(false));
        let (has_names_gaps, lsn_max) = (AtomicBool::new(false), AtomicU64::default());
        Self {
            device,
            sb,
            geometry,
            observer,
            threads,
            waiting,
            is_log_clean: false,
            head,
            has_gaps,
            has_names_gaps,
            lsn_max,
            lsn_max_real: AtomicU64::default(),
        }
    }

    /// Tells of something, at once or when the path of its inode is known.
    pub(super) fn found(&self, finding: Finding) {
        self.waiting.hold(finding, self.observer);
    }

    /// Tells of a structure that was written at a place in the log that is yet to come.
    pub(super) fn check_lsn(&self, lsn: u64, finding: impl FnOnce() -> Finding) {
        if lsn >> 32 < CYCLE_ABSURD {
            self.lsn_max_real.fetch_max(lsn, Ordering::Relaxed);
        }
        if lsn != u64::MAX {
            self.lsn_max.fetch_max(lsn, Ordering::Relaxed);
        }
        if let Some(head) = self.head.filter(|head| lsn > *head)
            && lsn != u64::MAX
        {
            let shown = |lsn: u64| format!("{}:{}", lsn >> 32, lsn as u32);
            self.found(finding().mismatch(format!("at most {}", shown(head)), shown(lsn)));
        }
    }

    /// The same as [`Self::lsn_max`] without places that no log has.
    pub(super) fn lsn_max_real(&self) -> u64 {
        self.lsn_max_real.load(Ordering::Relaxed)
    }

    /// The latest place that structures which were looked at say.
    pub(super) fn lsn_max(&self) -> u64 {
        self.lsn_max.load(Ordering::Relaxed)
    }

    /// Tells of what a verifier said.
    pub(super) fn damage(&self, code: &'static Code, damage: &Corruption, block: Option<Block>) {
        let mut finding = Finding::of_damage(code, damage);
        if let Some(block) = block {
            finding = finding.at_block(block.0);
        }
        self.found(finding);
    }

    /// Notes that names could not be looked at. Who owns which blocks is known nevertheless.
    pub(super) fn note_names_gap(&self) {
        self.has_names_gaps.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_names_gaps(&self) -> bool {
        self.has_names_gaps.load(Ordering::Relaxed)
    }

    /// Notes that something could not be looked at.
    pub(super) fn note_gap(&self) {
        self.has_gaps.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Relaxed)
    }

    /// Reads from a byte of the device on, and tells of it if that fails.
    pub(super) fn read_bytes(&self, byte: u64, buf: &mut [u8]) -> bool {
        let Err(error) = self.device.read_at(byte, buf) else { return true };
        let block = byte >> self.geometry.block_log;
        self.found(Finding::new(codes::IO).at_block(block).detail(error.to_string()));
        self.note_gap();
        false
    }

    /// As [`Self::read_bytes`], from a block on.
    pub(super) fn read(&self, block: Block, buf: &mut [u8]) -> bool {
        self.read_bytes(self.geometry.byte_of(block), buf)
    }

    /// The first byte of a group on the device.
    pub(super) fn ag_byte(&self, ag: AgNumber) -> u64 {
        (u64::from(ag.0) * u64::from(self.geometry.ag_blocks)) << self.geometry.block_log
    }
}
