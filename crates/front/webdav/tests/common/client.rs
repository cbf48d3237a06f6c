//! A client of HTTP that sends what a test wants.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Client of a server. Each request opens a connection.
#[derive(Clone, Debug)]
pub struct DavClient {
    pub address: SocketAddr,
    /// Address with the secret.
    pub url: String,
    /// Path of the secret, without `/` at its end.
    pub prefix: String,
}

impl DavClient {
    pub fn new(address: SocketAddr, url: &str) -> Self {
        let path = url.strip_prefix(&format!("http://{address}")).unwrap();
        let prefix = path.trim_end_matches('/').to_owned();
        Self { address, url: url.to_owned(), prefix }
    }

    /// Sends a request for a path below the secret.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut all = vec![("Host", self.address.to_string())];
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.exact(method, &format!("{}{path}", self.prefix), &all, body)
    }

    /// Sends a request with these headers only, besides length and end of the connection.
    pub fn exact(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Answer {
        let mut message = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            message += &format!("{name}: {value}\r\n");
        }
        message += &format!("Content-Length: {}\r\n\r\n", body.len());
        raw(self.address, &[message.as_bytes(), body].concat()).expect("an answer")
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    /// Stores a file; the server must accept it.
    pub fn put(&self, path: &str, body: &[u8]) {
        let answer = self.request("PUT", path, &[], body);
        assert!(matches!(answer.status, 201 | 204), "{path}: {answer:?}");
    }

    pub fn status(&self, method: &str, path: &str) -> u16 {
        self.request(method, path, &[], b"").status
    }

    pub fn propfind(&self, path: &str, depth: &str) -> Answer {
        self.request("PROPFIND", path, &[("Depth", depth)], b"")
    }

    /// COPY or MOVE.
    pub fn transfer(&self, method: &str, from: &str, to: &str, overwrite: bool) -> u16 {
        let to = format!("{}{to}", self.url.trim_end_matches('/'));
        let overwrite = if overwrite { "T" } else { "F" };
        self.request(method, from, &[("Destination", &to), ("Overwrite", overwrite)], b"").status
    }
}

/// Sends bytes on a new connection.
pub fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    // The server may have refused the rest.
    let _ = stream.write_all(bytes);
    stream
}

/// Sends bytes and returns the first answer, or `None` if the server closes the connection without one.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut received = Vec::new();
    // A refused request ends with a reset of the connection.
    let _ = send(address, bytes).read_to_end(&mut received);
    parse_answers(&received).into_iter().next()
}

/// Parses answers one after another.
pub fn parse_answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let split = |line: &str| line.split_once(": ").map(|(a, b)| (a.to_owned(), b.to_owned()));
        let headers = lines.filter_map(split).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if status == 100 {
            continue;
        }
        if answer.header("transfer-encoding").is_some() {
            answer.body = chunks(&mut bytes);
        } else {
            let len = answer.header("content-length").map_or(0, |len| len.parse().unwrap());
            let len = bytes.len().min(len);
            answer.body = bytes[..len].to_vec();
            bytes = &bytes[len..];
        }
        all.push(answer);
    }
    all
}

fn chunks(bytes: &mut &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let start = end + 2;
        body.extend_from_slice(&bytes[start..start + len]);
        *bytes = &bytes[start + len + 2..];
        if len == 0 {
            break;
        }
    }
    body
}
