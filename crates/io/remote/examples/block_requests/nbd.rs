//! Client of NBD with simple replies, over a Unix socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crate::{Client, REQUEST_BYTES};

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_BYTES: usize = 16;
/// Fixed newstyle, and no zeros after the handshake.
const CLIENT_FLAGS: u32 = 3;
const EXPORT_NAME: u32 = 1;

pub(crate) struct NbdClient {
    stream: io::BufReader<UnixStream>,
    len: u64,
    random: fastrand::Rng,
    /// True while requests are writes.
    writes: bool,
}

impl NbdClient {
    /// Opens the default export.
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.read_exact(&mut [0; 18])?;
        let option = [
            &CLIENT_FLAGS.to_be_bytes()[..],
            &OPTION_MAGIC.to_be_bytes(),
            &EXPORT_NAME.to_be_bytes(),
            &0_u32.to_be_bytes(),
        ];
        stream.write_all(&option.concat())?;
        let (mut len, mut flags) = ([0; 8], [0; 2]);
        stream.read_exact(&mut len)?;
        stream.read_exact(&mut flags)?;
        let (len, stream) =
            (u64::from_be_bytes(len), io::BufReader::with_capacity(128 << 10, stream));
        Ok(Self { stream, len, random: fastrand::Rng::with_seed(1), writes: false })
    }

    fn send(&mut self) -> io::Result<()> {
        let offset = self.random.u64(..self.len / REQUEST_BYTES) * REQUEST_BYTES;
        let mut request = Vec::with_capacity(28 + REQUEST_BYTES as usize);
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(0_u16.to_be_bytes());
        request.extend(u16::from(self.writes).to_be_bytes());
        request.extend(0_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((REQUEST_BYTES as u32).to_be_bytes());
        if self.writes {
            request.resize(request.len() + REQUEST_BYTES as usize, 9);
        }
        self.stream.get_mut().write_all(&request)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut reply = [0; REPLY_BYTES];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[4..8], [0; 4], "the server reports an error");
        if self.writes { Ok(()) } else { self.stream.read_exact(&mut [0; REQUEST_BYTES as usize]) }
    }
}

impl Client for NbdClient {
    fn run(&mut self, writes: bool, depth: u16, until: Instant) -> u64 {
        self.writes = writes;
        let mut count = 0;
        (0..depth).try_for_each(|_| self.send()).expect("a request");
        while Instant::now() < until {
            self.receive().and_then(|()| self.send()).expect("a reply");
            count += 1;
        }
        (0..depth).try_for_each(|_| self.receive()).expect("a reply");
        count + u64::from(depth)
    }
}
