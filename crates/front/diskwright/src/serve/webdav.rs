//! The files of an image, by WebDAV.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use vfs::served::ServedOutcome;
use vfs::{FileSystem, Paths};
use webdav::{
    Archive, ArchiveSource, Symlinks, WebdavAccess, WebdavOptions, WebdavSecret, WebdavServer,
};

use super::files::{FileProtocol, FileServer, local_users, owner_of_process};
use crate::extract::{ExtractOptions, Observer, TarStream};
use crate::{Error, ImageOptions, Result};

/// Export of the files of an image by WebDAV, with a page for browsers.
#[derive(Clone)]
#[non_exhaustive]
pub struct WebdavExport {
    /// Address to listen at. Port 0 chooses a free port.
    pub address: SocketAddr,
    /// Password of all clients, with any user name. `None` puts a secret of 128 random bits into the address instead.
    pub password: Option<String>,
    /// Permit addresses that other hosts can reach.
    pub allow_remote: bool,
    /// Permit programs of all users of this host at a loopback address. Otherwise, where the host lists the users of
    /// connections (Linux), only those of the user of this process and of root.
    pub all_users: bool,
    /// Names of this host that clients may use, besides `localhost` and IP addresses.
    pub host_names: Vec<String>,
    /// Owner of new files.
    pub owner: (u32, u32),
    /// Make changes durable before they are answered. Otherwise they become durable within some seconds.
    pub sync: bool,
    /// Treatment of symbolic links.
    pub symlinks: Symlinks,
    /// Hide and reject the files that macOS adds to directories: `.DS_Store` and those whose names start with `._`.
    pub reject_macos_files: bool,
}

impl WebdavExport {
    /// Returns an export at an address, with a secret in the address for clients, that follows symbolic links.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            password: None,
            allow_remote: false,
            all_users: false,
            host_names: Vec::new(),
            owner: owner_of_process(),
            sync: true,
            symlinks: Symlinks::Follow,
            reject_macos_files: false,
        }
    }
}

/// Does not show the password, for logs.
impl std::fmt::Debug for WebdavExport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebdavExport").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Addresses of an export. The address for clients contains the secret, if there is one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WebdavAddresses {
    /// Host and port.
    pub host_and_port: String,
    /// Address for clients.
    pub url: String,
}

/// WebDAV server with the addresses for its clients.
pub(super) struct WebdavProtocol {
    server: WebdavServer,
    addresses: WebdavAddresses,
}

impl WebdavProtocol {
    pub(super) fn addresses(&self) -> &WebdavAddresses {
        &self.addresses
    }
}

impl FileProtocol for WebdavProtocol {
    fn serve(&self, fs: &dyn FileSystem, stop: &AtomicBool) -> io::Result<ServedOutcome> {
        self.server.serve(fs, stop)
    }
}

pub(super) fn open(
    path: &Path,
    options: &ImageOptions,
    export: &WebdavExport,
    read_only: bool,
) -> Result<FileServer<WebdavProtocol>> {
    if !export.address.ip().is_loopback() && !export.allow_remote {
        return Err(Error::Usage(format!(
            "{}: other hosts can reach this address, and this server does not encrypt; permit it with \
             --allow-remote, or use 127.0.0.1",
            export.address
        )));
    }
    FileServer::open(path, options, read_only, |_| {
        let options = server_options(path, export, read_only)?;
        let server = WebdavServer::bind(export.address, options)
            .map_err(|e| Error::host("listen at", export.address.to_string(), e))?;
        let addresses =
            WebdavAddresses { host_and_port: server.address().to_string(), url: server.url() };
        Ok(WebdavProtocol { server, addresses })
    })
}

fn server_options(path: &Path, export: &WebdavExport, read_only: bool) -> Result<WebdavOptions> {
    let access = match &export.password {
        Some(password) => WebdavAccess::Password(password.clone()),
        None => {
            let secret = WebdavSecret::random().map_err(|e| Error::host("serve", path, e))?;
            WebdavAccess::Secret(secret)
        }
    };
    let mut options = WebdavOptions::new(access);
    options.read_only = read_only;
    options.owner = export.owner;
    options.local_users = local_users(export.allow_remote, export.all_users);
    options.sync = export.sync;
    options.symlinks = export.symlinks;
    options.reject_macos_files = export.reject_macos_files;
    options.host_names.clone_from(&export.host_names);
    options.archives = Some(Arc::new(TarArchives));
    Ok(options)
}

/// Writes archives as `diskwright extract` does.
#[derive(Debug)]
struct TarArchives;

impl ArchiveSource for TarArchives {
    fn start(&self, fs: &dyn FileSystem, path: &[u8]) -> io::Result<Box<dyn Archive>> {
        let options = ExtractOptions::default().path(path).keep_going(true).follow(true);
        let tar = TarStream::new(Paths::new(fs), &options).map_err(io::Error::other)?;
        Ok(Box::new(TarArchive(tar)))
    }
}

struct TarArchive(TarStream);

impl Archive for TarArchive {
    fn step(&mut self, fs: &dyn FileSystem, out: &mut Vec<u8>) -> io::Result<bool> {
        self.0.step(Paths::new(fs), out, &mut LoggingObserver).map_err(io::Error::other)
    }
}

/// Writes omissions into the log of the server.
struct LoggingObserver;

impl Observer for LoggingObserver {
    fn file(&mut self, _: &[u8]) {}
    fn copied(&mut self, _: u64) {}
    fn warning(&mut self, message: &str) {
        tracing::warn!("{message}");
    }
}
