//! The decrypted contents of a volume.

use std::io;
use std::sync::Arc;
use std::thread;

use disk::{BlockDevice, ContentKind};
use parking_lot::Mutex;

use super::cipher::{Keyed, SECTOR};
use super::{VOLUME, Volume};
use crate::{LayerError, Result};

/// Number of bytes that are read and decrypted at a time, so that they stay in the processor's cache.
const PART_BYTES: usize = 64 << 10;
/// Maximum size of a sector in bytes.
const SECTOR_MAX: usize = 4096;
/// Minimum number of bytes of a large read for each of its threads. Starting a thread takes less time than decrypting
/// them.
const SHARE_BYTES: usize = 256 << 10;
/// Maximum number of threads of a read.
const THREADS_MAX: usize = 4;

/// A decrypted volume.
pub struct LuksDevice {
    inner: Arc<dyn BlockDevice>,
    cipher: Keyed,
    start: u64,
    len: u64,
    sector: usize,
    first_iv: u64,
    /// Number of threads of a large read.
    threads: usize,
    /// Held while a part of a sector is written, because that writes the whole sector.
    partial: Mutex<()>,
}

impl LuksDevice {
    pub(super) fn new(volume: &Volume, inner: Arc<dyn BlockDevice>, key: &[u8]) -> Result<Self> {
        let bad = |problem: String| LayerError::damaged(VOLUME, volume.offset, problem);
        let has = inner.len();
        let sector = volume.sector_bytes as usize;
        if !sector.is_power_of_two() || !(SECTOR..=SECTOR_MAX).contains(&sector) {
            return Err(bad(format!("sectors of {sector} bytes")));
        }
        let rest = has.checked_sub(volume.offset).filter(|rest| *rest > 0);
        let rest = rest.ok_or_else(|| bad(format!("the device has only {has} bytes")))?;
        let len = volume.len.unwrap_or(rest) / volume.sector_bytes * volume.sector_bytes;
        if len > rest {
            return Err(bad(format!("{len} bytes of data on a device of {has} bytes")));
        }
        let cipher = volume.encryption.keyed(key)?;
        let (start, first_iv) = (volume.offset, volume.first_iv);
        let threads =
            thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
        let partial = Mutex::new(());
        Ok(Self { inner, cipher, start, len, sector, first_iv, threads, partial })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let has = self.len;
        let what = format!("bytes {offset}+{len} are past the end of the volume ({has} bytes)");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    fn number(&self, offset: u64) -> u64 {
        self.first_iv.wrapping_add(offset / SECTOR as u64)
    }

    /// Reads whole sectors.
    fn read_sectors(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let threads = self.threads.min(buf.len() / SHARE_BYTES);
        let starts = (offset..).step_by(PART_BYTES);
        let mut parts = starts.zip(buf.chunks_mut(PART_BYTES));
        if threads < 2 {
            return parts.try_for_each(|(at, part)| self.read_part(at, part));
        }
        let (parts, failed) = (Mutex::new(parts), Mutex::new(None));
        let work = || {
            while let Some((at, part)) = next(&parts) {
                if let Err(error) = self.read_part(at, part) {
                    *failed.lock() = Some(error);
                    return;
                }
                if failed.lock().is_some() {
                    return;
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // Use fewer threads if the system provides no more. The current thread works too.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn read_part(&self, at: u64, part: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(self.start + at, part)?;
        self.cipher.decrypt(self.number(at), self.sector, part);
        Ok(())
    }

    /// Writes whole sectors.
    fn write_sectors(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut encrypted = vec![0; data.len().min(PART_BYTES)];
        for part in data.chunks(PART_BYTES) {
            let encrypted = &mut encrypted[..part.len()];
            encrypted.copy_from_slice(part);
            self.cipher.encrypt(self.number(at), self.sector, encrypted);
            self.inner.write_at(self.start + at, encrypted)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Splits a range: bytes up to the first whole sector, and bytes of whole sectors after them.
    fn split(&self, offset: u64, len: usize) -> (usize, usize) {
        let sector = self.sector;
        let within = offset as usize % sector;
        let head = if within == 0 { 0 } else { (sector - within).min(len) };
        (head, (len - head) / sector * sector)
    }

    /// Reads a part of one sector.
    fn read_within(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let within = offset as usize % self.sector;
        let mut whole = [0; SECTOR_MAX];
        let whole = &mut whole[..self.sector];
        self.read_sectors(offset - within as u64, whole)?;
        buf.copy_from_slice(&whole[within..within + buf.len()]);
        Ok(())
    }

    /// Writes a part of one sector.
    fn write_within(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let within = offset as usize % self.sector;
        let mut whole = [0; SECTOR_MAX];
        let whole = &mut whole[..self.sector];
        let _partial = self.partial.lock();
        self.read_sectors(offset - within as u64, whole)?;
        whole[within..within + data.len()].copy_from_slice(data);
        self.write_sectors(offset - within as u64, whole)
    }
}

/// Takes the next item of an iterator that threads share.
fn next<I: Iterator>(shared: &Mutex<I>) -> Option<I::Item> {
    shared.lock().next()
}

impl BlockDevice for LuksDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let (head, whole) = self.split(offset, buf.len());
        let (first, rest) = buf.split_at_mut(head);
        let (sectors, last) = rest.split_at_mut(whole);
        self.read_within(offset, first)?;
        self.read_sectors(offset + head as u64, sectors)?;
        self.read_within(offset + (head + whole) as u64, last)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        let len = len.min(self.len.saturating_sub(offset));
        if len > 0 {
            self.inner.read_ahead(self.start + offset, len, content);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let (head, whole) = self.split(offset, data.len());
        let (first, rest) = data.split_at(head);
        let (sectors, last) = rest.split_at(whole);
        self.write_within(offset, first)?;
        self.write_sectors(offset + head as u64, sectors)?;
        self.write_within(offset + (head + whole) as u64, last)
    }

    /// Writes encrypted zeros: a hole would decrypt to random bytes.
    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        let zeros = vec![0; PART_BYTES.min(usize::try_from(len).unwrap_or(PART_BYTES))];
        let mut done = 0;
        while done < len {
            let part = (zeros.len() as u64).min(len - done);
            self.write_at(offset + done, &zeros[..part as usize])?;
            done += part;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        if self.check(offset, len).is_ok() {
            self.inner.drop_cache(self.start + offset, len);
        }
    }

    fn barrier(&self) -> io::Result<()> {
        self.inner.barrier()
    }
}
