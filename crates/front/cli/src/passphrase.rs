//! Passphrases and key files. They are never arguments, and are erased from memory after use.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use diskwright::Passphrase;

/// Maximum size of a key file in bytes, as in cryptsetup.
const KEY_BYTES_MAX: u64 = 8 << 20;
/// Maximum length of a passphrase that is typed or piped, in bytes, as in cryptsetup.
const PASSPHRASE_BYTES_MAX: usize = 512;

/// Maximum size of a raw key in bytes.
const RAW_KEY_BYTES_MAX: usize = 64;

/// Reads a key file.
pub(crate) fn of_file(path: &Path) -> io::Result<Passphrase> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut key = Vec::new();
    let file = File::open(path).map_err(named)?;
    file.take(KEY_BYTES_MAX + 1).read_to_end(&mut key).map_err(named)?;
    let key = Passphrase::new(key);
    if key.len() as u64 > KEY_BYTES_MAX {
        let what = format!("more than {KEY_BYTES_MAX} bytes");
        return Err(named(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    Ok(key)
}

/// Reads the raw key of encrypted files. It is short, so the vector has room for all of it and leaves no copies.
pub(crate) fn raw_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = Vec::with_capacity(2 * RAW_KEY_BYTES_MAX);
    File::open(path)?.take(RAW_KEY_BYTES_MAX as u64 + 1).read_to_end(&mut key)?;
    Ok(key)
}

/// Reads bytes up to a newline or the end.
#[cfg_attr(not(unix), allow(dead_code))]
fn line(mut input: impl Read) -> io::Result<Passphrase> {
    let mut passphrase = Passphrase::with_room(PASSPHRASE_BYTES_MAX);
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok(passphrase),
            Ok(_) if byte == *b"\n" => return Ok(passphrase),
            Ok(_) if passphrase.len() == PASSPHRASE_BYTES_MAX => {
                let what = format!("it is longer than {PASSPHRASE_BYTES_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            Ok(_) => passphrase.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a passphrase from an open file descriptor.
#[cfg(unix)]
pub(crate) fn of_descriptor(number: u32) -> io::Result<Passphrase> {
    // Linux and other Unix systems have a file for each open descriptor.
    let path = format!("/dev/fd/{number}");
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("descriptor {number}: {error}"));
    line(File::open(path).map_err(named)?).map_err(named)
}

/// Descriptors are not numbers on this host.
#[cfg(not(unix))]
pub(crate) fn of_descriptor(_: u32) -> io::Result<Passphrase> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "use --key-file on this host"))
}

/// Asks on the terminal of the process. Returns `None` if there is none.
#[cfg(target_os = "linux")]
pub(crate) fn of_terminal(volume: &str) -> io::Result<Option<Passphrase>> {
    use std::io::Write;

    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

    let Ok(mut terminal) = File::options().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    let before = tcgetattr(&terminal)?;
    let mut quiet = before.clone();
    // Signals are read as characters, so that none ends the program with the echo off.
    quiet.local_modes -= LocalModes::ECHO | LocalModes::ISIG | LocalModes::ICANON;
    write!(terminal, "Passphrase for {}: ", diskwright::text::safe(volume))?;
    tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
    let typed = typed(&terminal);
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    writeln!(terminal)?;
    typed.map(Some)
}

/// Reads a line with the usual keys for corrections.
#[cfg(target_os = "linux")]
fn typed(mut terminal: &File) -> io::Result<Passphrase> {
    const INTERRUPT: [u8; 3] = [3, 26, 28];
    const ERASE: [u8; 2] = [8, 127];
    const KILL: u8 = 21;
    const END: u8 = 4;
    let mut passphrase = Passphrase::with_room(PASSPHRASE_BYTES_MAX);
    let mut byte = [0];
    loop {
        if terminal.read(&mut byte)? == 0 || matches!(byte[0], b'\n' | b'\r' | END) {
            return Ok(passphrase);
        }
        match byte[0] {
            key if INTERRUPT.contains(&key) => {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled"));
            }
            key if ERASE.contains(&key) => passphrase.pop(),
            KILL => passphrase.clear(),
            key if passphrase.len() < PASSPHRASE_BYTES_MAX => passphrase.push(key),
            _ => {}
        }
    }
}

/// Terminals of other hosts are not supported.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_terminal(_: &str) -> io::Result<Option<Passphrase>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passphrase_ends_at_a_newline_and_has_a_limit() {
        assert_eq!(line(&b"secret\nrest"[..]).unwrap().len(), 6);
        assert_eq!(line(&b""[..]).unwrap().len(), 0);
        assert!(line(&[b'a'; 513][..]).is_err());
        assert_eq!(format!("{:?}", line(&b"secret"[..]).unwrap()), "Passphrase");
    }

    #[test]
    fn key_files_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, b"a\nb\0").unwrap();
        assert_eq!(of_file(&path).unwrap().len(), 4);
        let error = of_file(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }
}
