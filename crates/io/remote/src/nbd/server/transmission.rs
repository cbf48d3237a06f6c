//! Performs requests on the device.

use std::io;

use disk::BlockDevice;

use super::Exported;
use super::handshake::Negotiated;
use crate::nbd::protocol::{PAYLOAD_BYTES_MAX, Request, allocation, command, errno, flag};

/// Buffer size for zeros that must be allocated.
const ZEROS_BYTES: usize = 1 << 20;

/// Maximum number of extents in a reply.
const EXTENTS_MAX: usize = 1024;

/// Result of a successful request.
pub(super) enum Performed {
    /// A change, or a flush.
    Done,
    /// Contents of a read.
    Contents(Vec<u8>),
    /// Lengths and flags of consecutive extents.
    Status(Vec<(u32, u32)>),
}

/// Performs a request. Returns an error number if it fails.
pub(super) fn perform(
    exported: &Exported,
    negotiated: Negotiated,
    request: &Request,
    contents: &[u8],
) -> Result<Performed, u32> {
    let device = &*exported.device;
    check(exported, negotiated, request)?;
    let done = match request.command {
        command::READ => {
            let mut read = vec![0; request.len as usize];
            return match device.read_at(request.offset, &mut read) {
                Ok(()) => Ok(Performed::Contents(read)),
                Err(error) => Err(number_of(&error)),
            };
        }
        command::BLOCK_STATUS => {
            let extents_max = if request.flags & flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
            return Ok(Performed::Status(extents(device, request, extents_max)));
        }
        command::WRITE => device.write_at(request.offset, contents),
        command::FLUSH => device.flush(),
        command::TRIM => match device.discard(request.offset, request.len.into()) {
            // `TRIM` is a hint, so devices without support ignore it.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        },
        _ if request.flags & flag::NO_HOLE != 0 => write_zeros(device, request),
        _ => device.zero_range(request.offset, request.len.into()),
    };
    let is_durable = request.flags & flag::FUA != 0 && request.command != command::FLUSH;
    let done = done.and_then(|()| if is_durable { device.flush() } else { Ok(()) });
    done.map(|()| Performed::Done).map_err(|error| number_of(&error))
}

/// Rejects invalid requests.
fn check(exported: &Exported, negotiated: Negotiated, request: &Request) -> Result<(), u32> {
    let allowed = match request.command {
        command::READ if negotiated.has_chunks => flag::FUA | flag::DF,
        command::BLOCK_STATUS if negotiated.has_status => flag::FUA | flag::REQ_ONE,
        command::READ | command::FLUSH | command::WRITE | command::TRIM => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE,
        _ => return Err(errno::INVALID),
    };
    if request.flags & !allowed != 0 {
        return Err(errno::INVALID);
    }
    let changes =
        !matches!(request.command, command::READ | command::FLUSH | command::BLOCK_STATUS);
    if changes && exported.read_only {
        return Err(errno::PERM);
    }
    if request.command == command::FLUSH {
        return if request.offset == 0 && request.len == 0 { Ok(()) } else { Err(errno::INVALID) };
    }
    if request.command == command::READ && request.len > PAYLOAD_BYTES_MAX
        || request.command == command::BLOCK_STATUS && request.len == 0
    {
        return Err(errno::INVALID);
    }
    let end = request.offset.checked_add(request.len.into());
    match end.is_some_and(|end| end <= exported.device.len()) {
        true => Ok(()),
        false if changes => Err(errno::NO_SPACE),
        false => Err(errno::INVALID),
    }
}

/// Returns the first extents of the request's range.
fn extents(device: &dyn BlockDevice, request: &Request, extents_max: usize) -> Vec<(u32, u32)> {
    let mut extents = Vec::<(u32, u32)>::new();
    // The sum of the lengths is at most that of the request.
    let mut push = |len: u64, flags| match extents.last_mut() {
        Some((last, same)) if *same == flags => *last += len as u32,
        _ if len == 0 => {}
        _ => extents.push((len as u32, flags)),
    };
    let end = request.offset + u64::from(request.len);
    let (mut at, mut count) = (request.offset, 0);
    // One more, because neighbours may be one extent.
    while at < end && count <= extents_max {
        let zeros = device.known_zeros(at, end - at).filter(|zeros| zeros.end <= end);
        let zeros = zeros.filter(|zeros| at <= zeros.start && zeros.start < zeros.end);
        let zeros = zeros.unwrap_or(end..end);
        count += usize::from(zeros.start > at);
        push(zeros.start - at, 0);
        push(zeros.end - zeros.start, allocation::HOLE | allocation::ZERO);
        at = zeros.end;
    }
    extents.truncate(extents_max);
    extents
}

fn write_zeros(device: &dyn BlockDevice, request: &Request) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES.min(request.len as usize)];
    let end = request.offset + u64::from(request.len);
    let mut at = request.offset;
    while at < end {
        let len = (end - at).min(zeros.len() as u64);
        device.write_at(at, &zeros[..len as usize])?;
        at += len;
    }
    Ok(())
}

/// Converts an error of the device.
fn number_of(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => errno::NO_SPACE,
        io::ErrorKind::OutOfMemory => errno::NO_MEMORY,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => errno::PERM,
        io::ErrorKind::Unsupported => errno::UNSUPPORTED,
        _ => errno::IO,
    }
}
