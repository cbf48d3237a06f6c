//! A device backed by a file or a real block device.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use crate::{BlockDevice, FileAt, check_range};

/// Maximum length of a write of zeros, if holes are not supported, in bytes.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// Unit of the host's cache in bytes. It is a multiple of all page sizes.
const CACHE_UNIT_BYTES: u64 = 64 << 10;

/// An image in a file or block device. Its length is determined when it is opened.
pub struct FileDevice {
    file: File,
    len: u64,
}

impl FileDevice {
    /// Creates a device from an open file. Fails if its length cannot be determined.
    pub fn new(mut file: File) -> io::Result<Self> {
        // Seeking also determines the length of block devices, for which metadata returns 0.
        let len = file.seek(SeekFrom::End(0))?;
        Ok(Self::with_len(file, len))
    }

    /// Creates a device of `len` bytes from an open file. The disks of macOS and Windows do not know their own length.
    pub fn with_len(file: File, len: u64) -> Self {
        Self { file, len }
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64)?;
        self.file.read_exact_at(buf, offset)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        check_range(self.len, offset, len).ok()?;
        Some((&self.file, offset))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.len, offset, data.len() as u64)?;
        self.file.write_all_at(data, offset)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len)?;
        if punch_hole(&self.file, offset, len).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; ZERO_CHUNK_BYTES.min(usize::try_from(len).unwrap_or(ZERO_CHUNK_BYTES))];
        let mut done = 0;
        while done < len {
            let n = (zeros.len() as u64).min(len - done);
            self.file.write_all_at(&zeros[..n as usize], offset + done)?;
            done += n;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len)?;
        punch_hole(&self.file, offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        sync(&self.file)
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        let start = offset / CACHE_UNIT_BYTES * CACHE_UNIT_BYTES;
        let end = offset.saturating_add(len).next_multiple_of(CACHE_UNIT_BYTES);
        forget(&self.file, start, end - start);
    }
}

#[cfg(not(target_vendor = "apple"))]
fn sync(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// Makes writes durable. Disks do not support the request for files (`F_FULLFSYNC`), so the system decides when their
/// own cache is written.
#[cfg(target_vendor = "apple")]
fn sync(file: &File) -> io::Result<()> {
    use rustix::io::Errno;
    match file.sync_data() {
        Err(e)
            if matches!(
                Errno::from_io_error(&e),
                Some(Errno::NOTTY | Errno::NOTSUP | Errno::INVAL)
            ) =>
        {
            Ok(rustix::fs::fsync(file)?)
        }
        synced => synced,
    }
}

#[cfg(target_os = "linux")]
fn forget(file: &File, offset: u64, len: u64) {
    use rustix::fs::{Advice, fadvise};
    // The next read sees older contents if this fails, as without the call.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &File, _: u64, _: u64) {}

#[cfg(target_os = "linux")]
fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        done => Ok(done?),
    }
}

#[cfg(not(target_os = "linux"))]
fn punch_hole(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{OverlayDevice, WindowDevice};

    #[test]
    fn the_file_has_the_bytes_also_through_windows() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        device.write_at(5000, b"bytes").unwrap();
        let window = WindowDevice::new(device.clone(), 4096, 4000).unwrap();
        let (file, offset) = window.in_file(904, 5).unwrap();
        let mut found = [0; 5];
        file.read_exact_at(&mut found, offset).unwrap();
        assert_eq!(&found, b"bytes");
        assert_eq!(device.in_file(8000, 192).map(|(_, offset)| offset), Some(8000));
        assert!(device.in_file(8000, 193).is_none());
        assert!(window.in_file(3999, 2).is_none());
        assert!(window.in_file(u64::MAX, 1).is_none());
        // Writes to an overlay do not reach the file.
        assert!(OverlayDevice::new(device).in_file(0, 1).is_none());
    }

    #[test]
    fn holes_read_as_zeros_and_the_end_is_the_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let device = FileDevice::new(file).unwrap();
        device.write_at(0, &[7; 8192]).unwrap();
        device.zero_range(100, 5000).unwrap();
        let mut all = [0; 8192];
        device.read_at(0, &mut all).unwrap();
        assert!(all[..100].iter().all(|&b| b == 7));
        assert!(all[100..5100].iter().all(|&b| b == 0));
        assert!(all[5100..].iter().all(|&b| b == 7));
        device.discard(6000, 100).unwrap();
        device.read_at(0, &mut all).unwrap();
        assert!(all[5100..6000].iter().chain(&all[6100..]).all(|&b| b == 7));
        assert!(device.discard(8000, 193).is_err());
        assert!(device.read_at(8000, &mut [0; 193]).is_err());
        assert!(device.write_at(u64::MAX, &[1]).is_err());
    }
}
