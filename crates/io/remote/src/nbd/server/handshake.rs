//! The server's side of the handshake.

use std::io::{self, Write};
use std::time::Duration;

use super::Exported;
use crate::nbd::protocol::{
    EXPORT_ZEROES, MAGIC, OPTION_BYTES_MAX, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX,
    handshake, info, option, part, reply, transmission, violation, wrong,
};
use crate::nbd::stream::{Stream, Timed, read_array, read_vec};

/// Timeout of the handshake.
const TIME: Duration = Duration::from_secs(30);
/// Minimum and preferred block size.
const BLOCK_BYTES: (u32, u32) = (1, 4096);

/// Outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeOutcome {
    Requests,
    /// The client only queried information.
    Nothing,
}

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
            return by_name(stream, exported, &data, zeroes);
        }
        if let Some(outcome) = (Answers { stream, exported, number }).answer(&data)? {
            return Ok(outcome);
        }
    }
}

/// Handles `EXPORT_NAME`. The only possible error reply is to close the connection.
fn by_name(
    stream: &Stream,
    exported: &Exported,
    name: &[u8],
    zeroes: bool,
) -> io::Result<HandshakeOutcome> {
    if !exported.is_called(name) {
        return Err(violation("a client requests an unknown export"));
    }
    let mut answer = exported.size_and_flags().to_vec();
    if zeroes {
        answer.resize(answer.len() + EXPORT_ZEROES, 0);
    }
    (&*stream).write_all(&answer)?;
    Ok(HandshakeOutcome::Requests)
}

/// Answers one option.
struct Answers<'a> {
    stream: &'a Stream,
    exported: &'a Exported,
    number: u32,
}

impl Answers<'_> {
    /// Handles the option. Returns the outcome if it ends the handshake.
    fn answer(&self, data: &[u8]) -> io::Result<Option<HandshakeOutcome>> {
        match self.number {
            option::ABORT => {
                // The client may not wait for the reply.
                let _ = self.say(reply::ACK, &[]);
                return Ok(Some(HandshakeOutcome::Nothing));
            }
            option::LIST if data.is_empty() => self.list()?,
            option::LIST => self.say(reply::INVALID, b"a list request must not have data")?,
            option::INFO | option::GO => return self.tell(data),
            _ => self.say(reply::UNSUPPORTED, b"")?,
        }
        Ok(None)
    }

    fn list(&self) -> io::Result<()> {
        let name = self.exported.name.as_bytes();
        self.say(reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name].concat())?;
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
            &[&kind(info::EXPORT)[..], &self.exported.size_and_flags()].concat(),
        )?;
        let (least, best) = BLOCK_BYTES;
        let sizes = [least, best, PAYLOAD_BYTES_MAX].map(u32::to_be_bytes).concat();
        self.say(reply::INFO, &[&kind(info::BLOCK_SIZE)[..], &sizes].concat())?;
        if asked.contains(&info::NAME) {
            let name = self.exported.name.as_bytes();
            self.say(reply::INFO, &[&kind(info::NAME)[..], name].concat())?;
        }
        self.say(reply::ACK, &[])?;
        Ok((self.number == option::GO).then_some(HandshakeOutcome::Requests))
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
    let (len, rest) = data.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (asked, []) = rest.as_chunks::<2>() else { return None };
    let is_whole = asked.len() == usize::from(u16::from_be_bytes(*count));
    is_whole.then(|| (name, asked.iter().map(|word| u16::from_be_bytes(*word)).collect()))
}

impl Exported {
    fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    fn size_and_flags(&self) -> [u8; 10] {
        use transmission as may;
        let mut flags = may::HAS_FLAGS | may::SEND_FLUSH | may::CAN_MULTI_CONN;
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
