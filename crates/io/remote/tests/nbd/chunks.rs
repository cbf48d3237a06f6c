//! Structured replies and the status of blocks, with hostile peers.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::nbd::{Client, parse_reply};

use super::hostile::{LEN, answer_to, assert_serves, client_of, export, request, sizes};
use super::support::{Served, serve};

const UNSUPPORTED: u32 = (1 << 31) | 1;
const INVALID: u32 = (1 << 31) | 3;
const UNKNOWN: u32 = (1 << 31) | 6;
const ALLOCATION: &[u8] = b"base:allocation";
/// Identifier of the context that the servers of these tests choose.
const ID: u32 = 7;

fn hello() -> Vec<u8> {
    [b"NBDMAGICIHAVEOPT".as_slice(), &3_u16.to_be_bytes()].concat()
}

fn context(id: u32, name: &[u8]) -> Vec<u8> {
    answer_to(10, 4, &[&id.to_be_bytes()[..], name].concat())
}

fn chunk(is_last: bool, kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let payload = parts.concat();
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&u16::from(is_last).to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&0_u64.to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

fn data(is_last: bool, offset: u64, len: usize) -> Vec<u8> {
    chunk(is_last, 1, &[&offset.to_be_bytes(), &vec![9; len]])
}

fn hole(is_last: bool, offset: u64, len: u32) -> Vec<u8> {
    chunk(is_last, 2, &[&offset.to_be_bytes(), &len.to_be_bytes()])
}

fn status(id: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let words: Vec<u8> =
        extents.iter().flat_map(|(len, flags)| [*len, *flags]).flat_map(u32::to_be_bytes).collect();
    chunk(true, 5, &[&id.to_be_bytes(), &words])
}

fn failure(number: u32, len: u16, message: &[u8]) -> Vec<u8> {
    chunk(true, 0x8001, &[&number.to_be_bytes(), &len.to_be_bytes(), message])
}

/// Length of a client's handshake with an empty name, and of one request.
const HELLO_BYTES: usize = 4 + 16 + (16 + 12 + 15) + (16 + 8);
const REQUEST_BYTES: usize = 28;

/// Returns a client of a server that sends `said` after the first request, and then only reads.
fn client_after_request(said: Vec<u8>) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let ready = [answer_to(8, 1, &[]), context(ID, ALLOCATION), answer_to(10, 1, &[])].concat();
        let go = [export(LEN), sizes(1, 1 << 20), answer_to(7, 1, &[])].concat();
        stream.write_all(&[hello(), ready, go].concat())?;
        stream.read_exact(&mut [0; HELLO_BYTES + REQUEST_BYTES])?;
        stream.write_all(&said)?;
        io::copy(&mut stream, &mut io::sink()).map(drop)
    });
    Client::connect(&format!("nbd+unix:///?socket={}", socket.display())).unwrap()
}

#[test]
fn invalid_extensions_of_servers_are_detected() {
    let chunks = || [hello(), answer_to(8, 1, &[])].concat();
    for (said, told) in [
        ([hello(), answer_to(8, 3, &[])].concat(), "an answer of type 0x3"),
        ([chunks(), context(1, b"qemu:dirty")].concat(), "that was not requested"),
        ([chunks(), answer_to(10, 4, &[1])].concat(), "that was not requested"),
        ([chunks(), context(1, ALLOCATION), context(2, ALLOCATION)].concat(), "not requested"),
        ([chunks(), answer_to(10, 2, &[])].concat(), "an answer of type 0x2"),
        ([chunks(), answer_to(7, 1, &[])].concat(), "the option of an answer"),
        ([chunks(), answer_to(10, UNKNOWN, &[]), answer_to(7, UNKNOWN, &[])].concat(), "no export"),
    ] {
        let error = client_of(&said).expect_err(told).to_string();
        assert!(error.contains(told), "{error} instead of {told}");
    }
    // A server may have one extension without the other.
    let go = [export(LEN), sizes(1, 1 << 20), answer_to(7, 1, &[])].concat();
    let without = [chunks(), answer_to(10, UNSUPPORTED, &[]), go].concat();
    assert_eq!(client_of(&without).unwrap().known_zeros(0, LEN), None);
}

#[test]
fn invalid_chunks_are_detected() {
    let simple = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 12], &[9; 4096]].concat();
    let mut other = data(true, 512, 4096);
    other[15] = 5;
    let singles = (0..200).flat_map(|at| data(false, 512 + at, 1)).collect();
    for (said, told) in [
        (simple, "a simple reply instead of chunks"),
        (other, "an unknown request 5"),
        (data(true, 511, 4096), "a chunk of bytes 511+4096, not requested"),
        (data(true, 513, 4096), "not requested"),
        (data(true, u64::MAX, 4096), "not requested"),
        (hole(true, 512, 4097), "not requested"),
        (hole(true, 512, 0), "not requested"),
        (data(true, 512, 0), "a chunk of type 0x1 with 8 bytes"),
        (chunk(true, 2, &[&[0; 11]]), "a chunk of type 0x2 with 11 bytes"),
        ([data(false, 512, 512), hole(true, 1023, 100)].concat(), "two chunks of bytes 1023+100"),
        ([data(false, 512, 512), data(true, 512, 512)].concat(), "two chunks of bytes 512+512"),
        ([hole(false, 1024, 512), hole(true, 512, 513)].concat(), "two chunks"),
        (chunk(true, 0, &[]), "an incomplete reply"),
        (data(true, 512, 4095), "an incomplete reply"),
        ([data(false, 512, 512), data(true, 1025, 3583)].concat(), "an incomplete reply"),
        (chunk(false, 0, &[]), "a chunk of type 0x0"),
        (chunk(true, 0, &[b"x"]), "a chunk of type 0x0 with 1 bytes"),
        (status(ID, &[(4096, 0)]), "a chunk of type 0x5"),
        (chunk(true, 77, &[&[0; 64]]), "a chunk of type 0x4d"),
        (failure(0, 0, b""), "an invalid error"),
        (failure(5, 9, b"short"), "an invalid error"),
        (chunk(true, 0x8001, &[&[1; 5]]), "a chunk of type 0x8001 with 5 bytes"),
        (chunk(true, 0x8001, &[&[1; 9000]]), "a chunk of type 0x8001 with 9000 bytes"),
        (singles, "a reply with more than 72 chunks"),
    ] {
        let client = client_after_request(said);
        let error = client.read_at(512, &mut [0; 4096]).expect_err(told).to_string();
        assert!(error.contains(told), "{error} instead of {told}");
        assert!(client.write_at(0, &[0; 512]).is_err());
    }
}

#[test]
fn chunks_in_any_order_are_assembled() {
    let said = [
        data(false, 2560, 512),
        hole(false, 512, 512),
        hole(false, 3072, 1536),
        data(false, 1024, 1536),
        chunk(true, 0, &[]),
    ];
    let client = client_after_request(said.concat());
    let mut found = [1; 4096];
    client.read_at(512, &mut found).unwrap();
    assert!(
        found[..512] == [0; 512] && found[2560..] == [0; 1536] && found[512..2560] == [9; 2048]
    );
}

#[test]
fn any_chunks_are_read_without_harm() {
    for seed in 0..testkit::effort(2000, 20_000, 1_000_000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let command = if random.bool() { 0 } else { 7 };
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..8) {
            let mut payload = vec![0; random.usize(..40)];
            random.fill(&mut payload);
            if let Some(offset) = payload.first_chunk_mut::<8>() {
                *offset = random.u64(..80).to_be_bytes();
            }
            let kind = [0, 1, 2, 5, 0x8001, 0x8002, random.u16(..)][random.usize(..7)];
            bytes.extend(chunk(random.u8(..4) == 0, kind, &[&payload]));
        }
        if let Ok(Some((contents, extents))) = parse_reply(command, 10, 40, &bytes) {
            assert!(command == 7 && extents > 0 || contents.len() == 40, "seed {seed}");
        }
    }
}

#[test]
fn errors_of_chunks_are_shown() {
    let message = b"the disk is \x1b on fire";
    let failed = failure(5, message.len() as u16, message);
    let client = client_after_request([data(false, 512, 512), failed].concat());
    let error = client.read_at(512, &mut [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("returned an error (the disk is \\x1b on fire)"), "{error}");
}

#[test]
fn invalid_status_of_blocks_is_detected() {
    for said in [
        status(ID + 1, &[(4096, 3)]),
        status(ID, &[]),
        status(ID, &[(0, 3)]),
        status(ID, &[(LEN as u32, 3), (1, 0)]),
        chunk(true, 5, &[&[0; 15]]),
        chunk(true, 0, &[]),
        data(true, 0, 512),
    ] {
        let client = client_after_request(said.clone());
        assert_eq!(client.known_zeros(0, LEN), None, "{said:?}");
        assert!(client.read_at(0, &mut [0; 512]).is_err(), "{said:?}");
    }
    // An error does not violate the protocol, and the last extent may be longer than the export.
    let client = client_after_request(failure(22, 0, b""));
    assert_eq!(client.known_zeros(0, LEN), None);
    let client = client_after_request(status(ID, &[(512, 0), (u32::MAX, 3)]));
    assert_eq!(client.known_zeros(0, LEN), Some(512..LEN));
}

/// A client that sends arbitrary bytes.
struct RawClient(UnixStream);

impl RawClient {
    fn new(served: &Served) -> Self {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        Self(stream)
    }

    /// Sends an option. Returns the types of the answers, up to an acknowledgement or an error.
    fn option(&mut self, number: u32, data: &[u8]) -> Vec<u32> {
        let len = (data.len() as u32).to_be_bytes();
        let message = [b"IHAVEOPT", &number.to_be_bytes()[..], &len, data].concat();
        self.0.write_all(&message).unwrap();
        let mut kinds = Vec::new();
        loop {
            let mut header = [0; 20];
            self.0.read_exact(&mut header).unwrap();
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            self.0.read_exact(&mut vec![0; word(16) as usize]).unwrap();
            kinds.push(word(12));
            if word(12) == 1 || word(12) >= 1 << 31 {
                return kinds;
            }
        }
    }

    fn go(&mut self) {
        assert_eq!(self.option(7, &[0; 6]).last(), Some(&1));
    }

    /// Sends a request. Returns the type and the payload of each chunk.
    fn chunks(&mut self, request: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.0.write_all(request).unwrap();
        let mut chunks = Vec::new();
        loop {
            let mut header = [0; 20];
            self.0.read_exact(&mut header).unwrap();
            assert_eq!(header[..4], 0x668e_33ef_u32.to_be_bytes());
            let mut payload =
                vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
            self.0.read_exact(&mut payload).unwrap();
            chunks.push((u16::from_be_bytes([header[6], header[7]]), payload));
            if header[5] & 1 == 1 {
                return chunks;
            }
        }
    }
}

/// Returns the data of an option that asks for contexts.
fn queries(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [&(name.len() as u32).to_be_bytes()[..], name].concat();
    bytes.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        bytes.extend_from_slice(&(query.len() as u32).to_be_bytes());
        bytes.extend_from_slice(query);
    }
    bytes
}

#[test]
fn contexts_are_selected_and_listed() {
    let served = serve(Arc::new(MemoryDevice::new(LEN)), false);
    let mut client = RawClient::new(&served);
    let allocation = queries(b"", &[ALLOCATION]);
    assert_eq!(client.option(10, &allocation), [INVALID], "before structured replies");
    assert_eq!(client.option(8, b"data"), [INVALID]);
    assert_eq!(client.option(8, &[]), [1]);
    for (option, data, expected) in [
        (10, allocation.clone(), &[4, 1][..]),
        (10, queries(b"disk", &[b"qemu:x", ALLOCATION, ALLOCATION]), &[4, 1][..]),
        (10, queries(b"", &[b"base:"]), &[1][..]),
        (10, queries(b"other", &[ALLOCATION]), &[UNKNOWN][..]),
        (9, queries(b"", &[]), &[4, 1][..]),
        (9, queries(b"", &[b"base:"]), &[4, 1][..]),
        (9, queries(b"", &[b"qemu:"]), &[1][..]),
        (10, allocation[..allocation.len() - 1].to_vec(), &[INVALID][..]),
        (10, [&allocation[..], &[0]].concat(), &[INVALID][..]),
        (10, u32::MAX.to_be_bytes().to_vec(), &[INVALID][..]),
        (10, [&[0; 4][..], &u32::MAX.to_be_bytes()].concat(), &[INVALID][..]),
    ] {
        assert_eq!(client.option(option, &data), expected, "{option} {data:?}");
    }
    assert_serves(&served);
}

#[test]
fn requests_for_status_are_checked() {
    let served = serve(Arc::new(MemoryDevice::new(LEN)), false);
    let invalid = vec![(0x8001_u16, vec![0, 0, 0, 22, 0, 0])];
    let mut client = RawClient::new(&served);
    client.option(8, &[]);
    client.go();
    // The client selected no context.
    assert_eq!(client.chunks(&request(7, 0, 0, 4096)), invalid);
    let mut client = RawClient::new(&served);
    client.option(8, &[]);
    client.option(10, &queries(b"", &[ALLOCATION]));
    client.go();
    for (offset, len) in [(0, 0), (LEN, 1), (u64::MAX, 2), (1, LEN as u32)] {
        assert_eq!(client.chunks(&request(7, 0, offset, len)), invalid, "{offset}+{len}");
    }
    let zeros = [1_u32, 99, 3].map(u32::to_be_bytes).concat();
    assert_eq!(client.chunks(&request(7, 0, 5, 99)), [(5, zeros)]);
    // Errors of reads are chunks, too, and the connection goes on.
    assert_eq!(client.chunks(&request(0, 0, LEN, 1)), invalid);
    assert_eq!(client.chunks(&request(0, 0, 0, 0)), [(0, vec![])]);
    assert_serves(&served);
}

#[test]
fn holes_cost_no_bytes() {
    let memory = Arc::new(MemoryDevice::new(LEN));
    memory.write_at(400_000, b"data").unwrap();
    let served = serve(memory, true);
    let mut client = RawClient::new(&served);
    client.option(8, &[]);
    client.go();
    let read = request(0, 0, 0, LEN as u32);
    let chunks = client.chunks(&read);
    assert_eq!(chunks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [2, 1, 2]);
    assert!(chunks.iter().map(|(_, payload)| payload.len()).sum::<usize>() < 5000);
    // A client may request one chunk.
    let mut unfragmented = read;
    unfragmented[5] = 4;
    let chunks = client.chunks(&unfragmented);
    assert!(chunks.len() == 1 && chunks[0].0 == 1 && chunks[0].1.len() == 8 + LEN as usize);
}
