//! The contents of a log, for inspection.

use disk::BlockDevice;
use vfs::{Corruption, Ino, Result};

use super::bounds::Bounds;
use super::end::{Ring, log_end};
use super::read::WholeRecord;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::log::buffer::BufferType;
use crate::format::log::item::{Item, ItemType, RawItem};
use crate::format::log::transaction::{Assembler, Transaction};
use crate::format::log::{Lsn, ParsedRecord};
use crate::format::superblock::Superblock;

/// A record of a log.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The fields of its header.
    pub record: ParsedRecord,
    /// True for an unmount record, which marks the log clean.
    pub is_unmount: bool,
    /// The transactions completed by this record.
    pub transactions: Vec<LogTransaction>,
}

/// A transaction of a log.
#[derive(Clone, Debug)]
pub struct LogTransaction {
    /// Its number, which is not unique.
    pub tid: u32,
    /// Position of the record in which it starts.
    pub start: Lsn,
    /// Its items, in the order in which they were logged.
    pub items: Vec<LogItem>,
}

/// An item of a transaction. Locations and lengths on the device are in units of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum LogItem {
    /// Contents of a buffer.
    Buffer { daddr: u64, blocks: u32, flags: u16, contents: BufferType, bytes: usize },
    /// A cancelled buffer: earlier items of it are not replayed.
    Cancel { daddr: u64, blocks: u32 },
    /// An inode; `fields` says which parts of it were logged (`ilf_fields`).
    Inode { ino: Ino, fields: u32, daddr: u64 },
    /// The quota of a user, group or project.
    Dquot { id: u32, kind: u8, daddr: u64 },
    /// Quotas are turned off.
    QuotaOff { flags: u32 },
    /// New inodes. The length is in blocks of the file system.
    Icreate { ag: AgNumber, block: AgBlock, blocks: u32, inodes: u32 },
    /// The intent of a change.
    Intent { item: ItemType, id: u64 },
    /// An intended change was made.
    Done { intent: ItemType, id: u64 },
}

/// Calls `each` with the valid records of a log, in order: those to be replayed, or the unmount record of a clean log.
/// Returns the number of records.
///
/// # Errors
/// `Corrupt` for a damaged log, `Unsupported` for a log that cannot be read here; errors of `each`.
pub fn log_contents(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    mut each: impl FnMut(&LogRecord) -> Result<()>,
) -> Result<u64> {
    let no_end = || Corruption::new("log", "its head cannot be found");
    let ring = Ring::of(device, superblock)?.ok_or_else(no_end)?;
    let end = log_end(device, superblock)?.ok_or_else(no_end)?;
    let Some(last) = end.last else { return Ok(0) };
    let head = end.head_lsn();
    let bounds = match end.is_clean {
        true => Bounds { tail: last.lsn, head },
        false => Bounds::find(&ring, &last, head)?,
    };
    let mut assembler = Assembler::default();
    let mut count = 0;
    bounds.each(&ring, |whole| {
        count += 1;
        each(&read(&mut assembler, whole)?)
    })?;
    Ok(count)
}

fn read(assembler: &mut Assembler, whole: &WholeRecord) -> Result<LogRecord> {
    let mut transactions = Vec::new();
    assembler.take(whole.record.lsn, whole.operations(), |transaction| {
        transactions.push(describe(&transaction)?);
        Ok::<_, vfs::Error>(())
    })?;
    Ok(LogRecord { record: whole.record, is_unmount: whole.is_unmount(), transactions })
}

fn describe(transaction: &Transaction) -> Result<LogTransaction> {
    let items = transaction.items().map(|raw| describe_item(&raw)).collect::<Result<_>>()?;
    Ok(LogTransaction { tid: transaction.tid, start: transaction.start, items })
}

fn describe_item(raw: &RawItem<'_>) -> Result<LogItem> {
    Ok(match Item::parse(raw)? {
        Item::Buffer(item) if item.is_cancel() => {
            LogItem::Cancel { daddr: item.daddr, blocks: item.blocks }
        }
        Item::Buffer(item) => LogItem::Buffer {
            daddr: item.daddr,
            blocks: item.blocks,
            flags: item.flags,
            contents: item.contents(),
            bytes: item.chunks()?.iter().map(|(_, bytes)| bytes.len()).sum(),
        },
        Item::Inode(item) => {
            LogItem::Inode { ino: item.ino, fields: item.fields, daddr: item.daddr }
        }
        Item::Dquot(item) => LogItem::Dquot { id: item.id, kind: item.kind(), daddr: item.daddr },
        Item::QuotaOff(item) => LogItem::QuotaOff { flags: item.flags },
        Item::Icreate(item) => LogItem::Icreate {
            ag: item.ag,
            block: item.block,
            blocks: item.blocks,
            inodes: item.inodes,
        },
        Item::Intent(item, id) => LogItem::Intent { item, id },
        Item::Done(intent, id) => LogItem::Done { intent, id },
    })
}
