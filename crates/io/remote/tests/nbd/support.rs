//! A server in a background thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use disk::BlockDevice;
use diskwright_remote::nbd::{Address, Client, Server};

pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    pub(crate) address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    _folder: tempfile::TempDir,
}

/// Exports a device on a Unix socket as `disk`.
pub(crate) fn serve(device: Arc<dyn BlockDevice>, read_only: bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let address = Address::Unix(socket.clone());
    served(folder, socket, Server::bind(&address, device, "disk", read_only).unwrap())
}

/// Exports a device on a loopback port.
pub(crate) fn serve_tcp(device: Arc<dyn BlockDevice>) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(&any, device, "disk", false).unwrap();
    served(folder, PathBuf::new(), server)
}

fn served(folder: tempfile::TempDir, socket: PathBuf, server: Server) -> Served {
    let stop = Arc::new(AtomicBool::new(false));
    let address = server.address().clone();
    let heeded = Arc::clone(&stop);
    let thread = thread::spawn(move || server.serve(&heeded));
    Served { socket, address, stop, thread: Some(thread), _folder: folder }
}

impl Served {
    pub(crate) fn url(&self, name: &str) -> String {
        match &self.address {
            Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", path.display()),
            Address::Tcp(address) => format!("nbd://{address}/{name}"),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url("")).unwrap()
    }

    /// Stops the server and returns the result of serving.
    pub(crate) fn stop(mut self) -> std::io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is ended once").join().expect("it does not panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic of a test has its own report.
            let _ = thread.join();
        }
    }
}
