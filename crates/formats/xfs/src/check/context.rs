//! The state shared by all parts of a check.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::BlockDevice;
use engine::Corruption;
use vfs::check::{Code, Finding, Observer, Waiting};

use super::codes;
use crate::format::address::{AgNumber, Block};
use crate::format::geometry::Geometry;
use crate::format::log::Lsn;
use crate::format::superblock::Superblock;

/// The image, and the observer of the check.
pub(super) struct Context<'a> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) geometry: Geometry,
    pub(super) observer: &'a dyn Observer,
    pub(super) threads: NonZero<usize>,
    /// Findings about inodes, held until their paths are known.
    pub(super) waiting: Waiting,
    /// True if the log of the image is clean, so no mount frees unlinked inodes.
    pub(super) is_log_clean: bool,
    /// Head of the log: no valid structure has a later LSN.
    head: Option<u64>,
    has_gaps: AtomicBool,
    /// The highest plausible LSN of any structure.
    lsn_plausible_max: AtomicU64,
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
        let has_names_gaps = AtomicBool::new(false);
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
            lsn_plausible_max: AtomicU64::default(),
        }
    }

    /// Reports a finding, at once or when the path of its inode is known.
    pub(super) fn found(&self, finding: Finding) {
        self.waiting.hold(finding, self.observer);
    }

    /// Records the LSN of a structure. Reports a finding if it is after the head of the log.
    pub(super) fn check_lsn(&self, lsn: u64, finding: impl FnOnce() -> Finding) {
        if Lsn::from_raw(lsn).is_plausible() {
            self.lsn_plausible_max.fetch_max(lsn, Ordering::Relaxed);
        }
        if let Some(head) = self.head.filter(|head| lsn > *head)
            && lsn != u64::MAX
        {
            let shown = |lsn: u64| format!("{}:{}", lsn >> 32, lsn as u32);
            self.found(finding().mismatch(format!("at most {}", shown(head)), shown(lsn)));
        }
    }

    /// Returns the highest plausible LSN of the visited structures.
    pub(super) fn lsn_plausible_max(&self) -> Lsn {
        Lsn::from_raw(self.lsn_plausible_max.load(Ordering::Relaxed))
    }

    /// Reports the result of a failed verification.
    pub(super) fn damage(&self, code: &'static Code, damage: &Corruption, block: Option<Block>) {
        let mut finding = Finding::of_damage(code, damage);
        if let Some(block) = block {
            finding = finding.at_block(block.0);
        }
        self.found(finding);
    }

    /// Records that names could not be checked. The owners of blocks are complete nevertheless.
    pub(super) fn note_names_gap(&self) {
        self.has_names_gaps.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_names_gaps(&self) -> bool {
        self.has_names_gaps.load(Ordering::Relaxed)
    }

    /// Records that something could not be checked.
    pub(super) fn note_gap(&self) {
        self.has_gaps.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_gaps(&self) -> bool {
        self.has_gaps.load(Ordering::Relaxed)
    }

    /// Reads from a byte of the device on. Reports a failure, and returns false.
    pub(super) fn read_bytes(&self, byte: u64, buf: &mut [u8]) -> bool {
        let Err(error) = self.device.read_at(byte, buf) else { return true };
        let block = byte >> self.geometry.block_log;
        self.found(Finding::new(codes::IO).at_block(block).detail(error.to_string()));
        self.note_gap();
        false
    }

    /// Like [`Self::read_bytes`], from a block on.
    pub(super) fn read(&self, block: Block, buf: &mut [u8]) -> bool {
        self.read_bytes(self.geometry.byte_of(block), buf)
    }

    /// Returns the byte offset of a group on the device.
    pub(super) fn ag_byte(&self, ag: AgNumber) -> u64 {
        (u64::from(ag.0) * u64::from(self.geometry.ag_blocks)) << self.geometry.block_log
    }
}
