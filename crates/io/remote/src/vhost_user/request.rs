//! Requests of virtio-blk, performed on a device.

use std::io::{self, Read, Write};
use std::sync::Arc;

use disk::BlockDevice;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Unit of all offsets and lengths, in bytes.
pub(super) const SECTOR: u64 = 512;
/// Maximum number of ranges in a request to discard or to write zeros.
pub(super) const SEGMENTS_MAX: u32 = 32;
/// Length of the answer to `GET_ID`.
const ID_BYTES: usize = 20;
/// Size of the buffer between a guest's memory and the device.
const BUFFER_BYTES: usize = 1 << 20;

/// Types of requests (VIRTIO 1.2, 5.2.6).
mod kind {
    pub(super) const IN: u32 = 0;
    pub(super) const OUT: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// Flag of a range whose storage may be freed.
const UNMAP: u32 = 1;

/// Status at the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

impl From<io::Error> for Status {
    fn from(_: io::Error) -> Self {
        Self::IoError
    }
}

/// Start of each request: `type`, `reserved` and `sector` of `struct virtio_blk_req`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RequestHeader {
    pub(super) kind: U32,
    pub(super) reserved: U32,
    pub(super) sector: U64,
}

/// `struct virtio_blk_discard_write_zeroes`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Segment {
    pub(super) sector: U64,
    pub(super) sectors: U32,
    pub(super) flags: U32,
}

const _: () = assert!(size_of::<RequestHeader>() == 16 && size_of::<Segment>() == 16);

/// The device that guests see.
pub(super) struct Exported {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) read_only: bool,
    /// Answer to `GET_ID`, padded with NUL.
    id: [u8; ID_BYTES],
}

/// The parts of a request in the guest's memory after the header, and before the status.
pub(super) struct RequestBuffers<'a> {
    /// Readable part, and its length.
    pub(super) input: &'a mut dyn Read,
    pub(super) input_len: usize,
    /// Writable part, and its length.
    pub(super) output: &'a mut dyn Write,
    pub(super) output_len: usize,
}

impl Exported {
    /// Exports a device. The first 20 bytes of `id` are shown to guests.
    pub(super) fn new(device: Arc<dyn BlockDevice>, read_only: bool, id: &str) -> Self {
        let mut padded = [0; ID_BYTES];
        let len = id.len().min(ID_BYTES);
        padded[..len].copy_from_slice(&id.as_bytes()[..len]);
        Self { device, read_only, id: padded }
    }

    /// Performs a request. `buffer` is reused by all requests of a queue.
    ///
    /// # Errors
    /// The status to answer.
    pub(super) fn perform(
        &self,
        header: &RequestHeader,
        contents: RequestBuffers<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let RequestBuffers { input, input_len, output, output_len } = contents;
        let sector = header.sector.get();
        match header.kind.get() {
            kind::IN => self.read(self.range(sector, output_len as u64)?, output, buffer),
            kind::FLUSH if self.read_only => Ok(()),
            kind::FLUSH => Ok(self.device.flush()?),
            kind::GET_ID => Ok(output.write_all(&self.id[..ID_BYTES.min(output_len)])?),
            kind::OUT | kind::DISCARD | kind::WRITE_ZEROES if self.read_only => {
                Err(Status::IoError)
            }
            kind::OUT => self.write(self.range(sector, input_len as u64)?, input, buffer),
            kind::DISCARD => self.each_segment(input, input_len, |offset, len, flags| {
                if flags != 0 {
                    return Err(Status::Unsupported);
                }
                match self.device.discard(offset, len) {
                    // A hint, so devices without support ignore it.
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
                    done => Ok(done?),
                }
            }),
            kind::WRITE_ZEROES => {
                self.each_segment(input, input_len, |offset, len, flags| match flags {
                    UNMAP => Ok(self.device.zero_range(offset, len)?),
                    0 => self.write((offset, len), &mut io::repeat(0), buffer),
                    _ => Err(Status::Unsupported),
                })
            }
            _ => Err(Status::Unsupported),
        }
    }

    /// Returns offset and length in bytes of a range of the device.
    fn range(&self, sector: u64, len: u64) -> Result<(u64, u64), Status> {
        let offset = sector.checked_mul(SECTOR).ok_or(Status::IoError)?;
        let end = offset.checked_add(len).ok_or(Status::IoError)?;
        let accessible = self.device.len() / SECTOR * SECTOR;
        if end > accessible || !len.is_multiple_of(SECTOR) {
            return Err(Status::IoError);
        }
        Ok((offset, len))
    }

    fn read(
        &self,
        (offset, len): (u64, u64),
        output: &mut dyn Write,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Status> {
        in_parts(offset, len, buffer, |at, part| {
            self.device.read_at(at, part)?;
            output.write_all(part)
        })
    }

    fn write(
        &self,
        (offset, len): (u64, u64),
        input: &mut dyn Read,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Status> {
        in_parts(offset, len, buffer, |at, part| {
            input.read_exact(part)?;
            self.device.write_at(at, part)
        })
    }

    /// Performs a request with a list of ranges. Nothing is done if one of them is invalid.
    fn each_segment(
        &self,
        input: &mut dyn Read,
        input_len: usize,
        mut perform: impl FnMut(u64, u64, u32) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut segments = [const { Segment::ZERO }; SEGMENTS_MAX as usize];
        let count = input_len / size_of::<Segment>();
        if !input_len.is_multiple_of(size_of::<Segment>()) || count > segments.len() {
            return Err(Status::IoError);
        }
        let segments = &mut segments[..count];
        input.read_exact(segments.as_mut_bytes())?;
        for segment in &*segments {
            self.range(segment.sector.get(), u64::from(segment.sectors.get()) * SECTOR)?;
        }
        for segment in &*segments {
            let len = u64::from(segment.sectors.get()) * SECTOR;
            let (offset, len) = self.range(segment.sector.get(), len)?;
            perform(offset, len, segment.flags.get())?;
        }
        Ok(())
    }
}

impl Segment {
    const ZERO: Self = Self { sector: U64::ZERO, sectors: U32::ZERO, flags: U32::ZERO };
}

/// Calls `each` with consecutive parts of a range, and a buffer for each.
fn in_parts(
    offset: u64,
    len: u64,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Result<(), Status> {
    let part = len.min(BUFFER_BYTES as u64) as usize;
    if buffer.len() < part {
        buffer.resize(part, 0);
    }
    let mut done = 0;
    while done < len {
        let now = (len - done).min(BUFFER_BYTES as u64);
        each(offset + done, &mut buffer[..now as usize])?;
        done += now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;

    use super::*;

    struct Client {
        exported: Exported,
        buffer: Vec<u8>,
    }

    impl Client {
        fn new(len: u64, read_only: bool) -> Self {
            let device = Arc::new(MemoryDevice::new(len));
            Self { exported: Exported::new(device, read_only, "serial"), buffer: Vec::new() }
        }

        fn ask(&mut self, kind: u32, sector: u64, mut input: &[u8], output: &mut [u8]) -> Status {
            let header =
                RequestHeader { kind: kind.into(), reserved: 0.into(), sector: sector.into() };
            let (input_len, output_len) = (input.len(), output.len());
            let mut output = output;
            let contents =
                RequestBuffers { input: &mut input, input_len, output: &mut output, output_len };
            let done = self.exported.perform(&header, contents, &mut self.buffer);
            done.err().unwrap_or(Status::Ok)
        }

        fn segments(&mut self, kind: u32, segments: &[(u64, u32, u32)]) -> Status {
            let segments: Vec<_> = segments
                .iter()
                .map(|&(sector, sectors, flags)| Segment {
                    sector: sector.into(),
                    sectors: sectors.into(),
                    flags: flags.into(),
                })
                .collect();
            self.ask(kind, 0, segments.as_bytes(), &mut [])
        }
    }

    #[test]
    fn contents_are_those_written() {
        let mut client = Client::new(8 << 20, false);
        // More than one part.
        let contents: Vec<u8> = (0..3 << 20).map(|at| (at / 512 % 251) as u8).collect();
        assert_eq!(client.ask(kind::OUT, 3, &contents, &mut []), Status::Ok);
        let mut read = vec![0; contents.len() + 1024];
        assert_eq!(client.ask(kind::IN, 2, &[], &mut read), Status::Ok);
        assert_eq!(read[..512], [0; 512]);
        assert!(read[512..][..contents.len()] == contents);
        assert_eq!(client.ask(kind::FLUSH, 0, &[], &mut []), Status::Ok);
        let mut id = [1; 20];
        assert_eq!(client.ask(kind::GET_ID, 0, &[], &mut id), Status::Ok);
        assert_eq!(&id, b"serial\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn requests_past_the_end_change_nothing() {
        let mut client = Client::new(1 << 20, false);
        let last = (1 << 20) / 512 - 1;
        let sectors = [9; 1024];
        assert_eq!(client.ask(kind::OUT, last, &sectors, &mut []), Status::IoError);
        assert_eq!(client.ask(kind::OUT, u64::MAX, &sectors, &mut []), Status::IoError);
        assert_eq!(client.ask(kind::OUT, u64::MAX / 512, &sectors, &mut []), Status::IoError);
        assert_eq!(client.ask(kind::IN, last, &[], &mut [0; 1024]), Status::IoError);
        assert_eq!(client.ask(kind::OUT, 0, &sectors[..100], &mut []), Status::IoError);
        let zeros = [(0, 8, UNMAP), (u64::from(last as u32), 2, UNMAP)];
        assert_eq!(client.segments(kind::WRITE_ZEROES, &zeros), Status::IoError);
        assert_eq!(client.ask(99, 0, &[], &mut []), Status::Unsupported);
        assert_eq!(client.ask(kind::OUT, last, &sectors[..512], &mut []), Status::Ok);
    }

    #[test]
    fn ranges_become_zeros_with_either_flag() {
        for flags in [0, UNMAP] {
            let mut client = Client::new(1 << 20, false);
            assert_eq!(client.ask(kind::OUT, 0, &[7; 64 << 10], &mut []), Status::Ok);
            let ranges = [(1, 8, flags), (100, 28, flags)];
            assert_eq!(client.segments(kind::WRITE_ZEROES, &ranges), Status::Ok);
            let mut read = vec![0; 64 << 10];
            assert_eq!(client.ask(kind::IN, 0, &[], &mut read), Status::Ok);
            let zeros = |at: usize| (1..9).contains(&at) || (100..128).contains(&at);
            for (at, sector) in read.chunks(512).enumerate() {
                assert_eq!(sector, [if zeros(at) { 0 } else { 7 }; 512], "sector {at}");
            }
        }
        let mut client = Client::new(1 << 20, false);
        assert_eq!(client.segments(kind::DISCARD, &[(0, 8, 0)]), Status::Ok);
        assert_eq!(client.segments(kind::DISCARD, &[(0, 8, UNMAP)]), Status::Unsupported);
        assert_eq!(client.segments(kind::WRITE_ZEROES, &[(0, 8, 2)]), Status::Unsupported);
        assert_eq!(client.segments(kind::DISCARD, &[(0, 1, 0); 33]), Status::IoError);
        assert_eq!(client.ask(kind::DISCARD, 0, &[0; 17], &mut []), Status::IoError);
    }

    #[test]
    fn a_read_only_device_is_not_changed() {
        let mut client = Client::new(1 << 20, true);
        assert_eq!(client.ask(kind::OUT, 0, &[7; 512], &mut []), Status::IoError);
        assert_eq!(client.segments(kind::DISCARD, &[(0, 8, 0)]), Status::IoError);
        assert_eq!(client.segments(kind::WRITE_ZEROES, &[(0, 8, 0)]), Status::IoError);
        assert_eq!(client.ask(kind::FLUSH, 0, &[], &mut []), Status::Ok);
        assert_eq!(client.ask(kind::IN, 0, &[], &mut [0; 512]), Status::Ok);
    }
}
