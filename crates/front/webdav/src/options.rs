//! Options of a server.

use std::fmt::{self, Write};
use std::io;
use std::sync::Arc;

use vfs::peer::LocalUsers;

use crate::archive::ArchiveSource;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct WebdavOptions {
    /// Condition of access.
    pub access: WebdavAccess,
    /// Changes are not permitted.
    pub read_only: bool,
    /// Owner of new files: user and group.
    pub owner: (u32, u32),
    /// Users of this host whose programs may connect to a loopback address.
    pub local_users: LocalUsers,
    /// Changes are durable when they are answered. Otherwise they become durable after some seconds.
    pub sync: bool,
    /// Treatment of symbolic links.
    pub symlinks: Symlinks,
    /// Hide and reject the files that macOS adds to directories: `.DS_Store` and those whose names start with `._`.
    pub reject_macos_files: bool,
    /// Names of the host that clients may use, besides `localhost` and IP addresses.
    pub host_names: Vec<String>,
    /// Archives of directories for browsers.
    pub archives: Option<Arc<dyn ArchiveSource>>,
}

impl WebdavOptions {
    /// Returns options for a writable server that follows symbolic links, whose new files belong to user and group 0.
    pub fn new(access: WebdavAccess) -> Self {
        Self {
            access,
            read_only: false,
            owner: (0, 0),
            local_users: LocalUsers::Own,
            sync: true,
            symlinks: Symlinks::Follow,
            reject_macos_files: false,
            host_names: Vec::new(),
            archives: None,
        }
    }
}

/// Treatment of symbolic links. Clients cannot create them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlinks {
    /// They appear as their targets. Targets are resolved inside the image.
    Follow,
    /// They are hidden.
    Hide,
}

/// Condition of access.
#[derive(Clone)]
pub enum WebdavAccess {
    /// The address contains a secret.
    Secret(WebdavSecret),
    /// Clients send this password with any user name (basic authentication).
    Password(String),
}

/// Does not show secrets, for logs.
impl fmt::Debug for WebdavAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret",
            Self::Password(_) => "Password",
        })
    }
}

/// First component of the path in the address of a server: 128 random bits in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct WebdavSecret(String);

impl WebdavSecret {
    /// Returns a new secret.
    ///
    /// # Errors
    /// If the host has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        let mut text = String::new();
        for byte in bits {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Does not show the secret, for logs.
impl fmt::Debug for WebdavSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebdavSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let (a, b) = (WebdavSecret::random().unwrap(), WebdavSecret::random().unwrap());
        assert!(a != b && a.as_str().len() == 32);
        let access = [WebdavAccess::Secret(a.clone()), WebdavAccess::Password("pass".into())];
        let text = format!("{access:?} {a:?}");
        assert!(!text.contains(a.as_str()) && !text.contains("pass"), "{text}");
    }
}
