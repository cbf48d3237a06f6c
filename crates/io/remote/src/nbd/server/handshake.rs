//! The server's side of the handshake.

use std::io::{self, Write};
use std::time::Duration;

use super::Exported;
use crate::nbd::protocol::{
    EXPORT_ZEROES, MAGIC, OPTION_BYTES_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX,
    allocation, handshake, info, option, part, reply, transmission, violation, wrong,
};
use crate::nbd::stream::{Stream, Timed, read_array, read_vec};

/// Timeout of the handshake.
const TIME: Duration = Duration::from_secs(30);
/// Minimum and preferred block size.
const BLOCK_BYTES: (u32, u32) = (1, 4096);

/// Outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeOutcome {
    Requests(Negotiated),
    /// The client only queried information.
    Nothing,
}

/// Extensions that a client has requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Negotiated {
    /// Replies with contents consist of chunks.
    pub(super) has_chunks: bool,
    /// The client may request the status of blocks.
    pub(super) has_status: bool,
}

/// Identifier of the metadata context `base:allocation`.
pub(super) const ALLOCATION_ID: u32 = 1;

/// Performs the handshake and answers the client's options.
pub(super) fn serve(stream: &Stream, exported: &Exported) -> io::Result<HandshakeOutcome> {
    let mut timed = Timed::new(stream, TIME);
    stream.set_write_timeout(Some(TIME))?;
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    let greeting =
        [&MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat();
    (&*stream).write_all(&greeting)?;
    let found = u32::from_be_bytes(read_array(&mut timed)?);
    if found & !u32::from(flags) != 0 {
        return Err(violation(format!("a client with unknown flags {found:#x}")));
    }
    let zeroes = found & u32::from(handshake::NO_ZEROES) == 0;
    let mut negotiated = Negotiated::default();
    loop {
        let header: [u8; 16] = read_array(&mut timed)?;
        let magic = u64::from_be_bytes(part(&header, 0));
        if magic != OPTION_MAGIC {
            return Err(wrong("the magic number of an option", OPTION_MAGIC, magic));
        }
        let (number, len) =
            (u32::from_be_bytes(part(&header, 8)), u32::from_be_bytes(part(&header, 12)));
        if len > OPTION_BYTES_MAX {
            return Err(violation(format!("an option of {len} bytes")));
        }
        let data = read_vec(&mut timed, len)?;
        if number == option::EXPORT_NAME {
            return by_name(stream, exported, &data, zeroes, negotiated);
        }
        let mut answers = Answers { stream, exported, number, negotiated };
        if let Some(outcome) = answers.answer(&data)? {
            return Ok(outcome);
        }
        negotiated = answers.negotiated;
    }
}

/// Handles `EXPORT_NAME`. The only possible error reply is to close the connection.
fn by_name(
    stream: &Stream,
    exported: &Exported,
    name: &[u8],
    zeroes: bool,
    negotiated: Negotiated,
) -> io::Result<HandshakeOutcome> {
    if !exported.is_called(name) {
        return Err(violation("a client requests an unknown export"));
    }
    let mut answer = exported.size_and_flags(negotiated).to_vec();
    if zeroes {
        answer.resize(answer.len() + EXPORT_ZEROES, 0);
    }
    (&*stream).write_all(&answer)?;
    Ok(HandshakeOutcome::Requests(negotiated))
}

/// Answers one option.
struct Answers<'a> {
    stream: &'a Stream,
    exported: &'a Exported,
    number: u32,
    negotiated: Negotiated,
}

impl Answers<'_> {
    /// Handles the option. Returns the outcome if it ends the handshake.
    fn answer(&mut self, data: &[u8]) -> io::Result<Option<HandshakeOutcome>> {
        match self.number {
            option::ABORT => {
                // The client may not wait for the reply.
                let _ = self.say(reply::ACK, &[]);
                return Ok(Some(HandshakeOutcome::Nothing));
            }
            option::LIST if data.is_empty() => self.list()?,
            option::LIST => self.say(reply::INVALID, b"a list request must not have data")?,
            option::INFO | option::GO => return self.tell(data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.negotiated.has_chunks = true;
                self.say(reply::ACK, &[])?;
            }
            option::STRUCTURED_REPLY => {
                self.say(reply::INVALID, b"a request for structured replies must not have data")?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(data)?,
            _ => self.say(reply::UNSUPPORTED, b"")?,
        }
        Ok(None)
    }

    fn list(&self) -> io::Result<()> {
        let name = self.exported.name.as_bytes();
        self.say(reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name].concat())?;
        self.say(reply::ACK, &[])
    }

    /// Lists or selects metadata contexts.
    fn contexts(&mut self, data: &[u8]) -> io::Result<()> {
        if !self.negotiated.has_chunks {
            return self.say(reply::INVALID, b"metadata contexts need structured replies");
        }
        let Some((name, queries)) = parse_queries(data) else {
            return self.say(reply::INVALID, b"its lengths contradict each other");
        };
        if !self.exported.is_called(name) {
            return self.say(reply::UNKNOWN, b"there is no export with that name");
        }
        let lists = self.number == option::LIST_META_CONTEXT;
        let is_meant =
            |query: &&[u8]| *query == allocation::NAME || lists && *query == &allocation::NAME[..5];
        let is_selected = queries.iter().any(is_meant) || lists && queries.is_empty();
        if is_selected {
            let id = if lists { 0 } else { ALLOCATION_ID };
            self.say(reply::META_CONTEXT, &[&id.to_be_bytes()[..], allocation::NAME].concat())?;
        }
        if !lists {
            self.negotiated.has_status = is_selected;
        }
        self.say(reply::ACK, &[])
    }

    /// Handles `INFO` and `GO`. `GO` starts the transmission phase.
    fn tell(&self, data: &[u8]) -> io::Result<Option<HandshakeOutcome>> {
        let Some((name, asked)) = parse_go(data) else {
            self.say(reply::INVALID, b"its lengths contradict each other")?;
            return Ok(None);
        };
        if !self.exported.is_called(name) {
            self.say(reply::UNKNOWN, b"there is no export with that name")?;
            return Ok(None);
        }
        let kind = |kind: u16| kind.to_be_bytes();
        self.say(
            reply::INFO,
            &[&kind(info::EXPORT)[..], &self.exported.size_and_flags(self.negotiated)].concat(),
        )?;
        let (least, best) = BLOCK_BYTES;
        let sizes = [least, best, PAYLOAD_BYTES_MAX].map(u32::to_be_bytes).concat();
        self.say(reply::INFO, &[&kind(info::BLOCK_SIZE)[..], &sizes].concat())?;
        if asked.contains(&info::NAME) {
            let name = self.exported.name.as_bytes();
            self.say(reply::INFO, &[&kind(info::NAME)[..], name].concat())?;
        }
        self.say(reply::ACK, &[])?;
        Ok((self.number == option::GO).then_some(HandshakeOutcome::Requests(self.negotiated)))
    }

    fn say(&self, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut message = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        for word in [self.number, kind, data.len() as u32] {
            message.extend_from_slice(&word.to_be_bytes());
        }
        message.extend_from_slice(data);
        (&*self.stream).write_all(&message)
    }
}

/// Parses the data of `INFO` and `GO`: the name and the requested information. Returns `None` if the lengths are wrong.
fn parse_go(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (name, rest) = split_string(data)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (asked, []) = rest.as_chunks::<2>() else { return None };
    let is_whole = asked.len() == usize::from(u16::from_be_bytes(*count));
    is_whole.then(|| (name, asked.iter().map(|word| u16::from_be_bytes(*word)).collect()))
}

/// Parses the data of a request for metadata contexts: the name of the export and the queries. Returns `None` if the
/// lengths are wrong.
fn parse_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = split_string(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, after) = split_string(rest)?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}

/// Splits off a string and its length.
fn split_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

impl Exported {
    fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    fn size_and_flags(&self, negotiated: Negotiated) -> [u8; 10] {
        use transmission as may;
        let mut flags = may::HAS_FLAGS | may::SEND_FLUSH | may::CAN_MULTI_CONN;
        flags |= if negotiated.has_chunks { may::SEND_DF } else { 0 };
        flags |= if self.read_only {
            may::READ_ONLY
        } else {
            may::SEND_FUA | may::SEND_TRIM | may::SEND_WRITE_ZEROES
        };
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.device.len().to_be_bytes());
        bytes[8..].copy_from_slice(&flags.to_be_bytes());
        bytes
    }
}
