//! Negotiates an export with a server.

use std::io::{self, Write};

use super::Terms;
use crate::nbd::protocol::{
    EXPORT_ZEROES, MAGIC, OLD_STYLE_MAGIC, OPTION_BYTES_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    PAYLOAD_BYTES_MAX, allocation, handshake, info, option, part, reply, violation, wrong,
};
use crate::nbd::stream::{Pace, Stream, Timed, read_array, read_vec};

/// Maximum number of replies to one option.
const ANSWERS_MAX: usize = 64;
/// Maximum block size of a server, in bytes. Partial blocks are read and written through a buffer.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// Performs the handshake and selects an export.
pub(super) fn agree(stream: &Stream, name: &str, pace: Pace) -> io::Result<Terms> {
    stream.set_write_timeout(Some(pace.handshake))?;
    let mut timed = Timed::new(stream, pace.handshake);
    let reader = &mut timed;
    let magic = u64::from_be_bytes(read_array(reader)?);
    if magic != MAGIC {
        return Err(wrong("the magic number of a server", MAGIC, magic));
    }
    let style = u64::from_be_bytes(read_array(reader)?);
    if style == OLD_STYLE_MAGIC {
        return Err(violation(
            "the server uses the handshake from before 2011; use a newer server",
        ));
    }
    if style != OPTION_MAGIC {
        return Err(wrong("the second magic number of a server", OPTION_MAGIC, style));
    }
    let flags = u16::from_be_bytes(read_array(reader)?);
    let known = flags & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
    let is_fixed = known & handshake::FIXED_NEWSTYLE != 0;
    (&*stream).write_all(&u32::from(known).to_be_bytes())?;
    let zeroes = known & handshake::NO_ZEROES == 0;
    let has_chunks = is_fixed && has_chunks(stream, reader)?;
    let allocation_id = if has_chunks { allocation_id(stream, reader, name)? } else { None };
    let terms = if is_fixed { go(stream, reader, name)? } else { None };
    let terms = terms.map_or_else(|| by_name(stream, reader, name, zeroes), Ok)?;
    Terms { has_chunks, allocation_id, ..terms }.checked()
}

/// Requests structured replies. Returns false if the server refuses.
fn has_chunks(stream: &Stream, reader: &mut Timed<'_>) -> io::Result<bool> {
    send_option(stream, option::STRUCTURED_REPLY, &[])?;
    match answer(reader, option::STRUCTURED_REPLY)? {
        (reply::ACK, _) => Ok(true),
        (kind, _) if kind & reply::IS_ERROR != 0 => Ok(false),
        (kind, _) => Err(violation(format!("an answer of type {kind:#x} to an option"))),
    }
}

/// Selects the metadata context of holes. Returns its identifier, or `None` if the server has none. `go` reports other
/// errors.
fn allocation_id(stream: &Stream, reader: &mut Timed<'_>, name: &str) -> io::Result<Option<u32>> {
    let mut data = Vec::new();
    for (count, string) in [(None, name.as_bytes()), (Some(1_u32), allocation::NAME)] {
        data.extend(count.into_iter().flat_map(u32::to_be_bytes));
        data.extend_from_slice(&(string.len() as u32).to_be_bytes());
        data.extend_from_slice(string);
    }
    send_option(stream, option::SET_META_CONTEXT, &data)?;
    let mut id = None;
    for _ in 0..ANSWERS_MAX {
        let (kind, data) = answer(reader, option::SET_META_CONTEXT)?;
        match (kind, data.split_first_chunk::<4>()) {
            (reply::ACK, _) => return Ok(id),
            (reply::META_CONTEXT, Some((found, allocation::NAME))) if id.is_none() => {
                id = Some(u32::from_be_bytes(*found));
            }
            (reply::META_CONTEXT, _) => {
                return Err(violation("a metadata context that was not requested"));
            }
            (kind, _) if kind & reply::IS_ERROR != 0 => return Ok(None),
            (kind, _) => {
                return Err(violation(format!("an answer of type {kind:#x} to an option")));
            }
        }
    }
    Err(violation(format!("more than {ANSWERS_MAX} answers to one option")))
}

/// Selects the export with `GO`. Returns `None` if the server does not support it.
fn go(stream: &Stream, reader: &mut Timed<'_>, name: &str) -> io::Result<Option<Terms>> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    send_option(stream, option::GO, &data)?;
    let (mut found, mut sizes) = (None, None);
    for _ in 0..ANSWERS_MAX {
        let (kind, data) = answer(reader, option::GO)?;
        match kind {
            reply::ACK => {
                let (len, flags) = found.ok_or_else(|| {
                    violation("the server does not report the size of the export")
                })?;
                return Ok(Some(Terms::new(len, flags, sizes)));
            }
            reply::INFO => match (read_kind(&data), data.len()) {
                (Some(info::EXPORT), 12) => found = Some(size_and_flags(&data[2..])),
                (Some(info::BLOCK_SIZE), 14) => {
                    let word = |at| u32::from_be_bytes(part(&data, at));
                    sizes = Some((word(2), word(10)));
                }
                (Some(info::EXPORT | info::BLOCK_SIZE) | None, len) => {
                    return Err(violation(format!("information of {} bytes", len)));
                }
                // Information that was not requested.
                _ => {}
            },
            reply::UNSUPPORTED => return Ok(None),
            _ => return Err(refused(kind, name, &data)),
        }
    }
    Err(violation(format!("more than {ANSWERS_MAX} answers to one option")))
}

/// Selects the export with `EXPORT_NAME`. A server without such an export closes the connection.
fn by_name(stream: &Stream, reader: &mut Timed<'_>, name: &str, zeroes: bool) -> io::Result<Terms> {
    send_option(stream, option::EXPORT_NAME, name.as_bytes())?;
    let bytes: [u8; 10] = read_array(reader).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => refused(reply::UNKNOWN, name, &[]),
        _ => error,
    })?;
    if zeroes {
        let _: [u8; EXPORT_ZEROES] = read_array(reader)?;
    }
    let (len, flags) = size_and_flags(&bytes);
    Ok(Terms::new(len, flags, None))
}

fn send_option(stream: &Stream, number: u32, data: &[u8]) -> io::Result<()> {
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&number.to_be_bytes());
    message.extend_from_slice(&(data.len() as u32).to_be_bytes());
    message.extend_from_slice(data);
    (&*stream).write_all(&message)
}

/// Reads one reply to an option: its type and data.
fn answer(reader: &mut Timed<'_>, number: u32) -> io::Result<(u32, Vec<u8>)> {
    let header: [u8; 20] = read_array(reader)?;
    let magic = u64::from_be_bytes(part(&header, 0));
    if magic != OPTION_REPLY_MAGIC {
        return Err(wrong("the magic number of an answer", OPTION_REPLY_MAGIC, magic));
    }
    let word = |at| u32::from_be_bytes(part(&header, at));
    if word(8) != number {
        return Err(wrong("the option of an answer", number.into(), word(8).into()));
    }
    let len = word(16);
    if len > OPTION_BYTES_MAX {
        return Err(violation(format!("an answer of {len} bytes")));
    }
    Ok((word(12), read_vec(reader, len)?))
}

fn read_kind(data: &[u8]) -> Option<u16> {
    data.first_chunk().map(|kind| u16::from_be_bytes(*kind))
}

fn size_and_flags(bytes: &[u8]) -> (u64, u16) {
    (u64::from_be_bytes(part(bytes, 0)), u16::from_be_bytes(part(bytes, 8)))
}

/// Converts an error reply.
fn refused(kind: u32, name: &str, data: &[u8]) -> io::Error {
    let (error, what) = match kind {
        reply::UNKNOWN => (
            io::ErrorKind::NotFound,
            format!("the server has no export \"{}\"", disk::address::shown(name.as_bytes())),
        ),
        reply::TLS_REQUIRED => (
            io::ErrorKind::Unsupported,
            "the server requires TLS, which is not supported".to_owned(),
        ),
        reply::POLICY => {
            (io::ErrorKind::PermissionDenied, "permission denied by the server".to_owned())
        }
        _ => return violation(format!("the server refuses with {kind:#x}")),
    };
    let said = String::from_utf8_lossy(data);
    let said = said.trim();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(" ({})", disk::address::safe_line(said))
    };
    io::Error::new(error, format!("{what}{said}"))
}

impl Terms {
    /// Uses the protocol's defaults for servers that report no sizes.
    fn new(len: u64, flags: u16, sizes: Option<(u32, u32)>) -> Self {
        let (block_bytes, most) = sizes.unwrap_or((1, PAYLOAD_BYTES_MAX));
        let payload_bytes_max = most.min(PAYLOAD_BYTES_MAX);
        let (has_chunks, allocation_id) = (false, None);
        Self { len, flags, block_bytes, payload_bytes_max, has_chunks, allocation_id }
    }

    /// Validates the terms.
    fn checked(self) -> io::Result<Self> {
        let Self { len, block_bytes, payload_bytes_max, .. } = self;
        if len > i64::MAX as u64 {
            return Err(violation(format!("an export of {len} bytes")));
        }
        if !block_bytes.is_power_of_two() || block_bytes > BLOCK_BYTES_MAX {
            return Err(violation(format!(
                "blocks of {block_bytes} bytes; powers of two up to {BLOCK_BYTES_MAX} are supported"
            )));
        }
        let payload_bytes_max = payload_bytes_max - payload_bytes_max % block_bytes;
        if payload_bytes_max == 0 {
            return Err(violation("the maximum request size is smaller than a block"));
        }
        Ok(Self { payload_bytes_max, ..self })
    }
}
