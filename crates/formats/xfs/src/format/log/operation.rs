//! Operations: the units of records. Each has a header with its transaction, and some bytes.

use engine::Corruption;
use zerocopy::FromBytes;

use super::{CLIENT_LOG, RawOpHeader};

/// `oh_clientid` of operations that belong to transactions.
pub const CLIENT_TRANSACTION: u8 = 0x69;
/// `oh_flags`: a transaction starts.
pub const OP_START: u8 = 1;
/// `oh_flags`: a transaction is complete.
pub const OP_COMMIT: u8 = 2;
/// `oh_flags`: the region continues in the next record.
pub const OP_CONTINUE: u8 = 4;
/// `oh_flags`: the region continues from an earlier record.
pub const OP_WAS_CONTINUED: u8 = 8;
/// `oh_flags`: a region from an earlier record ends here.
pub const OP_END: u8 = 0x10;
/// Size of an operation's header in bytes.
pub(crate) const OP_HEADER_SIZE: usize = size_of::<RawOpHeader>();

/// An operation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'b> {
    /// The transaction it belongs to.
    pub tid: u32,
    /// Its flags.
    pub flags: u8,
    /// The bytes after its header.
    pub data: &'b [u8],
}

/// The operations of a record.
pub(crate) struct Operations<'b> {
    rest: &'b [u8],
    left: u32,
}

impl<'b> Operations<'b> {
    /// Returns the `count` operations of a record, given the bytes after its headers with the cycle words restored.
    pub(crate) const fn new(body: &'b [u8], count: u32) -> Self {
        Self { rest: body, left: count }
    }

    fn take(&mut self) -> Result<Operation<'b>, Corruption> {
        let fault = |problem| Corruption::new("log operation", problem);
        let Ok((header, rest)) = RawOpHeader::ref_from_prefix(self.rest) else {
            let damage = fault("it starts past the end of its record");
            return Err(damage.mismatch("at least 12 bytes", self.rest.len()));
        };
        if header.clientid != CLIENT_TRANSACTION && header.clientid != CLIENT_LOG {
            let found = format_args!("{:#04x}", header.clientid).to_string();
            return Err(fault("unknown client").mismatch("0x69 or 0xaa", found));
        }
        let len = header.len.get() as usize;
        let Some((data, rest)) = rest.split_at_checked(len) else {
            let damage = fault("it is longer than its record");
            return Err(damage.mismatch(format_args!("at most {}", rest.len()), len));
        };
        self.rest = rest;
        Ok(Operation { tid: header.tid.get(), flags: header.flags, data })
    }
}

impl<'b> Iterator for Operations<'b> {
    type Item = Result<Operation<'b>, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let operation = self.take();
        if operation.is_err() {
            self.left = 0;
        }
        Some(operation)
    }
}
