//! The other passes of recovery: collecting revokes, verifying all images, and replaying them.

use std::collections::HashMap;

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};

use super::map::JournalMap;
use super::reader::JournalReader;
use super::scan::{Cursor, Extent, damage_at};
use crate::format::address::Block;
use crate::format::jbd2::{BlockType, ESCAPED, JournalSuperblock, Tag, Tid, header, revokes, tags};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

/// Maximum number of revoked blocks. The kernel revokes only blocks in the log, so this corresponds to 64 GiB of logged
/// blocks.
const REVOKES_MAX: usize = 1 << 24;

/// The log and its end.
pub(super) struct Log<'j> {
    pub(super) sb: &'j JournalSuperblock,
    pub(super) map: &'j JournalMap,
    pub(super) start: u32,
    pub(super) extent: Extent,
    /// True if the commit block of the last transaction may have been written before its images.
    pub(super) may_be_interrupted: bool,
    /// Number of device blocks, if images with a wrong checksum or target are skipped, as kernels and e2fsck do.
    pub(super) skip_damaged: Option<u64>,
}

/// Contents of a descriptor or revoke block.
enum LogRecord<'b> {
    Revokes(&'b [u8]),
    /// A tag, and the journal block with its image.
    Image(Tag, u32),
}

/// Last transaction that revoked each block.
pub(super) struct Revoked(HashMap<Block, Tid>);

impl Revoked {
    /// Returns whether an image logged by transaction `tid` must not be replayed.
    fn covers(&self, block: Block, tid: Tid) -> bool {
        self.0.get(&block).is_some_and(|&revoked| !tid.is_after(revoked))
    }
}

/// Result of [`Log::verify`].
#[derive(Default)]
pub(super) struct Verified {
    /// The highest block to write, and the journal block and transaction of its image.
    pub(super) highest: Option<(Block, u32, Tid)>,
    /// The file system's superblock after the replay, if it is in the log.
    pub(super) superblock: Option<Box<[u8; SUPERBLOCK_SIZE]>>,
}

/// Numbers of replayed and revoked images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplayCounts {
    pub(super) replayed: u64,
    pub(super) revoked: u64,
}

impl Log<'_> {
    /// Calls `each` for every item of the complete transactions, in order.
    fn for_each(
        &self,
        reader: &mut JournalReader<'_>,
        mut each: impl FnMut(&mut JournalReader<'_>, Tid, LogRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = Cursor::new(self.sb, self.start);
        let mut revoke_block = vec![0; self.map.block_size()];
        let mut all_tags = Vec::new();
        while cursor.tid != self.extent.end {
            let (at, tid) = (cursor.at, cursor.tid);
            // The first pass read the same blocks, so this can only fail if the device has changed.
            let changed = || damage_at("journal", "the journal changed during the read", at, tid);
            let block = reader.block(at)?;
            let Some((kind, found)) = header(block) else { return Err(changed().into()) };
            cursor.advance(self.sb, 1).filter(|()| found == tid).ok_or_else(changed)?;
            match kind {
                BlockType::Commit => cursor.tid = tid.next(),
                BlockType::Revoke => {
                    revoke_block.copy_from_slice(block);
                    each(reader, tid, LogRecord::Revokes(&revoke_block))
                        .map_err(|e| locate(e, at, tid))?;
                }
                BlockType::Descriptor => {
                    all_tags.clear();
                    all_tags.extend(tags(block, &self.sb.layout));
                    for &tag in &all_tags {
                        let image = cursor.at;
                        cursor.advance(self.sb, 1).ok_or_else(changed)?;
                        each(reader, tid, LogRecord::Image(tag, image))?;
                    }
                }
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => return Err(changed().into()),
            }
        }
        Ok(())
    }

    /// Collects the revokes.
    pub(super) fn revoked(
        &self,
        reader: &mut JournalReader<'_>,
        blocks_max: u64,
    ) -> Result<Revoked> {
        let mut revoked = HashMap::new();
        self.for_each(reader, |_, tid, item| {
            let LogRecord::Revokes(block) = item else { return Ok(()) };
            for number in revokes(block, &self.sb.layout)? {
                if number.0 >= blocks_max {
                    let damage = Corruption::new("journal revoke block", "block past the end");
                    return Err(damage.mismatch(format!("below {blocks_max}"), number).into());
                }
                // Transactions come in order, so the last revoke wins.
                revoked.insert(number, tid);
                if revoked.len() > REVOKES_MAX {
                    return Err(Error::unsupported(
                        format!("a journal with more than {REVOKES_MAX} revoked blocks"),
                        "replay it with the kernel or e2fsck",
                    ));
                }
            }
            Ok(())
        })?;
        Ok(Revoked(revoked))
    }

    /// Verifies the checksum and the target of every image to replay. In the last transaction of an asynchronous log, a
    /// wrong image is not damage: the crash interrupted that transaction.
    pub(super) fn verify(
        &self,
        reader: &mut JournalReader<'_>,
        revoked: &Revoked,
    ) -> Result<Result<Verified, Interrupted>> {
        let mut verified = Verified::default();
        let mut interrupted = false;
        let is_last = |tid: Tid| tid.next() == self.extent.end;
        let layout = &self.sb.layout;
        self.for_each(reader, |reader, tid, item| {
            let LogRecord::Image(tag, image) = item else { return Ok(()) };
            if self.skips(&tag, tid, reader.block(image)?) {
                return Ok(());
            }
            if self.map.contains(tag.block) {
                let problem = "it would overwrite the journal";
                let damage = damage_at("journal descriptor block", problem, image, tid);
                return Err(damage.at_block(tag.block.0).into());
            }
            if verified.highest.is_none_or(|(highest, ..)| tag.block > highest) {
                verified.highest = Some((tag.block, image, tid));
            }
            if revoked.covers(tag.block, tid) {
                return Ok(());
            }
            let stored = reader.block(image)?;
            if !tag.matches(layout, tid, stored) {
                if self.may_be_interrupted && is_last(tid) {
                    interrupted = true;
                    return Ok(());
                }
                let damage = damage_at("journaled block", "wrong checksum", image, tid);
                return Err(damage.at_block(tag.block.0).into());
            }
            let size = stored.len() as u64;
            if tag.block.0 == SUPERBLOCK_OFFSET / size {
                let at = (SUPERBLOCK_OFFSET % size) as usize;
                let bytes = stored[at..].first_chunk().map(|bytes| Box::new(*bytes));
                verified.superblock = bytes;
            }
            Ok(())
        })?;
        Ok(if interrupted { Err(Interrupted) } else { Ok(verified) })
    }

    /// Returns true if an image is damaged and damaged ones are skipped.
    fn skips(&self, tag: &Tag, tid: Tid, stored: &[u8]) -> bool {
        self.skip_damaged.is_some_and(|blocks| {
            let is_possible = tag.block.0 < blocks && !self.map.contains(tag.block);
            !is_possible || !tag.matches(&self.sb.layout, tid, stored)
        })
    }

    /// Writes every image that is not revoked to its target block.
    pub(super) fn replay(
        &self,
        reader: &mut JournalReader<'_>,
        revoked: &Revoked,
        device: &dyn BlockDevice,
    ) -> Result<ReplayCounts> {
        let mut counts = ReplayCounts::default();
        let mut unescaped = Vec::new();
        self.for_each(reader, |reader, tid, item| {
            let LogRecord::Image(tag, image) = item else { return Ok(()) };
            if revoked.covers(tag.block, tid) {
                counts.revoked += 1;
                return Ok(());
            }
            let mut bytes = reader.block(image)?;
            if self.skips(&tag, tid, bytes) {
                return Ok(());
            }
            let offset = tag.block.0 * bytes.len() as u64;
            if tag.escaped {
                unescaped.clear();
                unescaped.extend_from_slice(&ESCAPED);
                unescaped.extend_from_slice(&bytes[ESCAPED.len()..]);
                bytes = &unescaped;
            }
            device.write_at(offset, bytes).map_err(Error::Device)?;
            counts.replayed += 1;
            Ok(())
        })?;
        Ok(counts)
    }
}

/// The commit block of the last transaction reached the device before its images.
pub(super) struct Interrupted;

/// Adds the position in the journal to an error.
fn locate(error: Error, at: u32, tid: Tid) -> Error {
    match error {
        Error::Corrupt(damage) => {
            damage_at("journal revoke block", &damage.to_string(), at, tid).into()
        }
        other => other,
    }
}
