//! Archives in compression formats that this program does not support. External programs decompress them through a
//! pipe.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, STATUSES};

/// Size of the magic number.
const MAGIC_BYTES: usize = 6;

/// Archive that an external program decompresses.
#[derive(Debug)]
pub(super) struct Decompressed {
    #[cfg(target_os = "linux")]
    running: Option<Running>,
    source: Option<PathBuf>,
}

/// Returns the program for an archive by its first bytes.
fn program(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("bzip2"),
        _ => None,
    }
}

fn program_for(path: &Path) -> Option<&'static str> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok().filter(|_| path.is_file())?;
    let mut head = Vec::with_capacity(MAGIC_BYTES);
    file.take(MAGIC_BYTES as u64).read_to_end(&mut head).ok()?;
    program(&head)
}

#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Running {
    name: &'static str,
    child: std::process::Child,
    output: std::process::ChildStdout,
}

impl Decompressed {
    /// Starts the program for a source, if it needs one.
    #[cfg(target_os = "linux")]
    pub(super) fn start(source: Option<&Path>) -> Result<Self, Failure> {
        use std::os::fd::AsRawFd;
        use std::process::{Command, Stdio};
        let whole = Self { running: None, source: source.map(Path::to_owned) };
        let Some((path, name)) = source.and_then(|path| Some((path, program_for(path)?))) else {
            return Ok(whole);
        };
        let failed = |e: std::io::Error| {
            STATUSES.failed(format_args!("-d {}: cannot run {name} -dc: {e}", path.display()))
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut command = Command::new(name);
        let command = command.arg("-dc").stdin(file).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let Some(output) = child.stdout.take() else { return Ok(whole) };
        let source = Some(format!("/proc/self/fd/{}", output.as_raw_fd()).into());
        Ok(Self { running: Some(Running { name, child, output }), source })
    }

    /// Rejects a source that needs a program.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn start(source: Option<&Path>) -> Result<Self, Failure> {
        match source.and_then(program_for) {
            Some(name) => {
                let why = format!("decompress it into a pipe ({name} -dc FILE)");
                Err(STATUSES.refused("-d with a compressed archive", &why))
            }
            None => Ok(Self { source: source.map(Path::to_owned) }),
        }
    }

    /// Returns the path to read from.
    pub(super) fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// Waits for the program and returns its failure.
    pub(super) fn finish(self) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        if let Some(Running { name, mut child, mut output }) = self.running {
            // Read the rest, because the decompressor verifies the checksum at the end.
            let _ = std::io::copy(&mut output, &mut std::io::sink());
            let status = child.wait().map_err(|e| STATUSES.failed(e))?;
            if !status.success() {
                return Err(STATUSES.failed(format_args!("-d: {name} failed: {status}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_their_first_bytes() {
        assert_eq!(program(b"\xfd7zXZ\0"), Some("xz"));
        assert_eq!(program(b"BZh91A"), Some("bzip2"));
        assert_eq!(program(b"BZh"), None);
        assert_eq!(program(b"etc/pa"), None);
        assert_eq!(program(b""), None);
    }
}
