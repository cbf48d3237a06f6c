//! Assembling transactions from operations. Operations of several transactions may be interleaved, and a region may
//! span several records.

use std::collections::HashMap;

use engine::Corruption;

use super::operation::{
    OP_COMMIT, OP_CONTINUE, OP_END, OP_START, OP_WAS_CONTINUED, Operation, Operations,
};
use super::raw_item::RawItem;
use super::{Lsn, OP_UNMOUNT};

/// Size of the header in a transaction's first region, in bytes (`xfs_trans_header`).
pub(crate) const HEADER_SIZE: usize = 16;
/// `th_magic`: "TRAN".
pub(crate) const HEADER_MAGIC: u32 = 0x5452_414e;
/// `th_type` of transactions (`XFS_TRANS_CHECKPOINT`).
const CHECKPOINT_TYPE: u32 = 40;
/// Maximum number of regions of an item (`XLOG_MAX_REGIONS_IN_ITEM`): every other chunk of the largest buffer, and the
/// format.
const REGIONS_MAX: u16 = 257;

/// Returns the first region of a transaction (`xfs_trans_header`). Readers ignore its number of items.
pub(crate) fn checkpoint_header(tid: u32) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    for (at, word) in [HEADER_MAGIC, CHECKPOINT_TYPE, tid, 0].into_iter().enumerate() {
        bytes[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A transaction: a list of items, each of which is a list of regions.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// Its number, which may be reused.
    pub tid: u32,
    /// The record in which it starts.
    pub start: Lsn,
    /// The header, or the part of it received so far.
    header: Vec<u8>,
    /// The bytes of all regions, concatenated.
    data: Vec<u8>,
    /// The end of each region in `data`.
    ends: Vec<usize>,
    items: Vec<Span>,
}

/// The regions of an item.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: usize,
    count: usize,
}

fn fault(problem: &str) -> Corruption {
    Corruption::new("log transaction", problem)
}

impl Transaction {
    fn new(tid: u32, start: Lsn) -> Self {
        let (header, data, ends, items) = Default::default();
        Self { tid, start, header, data, ends, items }
    }

    /// Returns its items, in the order in which they were logged.
    pub(crate) fn items(&self) -> impl Iterator<Item = RawItem<'_>> {
        self.items.iter().map(|item| {
            let ends = &self.ends[item.first..item.first + item.count];
            let start = item.first.checked_sub(1).map_or(0, |before| self.ends[before]);
            RawItem::new(&self.data, start, ends)
        })
    }

    /// Adds a region, or the part of one that is in its record.
    fn add(&mut self, data: &[u8]) -> Result<(), Corruption> {
        if data.is_empty() {
            return Ok(());
        }
        if self.header.len() < HEADER_SIZE {
            return if self.header.is_empty() {
                self.add_header(data)
            } else {
                Err(fault("its header is truncated"))
            };
        }
        if self.items.last().is_none_or(|item| self.ends.len() - item.first == item.count) {
            let count = regions(data)?;
            self.items.push(Span { first: self.ends.len(), count: count.into() });
        }
        self.data.extend_from_slice(data);
        self.ends.push(self.data.len());
        Ok(())
    }

    /// Appends to the last region.
    fn extend(&mut self, data: &[u8]) -> Result<(), Corruption> {
        if self.header.len() < HEADER_SIZE {
            return self.add_header(data);
        }
        let Some(end) = self.ends.last_mut() else {
            return Err(fault("it continues a region that was not started"));
        };
        self.data.extend_from_slice(data);
        *end = self.data.len();
        Ok(())
    }

    fn add_header(&mut self, data: &[u8]) -> Result<(), Corruption> {
        self.header.extend_from_slice(data);
        if self.header.len() > HEADER_SIZE {
            return Err(fault("its header is too long").mismatch(HEADER_SIZE, self.header.len()));
        }
        let magic = HEADER_MAGIC.to_le_bytes();
        if self.header.iter().zip(&magic).any(|(found, magic)| found != magic) {
            return Err(fault("its header has a wrong magic number"));
        }
        Ok(())
    }

    /// Checks that the last item has all its regions.
    fn check_complete(&self) -> Result<(), Corruption> {
        match self.items.last() {
            Some(item) if self.ends.len() - item.first != item.count => {
                let found = self.ends.len() - item.first;
                Err(fault("regions of its last item are missing").mismatch(item.count, found))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the number of regions of an item from the start of its first one.
fn regions(data: &[u8]) -> Result<u16, Corruption> {
    let count = match data {
        [_, _, low, high, ..] => u16::from_le_bytes([*low, *high]),
        _ => return Err(Corruption::new("log item", "its first region is truncated")),
    };
    if !(1..=REGIONS_MAX).contains(&count) {
        let damage = Corruption::new("log item", "number of regions");
        return Err(damage.mismatch(format_args!("1 to {REGIONS_MAX}"), count));
    }
    Ok(count)
}

/// Assembles the transactions of records, which must be passed in order.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    running: HashMap<u32, Transaction>,
}

impl Assembler {
    /// Processes the operations of the record at `lsn`, and calls `complete` with the transactions that it completes,
    /// in order.
    ///
    /// # Errors
    /// `Corrupt` for invalid operations, and errors of `complete`.
    pub(crate) fn take<E: From<Corruption>>(
        &mut self,
        lsn: Lsn,
        operations: Operations<'_>,
        mut complete: impl FnMut(Transaction) -> Result<(), E>,
    ) -> Result<(), E> {
        for operation in operations {
            if let Some(transaction) = self.operation(lsn, &operation?)? {
                complete(transaction)?;
            }
        }
        Ok(())
    }

    fn operation(
        &mut self,
        lsn: Lsn,
        operation: &Operation<'_>,
    ) -> Result<Option<Transaction>, Corruption> {
        let Operation { tid, flags, data } = *operation;
        let Some(transaction) = self.running.get_mut(&tid) else {
            // Transactions that started before the tail have been written back completely.
            if flags & OP_START != 0 {
                if !data.is_empty() {
                    return Err(fault("its start operation has contents").mismatch(0, data.len()));
                }
                self.running.insert(tid, Transaction::new(tid, lsn));
            }
            return Ok(None);
        };
        let flags = match flags & !OP_END {
            flags if flags & OP_WAS_CONTINUED != 0 => flags & !OP_CONTINUE,
            flags => flags,
        };
        match flags {
            0 | OP_CONTINUE => transaction.add(data)?,
            OP_WAS_CONTINUED => transaction.extend(data)?,
            OP_COMMIT => {
                transaction.check_complete()?;
                return Ok(self.running.remove(&tid));
            }
            OP_UNMOUNT => {
                self.running.remove(&tid);
            }
            flags => {
                let damage = Corruption::new("log operation", "flags within a transaction");
                return Err(
                    damage.mismatch("a single flag other than start", format_args!("{flags:#04x}"))
                );
            }
        }
        Ok(None)
    }
}
