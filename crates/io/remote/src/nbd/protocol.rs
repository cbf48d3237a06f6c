//! Constants and messages of the protocol, without I/O. All integers are big-endian.

use std::io;

/// "NBDMAGIC", the first bytes that a server sends.
pub(crate) const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT". Follows `MAGIC` in the new style, and starts each option.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Follows `MAGIC` in the old style.
pub(crate) const OLD_STYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, equal for servers (16 bits) and clients (32 bits).
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Options that clients send.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options. Errors have the highest bit set.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const IS_ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = IS_ERROR | 1;
    pub(crate) const POLICY: u32 = IS_ERROR | 2;
    pub(crate) const INVALID: u32 = IS_ERROR | 3;
    pub(crate) const TLS_REQUIRED: u32 = IS_ERROR | 5;
    pub(crate) const UNKNOWN: u32 = IS_ERROR | 6;
}

/// Types of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: the capabilities of an export.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Commands of requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub(crate) mod flag {
    /// The change must be durable before the reply is sent.
    pub(crate) const FUA: u16 = 1;
    /// Zeros must be allocated, not stored as a hole.
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    /// The contents of a read must be one chunk.
    pub(crate) const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub(crate) const REQ_ONE: u16 = 1 << 3;
}

/// Types of the chunks of structured replies. Errors have the highest bit set.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const IS_ERROR: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = IS_ERROR | 1;
}

/// The metadata context that reports holes. It has no bits but these two.
pub(crate) mod allocation {
    pub(crate) const NAME: &[u8] = b"base:allocation";
    /// No storage is allocated.
    pub(crate) const HOLE: u32 = 1;
    /// The bytes are zeros.
    pub(crate) const ZERO: u32 = 1 << 1;
}

/// Error numbers of replies, equal to those of Linux on every host.
pub(crate) mod errno {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const PERM: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const NO_MEMORY: u32 = 12;
    pub(crate) const INVALID: u32 = 22;
    pub(crate) const NO_SPACE: u32 = 28;
    pub(crate) const OVERFLOW: u32 = 75;
    pub(crate) const UNSUPPORTED: u32 = 95;
    pub(crate) const SHUTDOWN: u32 = 108;
}

/// Maximum length of a request's contents for both sides. Every server must accept this unless it reports another
/// limit.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Maximum length of an option or a reply to one; a name may have 4096 bytes.
pub(crate) const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Number of zero bytes after the reply to `EXPORT_NAME`, unless `NO_ZEROES` was negotiated.
pub(crate) const EXPORT_ZEROES: usize = 124;

pub(crate) const REQUEST_BYTES: usize = 28;
pub(crate) const REPLY_BYTES: usize = 16;
pub(crate) const CHUNK_BYTES: usize = 20;

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    /// The client's identifier of the request, which the reply repeats.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) fn parse(bytes: &[u8; REQUEST_BYTES]) -> io::Result<Self> {
        let magic = u32::from_be_bytes(part(bytes, 0));
        if magic != REQUEST_MAGIC {
            return Err(wrong("the magic number of a request", REQUEST_MAGIC.into(), magic.into()));
        }
        Ok(Self {
            flags: u16::from_be_bytes(part(bytes, 4)),
            command: u16::from_be_bytes(part(bytes, 6)),
            cookie: u64::from_be_bytes(part(bytes, 8)),
            offset: u64::from_be_bytes(part(bytes, 16)),
            len: u32::from_be_bytes(part(bytes, 24)),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// A simple reply's header. The contents of a successful read follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) error: u32,
    pub(crate) cookie: u64,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8; REPLY_BYTES]) -> io::Result<Self> {
        let magic = u32::from_be_bytes(part(bytes, 0));
        if magic != REPLY_MAGIC {
            return Err(wrong("the magic number of a reply", REPLY_MAGIC.into(), magic.into()));
        }
        Ok(Self {
            error: u32::from_be_bytes(part(bytes, 4)),
            cookie: u64::from_be_bytes(part(bytes, 8)),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// A header of a chunk of a structured reply. Its payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// True if the reply ends with this chunk.
    pub(crate) is_last: bool,
    pub(crate) kind: u16,
    pub(crate) cookie: u64,
    /// Length of the payload.
    pub(crate) len: u32,
}

impl Chunk {
    pub(crate) fn parse(bytes: &[u8; CHUNK_BYTES]) -> io::Result<Self> {
        let magic = u32::from_be_bytes(part(bytes, 0));
        if magic != CHUNK_MAGIC {
            return Err(wrong("the magic number of a chunk", CHUNK_MAGIC.into(), magic.into()));
        }
        Ok(Self {
            // Unknown flags are hints.
            is_last: u16::from_be_bytes(part(bytes, 4)) & 1 != 0,
            kind: u16::from_be_bytes(part(bytes, 6)),
            cookie: u64::from_be_bytes(part(bytes, 8)),
            len: u32::from_be_bytes(part(bytes, 16)),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&u16::from(self.is_last).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Returns `N` bytes at `at`. The caller has checked the length.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Returns an error for a value that violates the protocol.
pub(crate) fn wrong(what: &str, expected: u64, found: u64) -> io::Error {
    violation(format!("{what} is {found:#x}, not {expected:#x}"))
}

pub(crate) fn violation(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD: {}", what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_they_were() {
        let request = Request { flags: 1, command: 6, cookie: 1 << 40, offset: 1 << 50, len: 7 };
        assert_eq!(Request::parse(&request.bytes()).unwrap(), request);
        let reply = Reply { error: 28, cookie: 9 };
        assert_eq!(Reply::parse(&reply.bytes()).unwrap(), reply);
        let chunk = Chunk { is_last: true, kind: chunk::HOLE, cookie: 1 << 50, len: 12 };
        assert_eq!(Chunk::parse(&chunk.bytes()).unwrap(), chunk);
        let mut bytes = reply.bytes();
        bytes[3] ^= 1;
        let error = Reply::parse(&bytes).unwrap_err().to_string();
        assert!(error.contains("0x67446699, not 0x67446698"), "{error}");
    }
}
