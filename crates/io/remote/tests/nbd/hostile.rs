//! Peers that send wrong, truncated or stalled messages.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::nbd::{Client, Pace};

use super::support::{Served, serve};

pub(super) const LEN: u64 = 1 << 20;

fn served() -> Served {
    serve(Arc::new(MemoryDevice::new(LEN)), false)
}

/// Asserts that a server still works.
pub(super) fn assert_serves(served: &Served) {
    let client = served.client();
    client.write_at(7, b"still here").unwrap();
    let mut found = [0; 10];
    client.read_at(7, &mut found).unwrap();
    assert_eq!(&found, b"still here");
}

/// Returns a connection after its handshake.
fn past_handshake(served: &Served) -> UnixStream {
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3_u32.to_be_bytes().to_vec();
    hello.extend_from_slice(b"IHAVEOPT");
    hello.extend_from_slice(&1_u32.to_be_bytes());
    hello.extend_from_slice(&0_u32.to_be_bytes());
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

pub(super) fn request(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&0_u16.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// Returns the error number of the next reply.
fn reply(stream: &mut UnixStream) -> u32 {
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[4..8].try_into().unwrap())
}

/// Asserts that the peer closed the connection without a long message.
fn assert_closed(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.len() < 64, "{} bytes", rest.len()),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn random_bytes_do_not_harm_the_server() {
    let served = served();
    for seed in 0..testkit::effort(60, 600, 6000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stream = match random.bool() {
            true => UnixStream::connect(&served.socket).unwrap(),
            false => past_handshake(&served),
        };
        let mut bytes = vec![0; random.usize(..2000)];
        random.fill(&mut bytes);
        if random.bool() {
            // A valid start, so that the random bytes reach deeper code.
            let opening = match random.bool() {
                true => [&3_u32.to_be_bytes()[..], b"IHAVEOPT"].concat(),
                false => request(random.u16(..8), 1, random.u64(..2 * LEN), random.u32(..5000)),
            };
            bytes.splice(..0, opening);
        }
        // The connection may be closed already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if let Err(error) = io::copy(&mut stream, &mut io::sink()) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "seed {seed}");
        }
    }
    assert_serves(&served);
    served.stop().unwrap();
}

#[test]
fn invalid_requests_are_refused() {
    const INVALID: u32 = 22;
    const NO_SPACE: u32 = 28;
    let served = served();
    let mut stream = past_handshake(&served);
    for (request, expected) in [
        (request(0, 1, LEN - 1, 2), INVALID),
        (request(0, 1, u64::MAX, 1), INVALID),
        (request(0, 1, 0, u32::MAX), INVALID),
        (request(6, 1, LEN, 1), NO_SPACE),
        (request(4, 1, u64::MAX, u32::MAX), NO_SPACE),
        (request(3, 1, 1, 0), INVALID),
        (request(9, 1, 0, 0), INVALID),
    ] {
        stream.write_all(&request).unwrap();
        assert_eq!(reply(&mut stream), expected, "{request:?}");
    }
    let past = [request(1, 2, LEN - 1, 2), vec![1, 2]].concat();
    stream.write_all(&past).unwrap();
    assert_eq!(reply(&mut stream), NO_SPACE);
    // The server skipped the contents and understood the next request. It does not wait for contents that exceed the
    // limit.
    stream.write_all(&request(1, 3, 0, u32::MAX)).unwrap();
    assert_closed(&mut stream);
    assert_serves(&served);
}

#[test]
fn a_stalled_client_does_not_block_others() {
    let served = served();
    let mut stalled = Vec::new();
    for _ in 0..8 {
        // Clients that stall within the handshake, within contents, and by not reading replies.
        stalled.push(UnixStream::connect(&served.socket).unwrap());
        let mut stream = past_handshake(&served);
        stream.write_all(&request(1, 1, 0, 1 << 20)).unwrap();
        stalled.push(stream);
        let mut stream = past_handshake(&served);
        for cookie in 0..8 {
            stream.write_all(&request(0, cookie, 0, LEN as u32)).unwrap();
        }
        stalled.push(stream);
    }
    assert_serves(&served);
    // Stalled clients do not delay the stop either.
    served.stop().unwrap();
}

#[test]
fn more_connections_than_are_served_are_closed() {
    let served = served();
    let kept: Vec<_> = (0..32).map(|_| past_handshake(&served)).collect();
    let mut surplus = UnixStream::connect(&served.socket).unwrap();
    surplus.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server closes it at once or, if it has not counted the last of the others yet, after its handshake.
    let hello = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &1_u32.to_be_bytes(), &[0; 4]].concat();
    let _ = surplus.write_all(&hello);
    assert_closed(&mut surplus);
    drop(kept);
    testkit::wait_until("a place for a connection", || Client::connect(&served.url("")).is_ok());
}

/// Returns the result of a connection to a server that sends `said` and then only reads.
pub(super) fn client_of(said: &[u8]) -> io::Result<Client> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let said = said.to_vec();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The client may have closed the connection.
        let _ = stream.write_all(&said);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    let client = Client::connect(&format!("nbd+unix:///?socket={}", socket.display()));
    if client.is_err() {
        server.join().unwrap();
    }
    client
}

/// Returns the greeting of a server without structured replies, up to the reply to `GO`.
fn greeting() -> Vec<u8> {
    let unsupported = answer_to(8, (1 << 31) | 1, &[]);
    [b"NBDMAGICIHAVEOPT".as_slice(), &3_u16.to_be_bytes(), &unsupported].concat()
}

fn answer(kind: u32, data: &[u8]) -> Vec<u8> {
    answer_to(7, kind, data)
}

pub(super) fn answer_to(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    for word in [option, kind, data.len() as u32] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

pub(super) fn export(len: u64) -> Vec<u8> {
    let flags = 0b0110_1101_u16;
    answer(3, &[&0_u16.to_be_bytes()[..], &len.to_be_bytes(), &flags.to_be_bytes()].concat())
}

pub(super) fn sizes(least: u32, most: u32) -> Vec<u8> {
    let sizes = [least, 4096, most].map(u32::to_be_bytes).concat();
    answer(3, &[&3_u16.to_be_bytes()[..], &sizes].concat())
}

#[test]
fn invalid_handshakes_of_servers_are_detected() {
    let mut too_long = answer(1, &[]);
    too_long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let old_style = [b"NBDMAGIC".as_slice(), &0x0000_4202_8186_1253_u64.to_be_bytes()].concat();
    let ack = || answer(1, &[]);
    for (said, told) in [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec(), "magic number of a server"),
        (b"NBDMAGIC".to_vec(), "closed the connection"),
        (b"NBDMAGICIHAVENOT".to_vec(), "second magic number"),
        (old_style, "before 2011"),
        ([greeting(), too_long].concat(), "an answer of 4294967295 bytes"),
        ([greeting(), ack()].concat(), "does not report the size of the export"),
        ([greeting(), export(u64::MAX), ack()].concat(), "an export of"),
        ([greeting(), export(LEN), sizes(3, 4096), ack()].concat(), "blocks of 3 bytes"),
        ([greeting(), export(LEN), sizes(0, 4096), ack()].concat(), "blocks of 0 bytes"),
        ([greeting(), export(LEN), sizes(512, 100), ack()].concat(), "smaller than a block"),
        ([greeting(), answer(3, &[0])].concat(), "information of 1 bytes"),
        ([greeting(), answer((1 << 31) | 5, b"no")].concat(), "TLS"),
        (
            [greeting(), answer((1 << 31) | 2, b"no \x1b")].concat(),
            "permission denied by the server (no \\x1b)",
        ),
        ([greeting(), sizes(1, 4096).repeat(100)].concat(), "more than 64 answers"),
    ] {
        let error = client_of(&said).expect_err(told).to_string();
        assert!(error.contains(told), "{error} instead of {told}");
    }
}

#[test]
fn invalid_replies_of_servers_are_detected() {
    let hello = || [greeting(), export(LEN), sizes(1, 1 << 20), answer(1, &[])].concat();
    let reply = |magic: u32, error: u32, cookie: u64| {
        [&magic.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
    };
    for (said, told) in [
        (reply(0x6744_6699, 0, 0), "magic number of a reply"),
        (reply(0x6744_6698, 0, 5), "an unknown request 5"),
        (vec![0x67], "closed the connection"),
    ] {
        // The bytes arrive before or after the first request; both must end the connection.
        let client = client_of(&[hello(), said].concat()).unwrap();
        let error = client.read_at(0, &mut [0; 512]).expect_err(told).to_string();
        assert!(error.contains(told), "{error} instead of {told}");
        assert!(client.write_at(0, &[0; 512]).is_err());
    }
}

/// Length of the client's handshake with an empty name and one read request.
const HELLO_AND_REQUEST_BYTES: usize = 4 + 16 + 16 + 8 + 28;

/// A server that sends `said` at once, `begun` after the first request, and then `rest` one byte at a time.
fn dripping(said: Vec<u8>, begun: Vec<u8>, rest: Vec<u8>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(&said)?;
        if said.len() > greeting().len() {
            stream.read_exact(&mut [0; HELLO_AND_REQUEST_BYTES])?;
            stream.write_all(&begun)?;
        }
        for byte in rest.iter().cycle() {
            stream.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let url = format!("nbd+unix:///?socket={}", socket.display());
    (folder, url)
}

fn pace() -> Pace {
    let window = Duration::from_millis(100);
    Pace { window, window_bytes: 4096, handshake: Duration::from_millis(300) }
}

#[test]
fn very_slow_servers_time_out() {
    let start = Instant::now();
    // Within the handshake.
    let (_folder, url) = dripping(greeting(), Vec::new(), answer(3, &[0; 12]));
    let error = Client::connect_within(&url, pace()).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    // Within the contents of a reply.
    let hello = [greeting(), export(LEN), sizes(1, 1 << 20), answer(1, &[])].concat();
    let reply = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 12]].concat();
    let (_folder, url) = dripping(hello.clone(), reply, vec![7]);
    let client = Client::connect_within(&url, pace()).unwrap();
    let error = client.read_at(0, &mut [0; 65536]).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    // Within the header of a reply to a pending request.
    let (_folder, url) = dripping(hello, vec![0x67], vec![0x44]);
    let client = Client::connect_within(&url, pace()).unwrap();
    let error = client.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_slow_server_that_makes_progress_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let hello = [greeting(), export(LEN), sizes(1, 1 << 20), answer(1, &[])].concat();
    thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; HELLO_AND_REQUEST_BYTES])?;
        stream.write_all(&[&0x6744_6698_u32.to_be_bytes()[..], &[0; 12]].concat())?;
        for _ in 0..16 {
            thread::sleep(Duration::from_millis(30));
            stream.write_all(&[7; 4096])?;
        }
        io::copy(&mut stream, &mut io::sink()).map(drop)
    });
    let pace = Pace { window: Duration::from_millis(150), ..pace() };
    let url = format!("nbd+unix:///?socket={}", socket.display());
    let client = Client::connect_within(&url, pace).unwrap();
    // This takes 480 ms, three windows.
    let mut found = [0; 65536];
    client.read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 7));
}

#[test]
fn connections_that_never_begin_lock_nobody_out() {
    let served = served();
    let half_open: Vec<_> =
        (0..100).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    assert_serves(&served);
    // A client past the handshake stays connected.
    let mut kept = past_handshake(&served);
    let more: Vec<_> = (0..100).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    assert_serves(&served);
    kept.write_all(&request(0, 9, 0, 1)).unwrap();
    assert_eq!(reply(&mut kept), 0);
    drop((half_open, more));
}
