//! Sends replies: simple ones, or chunks if the client knows them.

use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use disk::is_zero;

use super::handshake::{ALLOCATION_ID, Negotiated};
use super::transmission::Performed;
use crate::nbd::protocol::{Chunk, Reply, Request, chunk, command, errno, flag};
use crate::nbd::stream::Stream;

/// Unit of the search for zeros in the contents of a read.
const ZEROS_BYTES: u64 = 4096;
/// Buffer size. Larger contents are not copied.
const BUFFER_BYTES: usize = 32 << 10;

/// The replies of one connection.
pub(super) struct Replies<'a> {
    stream: &'a Stream,
    negotiated: Negotiated,
    /// Held while a reply is sent, so that replies do not interleave.
    turn: Mutex<()>,
}

impl<'a> Replies<'a> {
    pub(super) fn new(stream: &'a Stream, negotiated: Negotiated) -> Self {
        Self { stream, negotiated, turn: Mutex::new(()) }
    }

    pub(super) fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Sends the reply to a request. If that fails, closes the connection.
    pub(super) fn send(&self, request: &Request, done: Result<Performed, u32>) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, self.stream);
        let sent = match self.negotiated.has_chunks {
            true => structured(&mut writer, request, done),
            false => simple(&mut writer, request, done),
        };
        if sent.and_then(|()| writer.flush()).is_err() {
            // A reply was truncated, so later replies would be unreadable.
            self.stream.shutdown(Shutdown::Both);
        }
        // The rest of a failed reply must not be written.
        let _ = writer.into_parts();
    }
}

fn simple(
    writer: &mut impl Write,
    request: &Request,
    done: Result<Performed, u32>,
) -> io::Result<()> {
    let error = done.as_ref().err().copied().unwrap_or(errno::NONE);
    writer.write_all(&Reply { error, cookie: request.cookie }.bytes())?;
    match done {
        Ok(Performed::Contents(contents)) => writer.write_all(&contents),
        // The status of blocks is not available without chunks.
        _ => Ok(()),
    }
}

fn structured(
    writer: &mut impl Write,
    request: &Request,
    done: Result<Performed, u32>,
) -> io::Result<()> {
    let mut send = |is_last, kind, start: &[u8], rest: &[u8]| {
        let len = (start.len() + rest.len()) as u32;
        writer.write_all(&Chunk { is_last, kind, cookie: request.cookie, len }.bytes())?;
        writer.write_all(start)?;
        writer.write_all(rest)
    };
    match done {
        Err(error) => {
            // A message of no bytes follows.
            let data = [&error.to_be_bytes()[..], &0_u16.to_be_bytes()].concat();
            send(true, chunk::ERROR, &data, &[])
        }
        Ok(Performed::Status(extents)) => {
            let words = extents.into_iter().flat_map(|(len, flags)| [len, flags]);
            let data: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
            send(true, chunk::BLOCK_STATUS, &ALLOCATION_ID.to_be_bytes(), &data)
        }
        Ok(Performed::Contents(contents)) if !contents.is_empty() => {
            let parts = match request.flags & flag::DF != 0 {
                true => vec![(false, 0..contents.len())],
                false => parts(request.offset, &contents),
            };
            let last = parts.len() - 1;
            for (number, (is_hole, part)) in parts.into_iter().enumerate() {
                let offset = (request.offset + part.start as u64).to_be_bytes();
                if is_hole {
                    let len = (part.len() as u32).to_be_bytes();
                    send(number == last, chunk::HOLE, &offset, &len)?;
                } else {
                    send(number == last, chunk::DATA, &offset, &contents[part])?;
                }
            }
            Ok(())
        }
        // Other commands may get simple replies, which are shorter.
        Ok(_) if request.command != command::READ => {
            writer.write_all(&Reply { error: errno::NONE, cookie: request.cookie }.bytes())
        }
        Ok(_) => send(true, chunk::NONE, &[], &[]),
    }
}

/// Divides the contents of a read at `offset` into zeros and other bytes: whether they are zeros, and which bytes.
fn parts(offset: u64, contents: &[u8]) -> Vec<(bool, Range<usize>)> {
    let mut parts = Vec::<(bool, Range<usize>)>::new();
    let mut at = 0;
    while at < contents.len() {
        let to_boundary = ZEROS_BYTES - (offset + at as u64) % ZEROS_BYTES;
        let end = contents.len().min(at + to_boundary as usize);
        // A short part is not worth a chunk.
        let is_hole = (end - at) as u64 == ZEROS_BYTES && is_zero(&contents[at..end]);
        match parts.last_mut() {
            Some((same, part)) if *same == is_hole => part.end = end,
            _ => parts.push((is_hole, at..end)),
        }
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_whole_blocks_are_holes() {
        let mut contents = vec![0; 5 * 4096];
        contents[4096 - 100 + 5] = 1;
        let expected = [(false, 0..2 * 4096 - 100), (true, 2 * 4096 - 100..5 * 4096 - 100)];
        let found = parts(4096 * 7 + 100, &contents);
        assert_eq!(found[..2], expected);
        assert_eq!(found[2..], [(false, 5 * 4096 - 100..5 * 4096)]);
        assert_eq!(parts(0, &contents[4096..]), [(true, 0..4 * 4096)]);
        assert_eq!(parts(9, &[0; 7]), [(false, 0..7)]);
    }
}
