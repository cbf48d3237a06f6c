//! A web server that fails. Reads must be right or return an error that names the object.

use std::sync::Arc;
use std::time::Duration;

use disk::BlockDevice;
use diskwright_remote::place::lazy::{FetchError, LazyDevice, LazyOptions};
use diskwright_remote::place::object::{CHUNK_BYTES, ObjectSource};
use testkit::WebFault as Fault;
use testkit::WebServer;

const LEN: u64 = CHUNK_BYTES * 20 + 777;

fn bytes(seed: u64) -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8).collect()
}

fn options() -> LazyOptions {
    LazyOptions { wait: Duration::from_millis(1), ..LazyOptions::default() }
}

fn source(server: &WebServer, name: &str) -> Result<ObjectSource, FetchError> {
    ObjectSource::of(
        diskwright_remote::place::store::open(&server.url(name).as_str().into()).unwrap(),
    )
}

fn open(server: &WebServer, name: &str) -> LazyDevice {
    LazyDevice::new(Arc::new(source(server, name).unwrap()), options())
}

fn read(device: &LazyDevice, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    device.read_at(offset, &mut buf).map(|()| buf)
}

#[test]
fn transient_errors_are_retried() {
    let server = WebServer::new();
    server.put("disk", bytes(1), "one");
    let expected = bytes(1);
    let faults = [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Silence,
        Fault::CutOff,
        Fault::Short,
        Fault::WrongRange,
        Fault::Shifted,
    ];
    for fault in faults {
        let device = open(&server, "disk");
        server.fail(&[fault]);
        let found = read(&device, CHUNK_BYTES * 3 + 5, CHUNK_BYTES as usize * 2).unwrap();
        let start = CHUNK_BYTES as usize * 3 + 5;
        assert!(found == expected[start..start + found.len()], "{fault:?} gave wrong bytes");
        assert!(server.has_failed(), "{fault:?} did not happen");
        // Faults during the opening.
        server.fail(&[fault]);
        let device = open(&server, "disk");
        assert_eq!(device.len(), LEN, "{fault:?}");
        assert!(read(&device, 0, 10).unwrap() == expected[..10], "{fault:?}");
        assert!(server.has_failed());
    }
}

#[test]
fn retries_of_a_failing_server_end_with_an_error() {
    let server = WebServer::new();
    server.put("disk", bytes(1), "one");
    let device = open(&server, "disk");
    server.fail(&[Fault::Shifted; 3]);
    let error = read(&device, CHUNK_BYTES * 3, 10).unwrap_err().to_string();
    assert!(error.contains(&server.url("disk")), "{error}");
    assert!(server.has_failed());
    // The device stays usable: the next read may succeed.
    assert!(read(&device, CHUNK_BYTES * 3, 10).is_ok());
    assert!(read(&device, LEN - 5, 6).is_err());
    assert!(device.write_at(0, b"x").is_err());
}

#[test]
fn a_replaced_object_is_an_error_and_never_mixed() {
    let server = WebServer::new();
    let old = Some("Mon, 01 Jan 2024 00:00:00 GMT");
    let new = Some("Mon, 01 Jan 2024 00:00:10 GMT");
    let pins = [
        ((Some("one"), old), (Some("two"), old)),
        ((None, old), (None, new)),
        ((Some("one"), None), (None, None)),
    ];
    for ((etag, modified), (etag_after, modified_after)) in pins {
        server.put_with("disk", bytes(1), etag, modified);
        let device = open(&server, "disk");
        assert!(read(&device, CHUNK_BYTES, 100).is_ok());
        server.put_with("disk", bytes(2), etag_after, modified_after);
        let error = read(&device, CHUNK_BYTES * 5, 100).unwrap_err().to_string();
        assert!(error.contains("was replaced while in use"), "{error}");
        assert!(error.contains(&server.url("disk")), "{error}");
        // Chunks read before remain valid.
        assert!(
            read(&device, CHUNK_BYTES, 100).unwrap() == bytes(1)[CHUNK_BYTES as usize..][..100]
        );
    }
    // Without ETag and time, only the length identifies the version.
    server.put_with("disk", bytes(1), None, None);
    let device = open(&server, "disk");
    server.put_with("disk", vec![0; LEN as usize - 1], None, None);
    assert!(read(&device, CHUNK_BYTES * 5, 100).is_err());
}

#[test]
fn unreadable_objects_report_the_reason() {
    let server = WebServer::new();
    let told = |name: &str| match source(&server, name) {
        Ok(_) => panic!("{name} can be opened"),
        Err(error) => error.to_string(),
    };
    assert!(told("nothing").contains("object not found"));
    server.put("disk", bytes(1), "one");
    server.fail(&[Fault::Whole]);
    assert!(told("disk").contains("does not support range requests"));
    server.fail(&[Fault::Status(403)]);
    assert!(told("disk?signature=secret").contains("access denied"));
    server.fail(&[Fault::Status(400); 3]);
    let error = told("disk?signature=secret");
    assert!(error.contains(&server.url("disk")) && !error.contains("secret"), "{error}");
}

#[test]
fn a_query_is_part_of_the_address_and_of_no_message() {
    let server = WebServer::new();
    server.put("disk", bytes(1), "one");
    let device = open(&server, "disk?signature=secret");
    assert!(!device.identity().contains("secret"));
    let requests = server.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, "/disk?signature=secret");
    assert_eq!(requests[0].range, Some(0..CHUNK_BYTES));
}
