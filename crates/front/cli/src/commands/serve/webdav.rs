//! Options of `diskwright serve --webdav`.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use diskwright::serve::{Symlinks, WebdavExport};
use diskwright::{Error, Result};

/// Maximum size of a password file, in bytes.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// Options of `--webdav`.
#[derive(Debug, Args)]
pub(super) struct WebdavArgs {
    /// Ask clients of --webdav for the password in the first line of FILE, with any user name. Without this option the
    /// address contains a secret
    #[arg(long, value_name = "FILE", requires = "webdav", conflicts_with_all = ["nbd", "vhost_user", "ublk", "nfs"])]
    password_file: Option<PathBuf>,

    /// Name of this host that clients of --webdav may use, besides localhost and IP addresses. Can be repeated
    #[arg(long, value_name = "NAME", requires = "webdav", conflicts_with_all = ["nbd", "vhost_user", "ublk", "nfs"])]
    host_name: Vec<String>,

    /// Show symbolic links to clients of --webdav as their targets in the image, or hide them. Default: follow
    #[arg(long, value_name = "TREATMENT", requires = "webdav", conflicts_with_all = ["nbd", "vhost_user", "ublk", "nfs"])]
    symlinks: Option<LinkTreatment>,

    /// Hide .DS_Store and ._* from clients of --webdav, and reject new ones
    #[arg(long, requires = "webdav", conflicts_with_all = ["nbd", "vhost_user", "ublk", "nfs"])]
    reject_macos_files: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LinkTreatment {
    Follow,
    Hide,
}

impl WebdavArgs {
    /// Returns an export at an address.
    pub(super) fn export(&self, address: SocketAddr) -> Result<WebdavExport> {
        let mut export = WebdavExport::new(address);
        export.password = self.password_file.as_deref().map(password).transpose()?;
        export.host_names.clone_from(&self.host_name);
        export.symlinks = match self.symlinks {
            Some(LinkTreatment::Hide) => Symlinks::Hide,
            Some(LinkTreatment::Follow) | None => Symlinks::Follow,
        };
        export.reject_macos_files = self.reject_macos_files;
        Ok(export)
    }
}

/// Reads the first line of a file.
fn password(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| Error::Usage(format!("--password-file {}: {error}", path.display())))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Error::Usage(format!(
            "--password-file {}: the first line is empty; write the password into it",
            path.display()
        ))),
    }
}
