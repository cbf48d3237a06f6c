//! Addresses of servers and their exports.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Registered port of NBD.
const PORT: u16 = 10809;
/// Maximum length of an export name in the protocol, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Address of a server: `unix:PATH` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Host and port, as in `127.0.0.1:10809`, `[::1]:10809` or `host:10809`.
    Tcp(String),
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", disk::address::safe_line(.address))]
pub struct AddressError {
    address: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong =
            |reason| AddressError { address: disk::address::public(text).into_owned(), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong("expected a path after unix:")),
                _ if !cfg!(unix) => Err(wrong("this host has no Unix sockets; use HOST:PORT")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
        if !is_host || port.parse::<u16>().is_err() {
            return Err(wrong("write unix:PATH, or HOST:PORT as in 127.0.0.1:10809"));
        }
        Ok(Self::Tcp(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// An export of a server: `nbd://HOST[:PORT]/NAME`, or `nbd+unix:///NAME?socket=PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Address of the server.
    pub address: Address,
    /// Name of the export; most servers have one with an empty name.
    pub name: String,
}

impl FromStr for Export {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong =
            |reason| AddressError { address: disk::address::public(text).into_owned(), reason };
        let escape = "invalid percent-encoding: % must be followed by two hexadecimal digits";
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let Some((name, query)) = rest.split_once('?') else {
                return Err(wrong("name the socket: nbd+unix:///NAME?socket=PATH"));
            };
            let Some(name) = name.strip_prefix('/').or_else(|| name.is_empty().then_some(""))
            else {
                return Err(wrong("nbd+unix addresses have no host: nbd+unix:///NAME?socket=PATH"));
            };
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
            let socket = socket.filter(|path| !path.is_empty());
            let socket = socket.ok_or_else(|| wrong("name the socket: ?socket=PATH"))?;
            let socket = unescaped(socket).ok_or_else(|| wrong(escape))?;
            let address = format!("unix:{socket}").parse()?;
            return Self::new(address, name).ok_or_else(|| wrong(escape));
        }
        let rest = text
            .strip_prefix("nbd://")
            .ok_or_else(|| wrong("expected an address that starts with nbd://"))?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(wrong("NBD has no users; leave out the part before the @"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Self::new(address.parse()?, name).ok_or_else(|| wrong(escape))
    }
}

impl Export {
    fn new(address: Address, name: &str) -> Option<Self> {
        let name = unescaped(name).filter(|name| name.len() <= NAME_BYTES_MAX)?;
        Some(Self { address, name })
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => {
                let path = disk::address::shown(path.as_os_str().as_encoded_bytes());
                write!(
                    f,
                    "nbd+unix:///{}?socket={path}",
                    disk::address::shown(self.name.as_bytes())
                )
            }
            Address::Tcp(address) => {
                write!(
                    f,
                    "nbd://{}/{}",
                    disk::address::safe_line(address),
                    disk::address::shown(self.name.as_bytes())
                )
            }
        }
    }
}

/// Decodes the percent escapes of a URL. Returns `None` if they are invalid.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address = |text: &str| text.parse::<Address>();
        assert_eq!(address("127.0.0.1:99"), Ok(Address::Tcp("127.0.0.1:99".into())));
        assert_eq!(address("[::1]:99"), Ok(Address::Tcp("[::1]:99".into())));
        assert_eq!(address("unix:/run/a b"), Ok(Address::Unix("/run/a b".into())));
        for wrong in ["", "unix:", "host", "host:", ":9", "::1", "host:70000"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn exports_are_read() {
        let export = |text: &str| text.parse::<Export>();
        let found = export("nbd+unix:///a%20disk?socket=/run/s%25").unwrap();
        assert_eq!(found.address, Address::Unix("/run/s%".into()));
        assert_eq!(found.name, "a disk");
        assert_eq!(export("nbd://host").unwrap().address, Address::Tcp("host:10809".into()));
        assert_eq!(export("nbd://[::1]/x").unwrap().address, Address::Tcp("[::1]:10809".into()));
        assert_eq!(export("nbd://h:1/x/y").unwrap().name, "x/y");
        for wrong in [
            "nbd+unix:///x",
            "nbd+unix://host/x?socket=s",
            "nbd+unix:///?socket=",
            "nbd://u@host/",
            "nbd://host/%f",
            "nbd:///x",
            "ndb://host/x",
        ] {
            assert!(export(wrong).is_err(), "{wrong}");
        }
    }
}
