//! Positional file I/O, with the same interface on every host.

use std::fs::File;
use std::io;

/// Reads and writes of a file at an offset, independent of its cursor.
///
/// On Windows the cursor moves with each call, so callers must not rely on it. On hosts without files
/// (wasm32-unknown-unknown) each call fails with `Unsupported`.
pub trait FileAt {
    /// Reads at most `buf.len()` bytes and returns their number; 0 at the end.
    ///
    /// # Errors
    /// Returns the errors of the host.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at most all of `data` and returns the number of bytes written.
    ///
    /// # Errors
    /// Returns the errors of the host.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; those of the host.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `WriteZero` if the file accepts no more bytes; those of the host.
    fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            match self.write_at(data, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl FileAt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        host::read_at(self, buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        host::write_at(self, data, offset)
    }
}

#[cfg(unix)]
mod host {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
    }

    pub(super) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(data, offset)
    }
}

#[cfg(windows)]
mod host {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;

    /// `ERROR_HANDLE_EOF`, which some handles return instead of 0 bytes.
    const HANDLE_EOF: i32 = 38;

    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match file.seek_read(buf, offset) {
            Err(e) if e.raw_os_error() == Some(HANDLE_EOF) => Ok(0),
            other => other,
        }
    }

    pub(super) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(data, offset)
    }
}

#[cfg(not(any(unix, windows)))]
mod host {
    use std::fs::File;
    use std::io;

    pub(super) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write_at(_: &File, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_where_they_were_written_and_the_end_is_reported() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"later", 10).unwrap();
        file.write_all_at(b"sooner", 0).unwrap();
        let mut found = [1; 15];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"sooner\0\0\0\0later");
        assert_eq!(file.read_at(&mut found, 12).unwrap(), 3);
        assert_eq!(file.read_at(&mut found, 15).unwrap(), 0);
        let past = file.read_exact_at(&mut found, 1).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }
}
