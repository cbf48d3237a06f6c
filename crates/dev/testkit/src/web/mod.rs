//! A small web server on the loopback: it has objects in memory, counts requests, and fails on purpose. PUT with
//! `If-None-Match: *` and lists make it a small S3, without signatures.

mod answer;
mod raw;

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
pub use raw::RawServer;

/// Fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebFault {
    /// The response has only this status.
    Status(u16),
    /// The connection ends before the response.
    Silence,
    /// The connection ends after half of the announced body.
    CutOff,
    /// The response contains, and announces, half of the body.
    Short,
    /// The body and its header are those of another range.
    WrongRange,
    /// The body is that of another range; the header announces the right range, shortened by one byte.
    Shifted,
    /// The body is the whole object, independent of the requested range.
    Whole,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebRequest {
    /// `GET`, `HEAD` or `PUT`.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// First byte, and exclusive end.
    pub range: Option<Range<u64>>,
    if_match: Option<String>,
    /// True if an existing object must not be replaced.
    is_new: bool,
    body: Arc<Vec<u8>>,
}

/// An object of the server.
#[derive(Clone, Default)]
struct Object {
    bytes: Arc<Vec<u8>>,
    etag: Option<String>,
    modified: Option<String>,
}

#[derive(Default)]
struct ServerState {
    objects: Mutex<HashMap<String, Object>>,
    /// Faults of the next answers; `None` for a correct answer.
    faults: Mutex<VecDeque<Option<WebFault>>>,
    /// Fault of all later answers.
    fault_at_last: Mutex<Option<WebFault>>,
    requests: Mutex<Vec<WebRequest>>,
    delay: Mutex<Duration>,
    rounds: Mutex<Rounds>,
    /// Number of completed PUTs, for ETags.
    puts: AtomicU64,
    is_over: AtomicBool,
}

/// Concurrent requests.
#[derive(Default)]
struct Rounds {
    under_way: u32,
    count: u64,
}

/// The server. Dropping it stops it.
pub struct WebServer {
    address: SocketAddr,
    state: Arc<ServerState>,
}

impl WebServer {
    /// Starts a server without objects.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(ServerState::default()));
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let state = Arc::clone(&of_thread);
                // Broken connections are handled by the client.
                thread::spawn(move || stream.and_then(|stream| serve(&state, stream)));
            }
        });
        Self { address, state }
    }

    /// Returns the URL of an object.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Returns environment variables that make `s3:` lead to this server.
    #[must_use]
    pub fn s3_environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "x".into()),
            ("AWS_ACCESS_KEY_ID", "id".into()),
            ("AWS_SECRET_ACCESS_KEY", "key".into()),
        ]
    }

    /// Adds or replaces an object with this ETag.
    pub fn put(&self, name: &str, bytes: Vec<u8>, etag: &str) {
        self.put_with(name, bytes, Some(etag), None);
    }

    /// Adds or replaces an object with an optional ETag and time of the last change.
    pub fn put_with(&self, name: &str, bytes: Vec<u8>, etag: Option<&str>, modified: Option<&str>) {
        let object = Object {
            bytes: Arc::new(bytes),
            etag: etag.map(|etag| format!("\"{etag}\"")),
            modified: modified.map(str::to_owned),
        };
        self.state.objects.lock().insert(format!("/{name}"), object);
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        self.state.objects.lock().remove(&format!("/{name}"));
    }

    /// Sets the faults of the next responses, one each.
    pub fn fail(&self, faults: &[WebFault]) {
        self.state.faults.lock().extend(faults.iter().copied().map(Some));
    }

    /// Sets the fault of every answer after the next `count` ones. `None` ends all faults.
    pub fn fail_after(&self, count: usize, fault: Option<WebFault>) {
        *self.state.faults.lock() = vec![None; count].into();
        *self.state.fault_at_last.lock() = fault;
    }

    /// Returns whether all faults have happened.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.faults.lock().is_empty()
    }

    /// Sets the delay of each response.
    pub fn delay(&self, delay: Duration) {
        *self.state.delay.lock() = delay;
    }

    /// Returns the number of rounds of requests since the last call: concurrent requests are one round. Requires a
    /// delay of responses.
    #[must_use]
    pub fn take_rounds(&self) -> u64 {
        std::mem::take(&mut self.state.rounds.lock().count)
    }

    /// Returns the requests since the last call.
    #[must_use]
    pub fn take_requests(&self) -> Vec<WebRequest> {
        std::mem::take(&mut self.state.requests.lock())
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // The thread waits for a connection, and this is one.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    fn next_fault(&self) -> Option<WebFault> {
        let next = self.faults.lock().pop_front();
        next.unwrap_or_else(|| *self.fault_at_last.lock())
    }

    /// Returns the object of a request, or a list of objects.
    fn object(&self, request: &WebRequest, path: &str) -> Option<Object> {
        let objects = self.objects.lock();
        if let Some(object) = objects.get(path) {
            return Some(object.clone());
        }
        let (_, query) = request.path.split_once('?').filter(|_| request.method == "GET")?;
        let mut fields = query.split('&').filter_map(|field| field.split_once('='));
        fields.clone().find(|field| *field == ("list-type", "2"))?;
        let prefix = fields.find(|(name, _)| *name == "prefix").map_or("", |(_, value)| value);
        let start = format!("{path}/{}", prefix.replace("%2F", "/"));
        let listed = objects.iter().filter(|(name, _)| name.starts_with(&start));
        let mut list = String::from("<ListBucketResult>");
        for (name, object) in listed {
            let (key, size) = (&name[path.len() + 1..], object.bytes.len());
            let time = "2026-01-01T00:00:00.000Z";
            list += &format!(
                "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><Size>{size}</Size></Contents>"
            );
        }
        list += "</ListBucketResult>";
        Some(Object { bytes: Arc::new(list.into_bytes()), ..Object::default() })
    }

    /// Stores the body of a PUT. Returns the status.
    fn store(&self, path: &str, request: &WebRequest) -> u16 {
        let mut objects = self.objects.lock();
        let known = objects.get(path);
        let is_wanted = request.if_match.is_none()
            || known.is_some_and(|object| object.etag == request.if_match);
        if !is_wanted || request.is_new && known.is_some() {
            return 412;
        }
        let etag = format!("\"{}\"", self.puts.fetch_add(1, Ordering::Relaxed));
        let bytes = Arc::clone(&request.body);
        objects.insert(path.to_owned(), Object { bytes, etag: Some(etag), modified: None });
        200
    }

    fn begin(&self) {
        let mut rounds = self.rounds.lock();
        rounds.count += u64::from(rounds.under_way == 0);
        rounds.under_way += 1;
    }
}

fn serve(state: &ServerState, stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    // Unused connections end by themselves.
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let path = request.path.split('?').next().unwrap_or_default();
        let fault = state.next_fault();
        state.requests.lock().push(request.clone());
        state.begin();
        let delay = *state.delay.lock();
        thread::sleep(delay);
        let stored =
            (request.method == "PUT" && fault.is_none()).then(|| state.store(path, &request));
        let object = state.object(&request, path);
        let fault = fault.or(stored.filter(|status| *status != 200).map(WebFault::Status));
        let written = answer::write(&stream, &request, object.as_ref(), fault);
        state.rounds.lock().under_way -= 1;
        let goes_on = written?;
        if !goes_on || state.is_over.load(Ordering::SeqCst) {
            break;
        }
    }
    stream.shutdown(std::net::Shutdown::Both)
}

/// Returns `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<WebRequest>> {
    let mut line = String::new();
    if reader.by_ref().take(1 << 16).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut body = Vec::new();
    let mut request = WebRequest { method, path, ..WebRequest::default() };
    loop {
        let mut line = String::new();
        reader.by_ref().take(1 << 16).read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = parse_range(value.trim()),
            "if-match" => request.if_match = Some(value.trim().to_owned()),
            "if-none-match" => request.is_new = true,
            "content-length" => body = vec![0; value.trim().parse().unwrap_or(0)],
            _ => {}
        }
    }
    reader.read_exact(&mut body)?;
    request.body = Arc::new(body);
    Ok(Some(request))
}

fn parse_range(value: &str) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
}
