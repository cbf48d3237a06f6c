//! Sends requests to a WebDAV server of an image in memory: arbitrary bytes, and requests with arbitrary paths, headers and
//! bodies. Errors are fine; panics, requests without a response, and damage of the image, are bugs.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use disk::MemoryDevice;
use ext4::Ext4;
use libfuzzer_sys::fuzz_target;
use webdav::{WebdavAccess, WebdavOptions, WebdavServer};

const SIZE: u64 = 4 << 20;
const METHODS: [&str; 13] = [
    "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "MKCOL", "COPY", "MOVE", "PROPFIND", "PROPPATCH", "LOCK",
    "UNLOCK",
];
const HEADERS: [&str; 10] = [
    "Depth", "Destination", "If", "If-Match", "Lock-Token", "Overwrite", "Range", "Timeout", "X-Update-Range", "Origin",
];

fuzz_target!(|requests: Vec<(bool, u8, Vec<u8>, Vec<(u8, String)>, Vec<u8>)>| {
    for (is_raw, method, path, headers, body) in requests.into_iter().take(8) {
        let mut client = TcpStream::connect(server()).expect("the server accepts connections");
        let message = if is_raw { body } else { message(method, &path, &headers, &body) };
        // The server may answer and close the connection before it has read everything.
        let _ = client.write_all(&message);
        if is_raw {
            // The server may wait for more. It does not answer after the end, so other requests remain open.
            let _ = client.shutdown(Shutdown::Write);
        }
        let mut response = Vec::new();
        let _ = client.read_to_end(&mut response);
        assert!(is_raw || response.starts_with(b"HTTP/1.1 "), "no response");
    }
});

fn message(method: u8, path: &[u8], headers: &[(u8, String)], body: &[u8]) -> Vec<u8> {
    let method = METHODS[usize::from(method) % METHODS.len()];
    let mut message = format!("{method} /");
    for byte in path {
        match byte {
            b'/' | b'.' | b'a'..=b'z' => message.push(char::from(*byte)),
            _ => message += &format!("%{byte:02x}"),
        }
    }
    message += " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Basic OnA=\r\n";
    for (name, value) in headers.iter().take(8) {
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        message += &format!("{}: {value}\r\n", HEADERS[usize::from(*name) % HEADERS.len()]);
    }
    message += &format!("Content-Length: {}\r\n\r\n", body.len());
    [message.as_bytes(), body].concat()
}

/// Returns the address of a server that runs as long as the process.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let mut options = WebdavOptions::new(WebdavAccess::Password("p".into()));
        options.sync = false;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = WebdavServer::bind(address, options).expect("a free port");
        let address = server.address();
        std::thread::spawn(move || {
            let fs = empty_file_system();
            let outcome = server.serve(&fs, &AtomicBool::new(false));
            panic!("the server ended: {outcome:?}");
        });
        address
    })
}

fn empty_file_system() -> Ext4 {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let layout = ext4::mkfs::plan(&ext4::mkfs::Options::new(SIZE)).expect("the size is valid");
    ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros)
        .expect("memory does not fail");
    let fs = Ext4::open_in_progress(device.clone(), 1 << 20).expect("the image is new");
    fs.finish(None).expect("memory does not fail");
    Ext4::open_writable(device, &ext4::OpenOptions::default()).expect("the image is new")
}
