//! Log: its location, its end and its active part.

use vfs::{Error as FsError, Result};
use xfs::format::log::Lsn;
use xfs::format::log::buffer::BufferType;
use xfs::format::log::item::ItemType;
use xfs::{LogItem, LogRecord, LogTransaction};

use super::{Dump, Fields, Source};

/// Maximum number of items in the output.
const LISTED_MAX: usize = 100_000;

/// Size of log blocks in bytes.
const SECTOR_BYTES: u64 = 512;

impl Source {
    pub(super) fn log(&self) -> Result<Dump> {
        let sb = self.fs.superblock();
        let raw = &sb.raw;
        let mut dump = Dump::default();
        dump.fields.add("logstart", raw.logstart);
        dump.fields.add("logblocks", raw.logblocks);
        dump.fields.add("logsunit", raw.logsunit);
        match xfs::log_end(&*self.device, sb) {
            Ok(Some(end)) => {
                dump.fields.add("is_clean", end.is_clean);
                dump.fields.add("head_block", end.head);
                if let Some(tail) = end.tail() {
                    dump.fields.add("tail_cycle", tail.cycle);
                    dump.fields.add("tail_block", tail.block);
                }
            }
            Ok(None) => {}
            // The log is on another device, so there is nothing to dump.
            Err(error @ FsError::Unsupported(_)) => return Err(error),
            Err(error) => dump.problem(error),
        }
        let (mut records, mut listed, mut left_out) = (Vec::new(), 0, 0);
        let read = xfs::log_contents(&*self.device, sb, |record| {
            if listed < LISTED_MAX {
                listed += 1 + record.transactions.iter().map(|t| t.items.len()).sum::<usize>();
                records.push(self.log_record(record));
            } else {
                left_out += 1;
            }
            Ok(())
        });
        if let Err(error) = read {
            dump.problem(error);
        }
        dump.fields.add("log", records);
        if left_out > 0_u64 {
            dump.fields.add("records_left_out", left_out);
        }
        Ok(dump)
    }

    fn log_record(&self, log: &LogRecord) -> Fields {
        let record = &log.record;
        let mut fields = Fields::default();
        place(&mut fields, record.lsn);
        fields.add("tail_cycle", record.tail.cycle);
        fields.add("tail_block", record.tail.block);
        fields.add("blocks", record.header_blocks + record.body_blocks);
        fields.add("operations", record.operations);
        if log.is_unmount {
            fields.add("kind", "unmount");
        } else {
            let transactions = log.transactions.iter().map(|t| self.log_transaction(t));
            fields.add("transactions", transactions.collect::<Vec<_>>());
        }
        fields
    }

    fn log_transaction(&self, transaction: &LogTransaction) -> Fields {
        let mut fields = Fields::default();
        fields.hex("tid", transaction.tid);
        fields.add("start_cycle", transaction.start.cycle);
        fields.add("start_block", transaction.start.block);
        let items = transaction.items.iter().map(|item| self.log_item(item));
        fields.add("items", items.collect::<Vec<_>>());
        fields
    }

    fn log_item(&self, item: &LogItem) -> Fields {
        let mut fields = Fields::default();
        match *item {
            LogItem::Buffer { daddr, blocks, flags, contents, bytes } => {
                fields.add("kind", "buffer");
                fields.add("contents", contents_name(contents));
                self.log_buffer(&mut fields, daddr, blocks);
                fields.hex("flags", flags);
                fields.add("bytes", bytes as u64);
            }
            LogItem::Cancel { daddr, blocks } => {
                fields.add("kind", "cancel");
                self.log_buffer(&mut fields, daddr, blocks);
            }
            LogItem::Inode { ino, fields: logged, daddr } => {
                fields.add("kind", "inode");
                fields.add("inode", ino.0);
                fields.hex("fields", logged);
                fields.add("daddr", daddr);
            }
            LogItem::Dquot { id, kind, daddr } => {
                fields.add("kind", "dquot");
                fields.add("id", id);
                fields.hex("type", kind);
                fields.add("daddr", daddr);
            }
            LogItem::QuotaOff { flags } => {
                fields.add("kind", "quotaoff");
                fields.hex("flags", flags);
            }
            LogItem::Icreate { ag, block, blocks, inodes } => {
                fields.add("kind", "icreate");
                fields.add("ag", ag.0);
                fields.add("agbno", block.0);
                fields.add("blocks", blocks);
                fields.add("inodes", inodes);
            }
            LogItem::Intent { item, id } => {
                fields.add("kind", "intent");
                fields.add("type", intent_name(item));
                fields.hex("id", id);
            }
            LogItem::Done { intent, id } => {
                fields.add("kind", "done");
                fields.add("type", intent_name(intent));
                fields.hex("id", id);
            }
        }
        fields
    }

    /// Adds the location of a buffer in sectors and as the block for `dump IMAGE block`.
    fn log_buffer(&self, fields: &mut Fields, daddr: u64, blocks: u32) {
        let block = daddr.saturating_mul(SECTOR_BYTES) / self.geometry().block_size() as u64;
        fields.add("block", block);
        fields.add("daddr", daddr);
        fields.add("sectors", blocks);
    }
}

fn place(fields: &mut Fields, lsn: Lsn) {
    fields.add("cycle", lsn.cycle);
    fields.add("block", lsn.block);
}

fn contents_name(contents: BufferType) -> &'static str {
    match contents {
        BufferType::Unknown => "plain",
        BufferType::UserDquot | BufferType::ProjectDquot | BufferType::GroupDquot => "dquots",
        BufferType::Btree => "btree",
        BufferType::Agf => "agf",
        BufferType::Agfl => "agfl",
        BufferType::Agi => "agi",
        BufferType::Dinode => "inodes",
        BufferType::Symlink => "symlink",
        BufferType::DirBlock => "directory block",
        BufferType::DirData => "directory data",
        BufferType::DirFree => "directory free index",
        BufferType::DirLeaf1 | BufferType::DirLeafN => "directory leaf",
        BufferType::DaNode => "node",
        BufferType::AttrLeaf => "attribute leaf",
        BufferType::AttrRemote => "attribute value",
        BufferType::Superblock => "superblock",
        BufferType::RealtimeBitmap => "realtime bitmap",
        BufferType::RealtimeSummary => "realtime summary",
    }
}

fn intent_name(item: ItemType) -> &'static str {
    match item {
        ItemType::Efi => "efi",
        ItemType::Rui => "rui",
        ItemType::Cui => "cui",
        ItemType::Bui => "bui",
        ItemType::Attri => "attri",
        ItemType::Xmi => "xmi",
        _ => "unknown",
    }
}
