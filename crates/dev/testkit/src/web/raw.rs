//! A server whose responses are written by a function, byte by byte.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Maximum size of a request in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A server on the loopback that sends arbitrary bytes. Dropping it stops it.
pub struct RawServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl RawServer {
    /// Starts a server. `answer` receives the request line and the headers, and writes to the connection, which is
    /// closed afterwards.
    pub fn new(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (answer, of_thread) = (Arc::new(answer), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                // Broken connections are handled by the client.
                thread::spawn(move || {
                    let mut stream = stream?;
                    let head = read_head(&stream)?;
                    answer(&head, &mut stream)
                });
            }
        });
        Self { address, is_over }
    }

    /// Returns the server's address, as `http://HOST:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn read_head(stream: &TcpStream) -> io::Result<String> {
    let mut reader = BufReader::new(stream).take(REQUEST_BYTES_MAX);
    let mut head = String::new();
    while reader.read_line(&mut head)? > 2 {}
    Ok(head)
}
