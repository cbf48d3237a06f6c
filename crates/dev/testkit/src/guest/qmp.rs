//! QEMU's machine protocol: one JSON object per line.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time limit of a command. QEMU answers immediately unless the machine is very busy.
const LIMIT: Duration = Duration::from_secs(120);

/// A connection.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Takes a connection and leaves QEMU's negotiation mode.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        let mut qmp = Qmp { stream: BufReader::new(stream) };
        qmp.command("{\"execute\":\"qmp_capabilities\"}")?;
        Ok(qmp)
    }

    /// Executes a command.
    pub(super) fn command(&mut self, command: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // The greeting and events may come between command and answer.
            if line.starts_with("{\"return\"") {
                return Ok(());
            }
            if line.starts_with("{\"error\"") {
                return Err(io::Error::other(format!("{command}: {}", line.trim())));
            }
        }
    }
}

/// Quotes a string for JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
