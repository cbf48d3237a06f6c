//! Hostile servers: wrong, slow and endless answers. Each must end with an error, in bounded time and memory.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use diskwright_remote::place::object::ObjectSource;
use diskwright_remote::place::runtime::block_on;
use diskwright_remote::place::store::{Location, open_within};
use diskwright_remote::place::transport::{Limits, connector};
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use testkit::RawServer;

/// Maximum duration of each case. The windows of the test are 200 ms, and requests are retried.
const TIME_MAX: Duration = Duration::from_secs(20);

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.silence = Duration::from_millis(300);
    limits.window = Duration::from_millis(200);
    limits.window_bytes = 4096;
    limits.page_bytes = 1 << 20;
    limits.pages = 40;
    limits
}

fn location(address: &str) -> Location {
    open_within(&address.into(), limits()).unwrap()
}

/// Writes until the client disconnects.
fn for_ever(stream: &mut TcpStream, piece: &[u8], pause: Duration) -> io::Result<()> {
    loop {
        stream.write_all(piece)?;
        sleep(pause);
    }
}

const PART: &str = "HTTP/1.1 206 Part\r\nETag: \"x\"\r\nContent-Range: bytes 0-131071/1048576\r\n";

type Lie = fn(&mut TcpStream) -> io::Result<()>;

/// Wrong answers: a name, a part of the expected error, and the answer.
const LIES: &[(&str, &str, Lie)] = &[
    ("an endless error body", "access denied", |stream| {
        stream.write_all(b"HTTP/1.1 403 No\r\n\r\n")?;
        for_ever(stream, &[b'x'; 65536], Duration::ZERO)
    }),
    ("one byte at a time", "bytes in 200ms", |stream| {
        stream.write_all(format!("{PART}Content-Length: 131072\r\n\r\n").as_bytes())?;
        for_ever(stream, b"x", Duration::from_millis(20))
    }),
    ("headers at one byte at a time", "did not answer within", |stream| {
        stream.write_all(b"HTTP/1.1 206 Part\r\nX: ")?;
        for_ever(stream, b"x", Duration::from_millis(20))
    }),
    ("headers without end", "http://", |stream| {
        stream.write_all(b"HTTP/1.1 206 Part\r\n")?;
        for_ever(stream, b"X-Y: zzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n", Duration::ZERO)
    }),
    ("silence", "did not answer within", |_| {
        sleep(Duration::from_secs(2));
        Ok(())
    }),
    ("another range", "http://", |stream| {
        let head = PART.replace("0-131071", "1-131072");
        stream.write_all(format!("{head}Content-Length: 131072\r\n\r\n").as_bytes())?;
        stream.write_all(&[0; 131_072])
    }),
    ("a body that is longer than its range", "larger than the limit", |stream| {
        stream.write_all(format!("{PART}Content-Length: 99999999999\r\n\r\n").as_bytes())?;
        for_ever(stream, &[b'x'; 65536], Duration::ZERO)
    }),
    ("a body without a length", "Content-Length", |stream| {
        stream.write_all(format!("{PART}Transfer-Encoding: chunked\r\n\r\n").as_bytes())?;
        let piece = [&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n"].concat();
        for_ever(stream, &piece, Duration::ZERO)
    }),
    ("compressed bytes", "compression (gzip)", |stream| {
        let head = format!("{PART}Content-Encoding: gzip\r\nContent-Length: 131072\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&[0; 131_072])
    }),
    ("a redirect to a file", "http://", |stream| {
        stream.write_all(
            b"HTTP/1.1 302 Go\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
        )
    }),
    ("a redirect to another scheme", "http://", |stream| {
        stream.write_all(b"HTTP/1.1 302 Go\r\nLocation: gopher://h/x\r\nContent-Length: 0\r\n\r\n")
    }),
    ("redirects without end", "http://", |stream| {
        stream.write_all(b"HTTP/1.1 302 Go\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }),
];

#[test]
fn every_wrong_response_of_a_web_server_is_an_error() {
    std::thread::scope(|scope| {
        for &(lie, told, answer) in LIES {
            scope.spawn(move || {
                let server = RawServer::new(move |_, stream| answer(stream));
                let start = Instant::now();
                let address = format!("{}/disk?sig=CANARY", server.url());
                let Err(error) = ObjectSource::of(location(&address)) else {
                    panic!("{lie} is believed");
                };
                let error = error.to_string();
                assert!(error.contains(told), "{lie}: {error}");
                assert!(!error.contains("CANARY"), "{lie}: {error}");
                assert!(start.elapsed() < TIME_MAX, "{lie} took {:?}", start.elapsed());
            });
        }
    });
}

#[test]
fn a_slow_line_that_makes_progress_is_waited_for() {
    let server = RawServer::new(|_, stream| {
        stream.write_all(format!("{PART}Content-Length: 131072\r\n\r\n").as_bytes())?;
        for _ in 0..16 {
            stream.write_all(&[7; 8192])?;
            sleep(Duration::from_millis(50));
        }
        Ok(())
    });
    // This takes 800 ms, four windows.
    assert!(ObjectSource::of(location(&format!("{}/disk", server.url()))).is_ok());
}

#[test]
fn a_redirect_does_not_get_the_query() {
    let (sender, heads) = std::sync::mpsc::channel();
    let other = RawServer::new(move |head, stream| {
        let _ = sender.send(head.to_owned());
        stream.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    });
    let to = other.url();
    let server = RawServer::new(move |_, stream| {
        let answer = format!(
            "HTTP/1.1 302 Go\r\nLocation: {to}/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(answer.as_bytes())
    });
    assert!(ObjectSource::of(location(&format!("{}/disk?sig=CANARY", server.url()))).is_err());
    let head = heads.recv_timeout(TIME_MAX).unwrap();
    assert!(head.starts_with("GET /x ") && !head.contains("CANARY"), "{head}");
}

/// Returns a bucket at a server. A failed request is repeated once.
fn bucket(server: &RawServer) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_retry(RetryConfig { max_retries: 1, ..RetryConfig::default() })
        .with_endpoint(server.url())
        .with_allow_http(true)
        .with_bucket_name("b")
        .with_region("x")
        .with_access_key_id("id")
        .with_secret_access_key("CANARY")
        .with_http_connector(connector(limits()))
        .build()
        .unwrap()
}

#[test]
fn every_wrong_response_of_a_bucket_is_an_error() {
    std::thread::scope(|scope| {
        for &(lie, _, answer) in LIES {
            scope.spawn(move || {
                let server = RawServer::new(move |_, stream| answer(stream));
                let (start, store) = (Instant::now(), Arc::new(bucket(&server)));
                let path = object_store::path::Path::from("disk");
                let put = store.put(&path, PutPayload::from_static(&[7; 4096]));
                // Some heads of answers are those of a success, which the body of an answer to a write cannot change.
                let stored = block_on(put).err().map(|error| error.to_string());
                let address = "s3://b/disk".into();
                let Err(read) = ObjectSource::of(Location { store, path, address }) else {
                    panic!("{lie} is believed");
                };
                let said = format!("{read} {}", stored.unwrap_or_default());
                assert!(!said.contains("CANARY"), "{lie}: {said}");
                assert!(start.elapsed() < 2 * TIME_MAX, "{lie} took {:?}", start.elapsed());
            });
        }
    });
}

/// Lists a bucket at a server.
fn listed(server: &RawServer) -> Result<usize, object_store::Error> {
    let store = bucket(server);
    block_on(async {
        let mut objects = store.list(None);
        let mut count = 0;
        while objects.try_next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    })
}

fn page(token: &str) -> String {
    let body = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><KeyCount>1</KeyCount><NextContinuationToken>{token}\
         </NextContinuationToken><Contents><Key>k</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"x\"\
         </ETag><Size>1</Size></Contents></ListBucketResult>"
    );
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[test]
fn listings_without_end_end() {
    let start = Instant::now();
    // A listing that repeats one page without end.
    let server = RawServer::new(|_, stream| stream.write_all(page("again").as_bytes()));
    let error = listed(&server).unwrap_err();
    assert!(format!("{error:?}").contains("Repeated"), "{error:?}");
    // A listing with a new page each time.
    let number = std::sync::atomic::AtomicU64::new(0);
    let server = RawServer::new(move |_, stream| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        stream.write_all(page(&number.to_string()).as_bytes())
    });
    let error = listed(&server).unwrap_err();
    assert!(format!("{error:?}").contains("Pages(40)"), "{error:?}");
    // A single page without end.
    let server = RawServer::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>")?;
        for_ever(stream, &[b' '; 65536], Duration::ZERO)
    });
    let error = listed(&server).unwrap_err();
    assert!(format!("{error:?}").contains("Long(1048576)"), "{error:?}");
    assert!(start.elapsed() < TIME_MAX);
}

#[test]
fn an_error_answer_that_echoes_the_request_is_not_repeated() {
    let server = RawServer::new(|head, stream| {
        let answer = format!(
            "HTTP/1.1 400 No\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}",
            head.len()
        );
        stream.write_all(answer.as_bytes())
    });
    let error = listed(&server).unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(!said.contains("Authorization") && !said.contains("Signature"), "{said}");
}
