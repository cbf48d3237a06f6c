//! Journal: its superblock and the descriptor, commit and revoke blocks of its log.

use ext4::format::jbd2::{MAGIC, RawJournalSuperblock};
use ext4::log::JournalMap;
use vfs::{Error as FsError, FileSystem, Ino};

use super::{Dump, Fields, Source};
use crate::text::uuid_text;

/// Maximum number of log blocks in the output.
const LISTED_MAX: usize = 100_000;

impl Source {
    pub(super) fn journal_blocks(&self) -> vfs::Result<Dump> {
        let number = self.sb().raw.journal_inum.get();
        let external = match self.sb().has_external_journal() {
            true => JournalMap::read(&*self.device, self.sb())?,
            false => None,
        };
        if number == 0 && external.is_none() {
            return Err(FsError::unsupported(
                "an image without a journal",
                "dump IMAGE superblock shows its features",
            ));
        }
        let ino = Ino(number.into());
        let size = self.geometry().block_size() as usize;
        let mut block = vec![0; size];
        let mut dump = Dump::default();
        match &external {
            Some(_) => dump.fields.add("uuid", uuid_text(&self.sb().raw.journal_uuid)),
            None => dump.fields.add("inode", ino.0),
        }
        dump.fields.add("needs_recovery", self.fs.needs_recovery());
        let read = |at: u32, block: &mut Vec<u8>| match &external {
            Some(map) if at >= map.blocks() => Ok(0),
            Some(map) => map.read_block(&*self.device, at).map(|bytes| {
                *block = bytes;
                size
            }),
            None => self.fs.read(ino, u64::from(at) * size as u64, block),
        };
        read(external.as_ref().map_or(0, JournalMap::superblock), &mut block)?;
        let raw = match RawJournalSuperblock::parse(&block) {
            Ok(raw) => raw,
            Err(error) => {
                dump.problem(error);
                return Ok(dump);
            }
        };
        superblock(&raw, &mut dump.fields);
        let mut listed = Vec::new();
        for at in raw.first.get()..raw.maxlen.get() {
            if read(at, &mut block)? < size || listed.len() >= LISTED_MAX {
                break;
            }
            if let Some(fields) = log_block(at, &block) {
                listed.push(fields);
            }
        }
        dump.fields.add("log", listed);
        Ok(dump)
    }
}

fn superblock(raw: &RawJournalSuperblock, fields: &mut Fields) {
    fields.hex("h_magic", raw.h_magic.get());
    fields.add("h_blocktype", raw.h_blocktype);
    fields.add("blocksize", raw.blocksize);
    fields.add("maxlen", raw.maxlen);
    fields.add("first", raw.first);
    fields.add("sequence", raw.sequence);
    fields.add("start", raw.start);
    fields.add("errno", raw.errno);
    fields.hex("feature_compat", raw.feature_compat.get());
    fields.hex("feature_incompat", raw.feature_incompat.get());
    fields.hex("feature_ro_compat", raw.feature_ro_compat.get());
    let names = [
        (0x1, "revoke"),
        (0x2, "64bit"),
        (0x4, "async_commit"),
        (0x8, "csum_v2"),
        (0x10, "csum_v3"),
        (0x20, "fast_commit"),
    ];
    let has = |&(bit, _): &(u32, &str)| raw.feature_incompat.get() & bit != 0;
    fields.add("features", names.iter().filter(|f| has(f)).map(|f| f.1).collect::<Vec<_>>());
    fields.add("uuid", uuid_text(&raw.uuid));
    fields.add("nr_users", raw.nr_users);
    fields.add("checksum_type", raw.checksum_type);
    fields.add("num_fc_blks", raw.num_fc_blks);
    fields.add("head", raw.head);
    fields.hex("checksum", raw.checksum.get());
}

/// Returns the type and transaction of a log block that is not a copy of another block.
fn log_block(at: u32, block: &[u8]) -> Option<Fields> {
    let word = |at: usize| {
        block.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).unwrap_or(0)
    };
    if word(0) != MAGIC {
        return None;
    }
    let kind = match word(4) {
        1 => "descriptor",
        2 => "commit",
        3 | 4 => "superblock",
        5 => "revoke",
        _ => "unknown",
    };
    let mut fields = Fields::default();
    fields.add("journal_block", at);
    fields.add("kind", kind);
    fields.add("sequence", word(8));
    Some(fields)
}
