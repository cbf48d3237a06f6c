//! Performs requests on the device.

use std::io;

use disk::BlockDevice;

use super::Exported;
use crate::nbd::protocol::{PAYLOAD_BYTES_MAX, Request, command, errno, flag};

/// Buffer size for zeros that must be allocated.
const ZEROS_BYTES: usize = 1 << 20;

/// Performs a request. Returns the contents of a read, or an error number.
pub(super) fn perform(
    exported: &Exported,
    request: &Request,
    contents: &[u8],
) -> Result<Vec<u8>, u32> {
    let device = &*exported.device;
    check(exported, request)?;
    let done = match request.command {
        command::READ => {
            let mut read = vec![0; request.len as usize];
            return match device.read_at(request.offset, &mut read) {
                Ok(()) => Ok(read),
                Err(error) => Err(number_of(&error)),
            };
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
    done.map(|()| Vec::new()).map_err(|error| number_of(&error))
}

/// Rejects invalid requests.
fn check(exported: &Exported, request: &Request) -> Result<(), u32> {
    let allowed = match request.command {
        command::READ | command::FLUSH | command::WRITE | command::TRIM => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE,
        _ => return Err(errno::INVALID),
    };
    if request.flags & !allowed != 0 {
        return Err(errno::INVALID);
    }
    let changes = !matches!(request.command, command::READ | command::FLUSH);
    if changes && exported.read_only {
        return Err(errno::PERM);
    }
    if request.command == command::FLUSH {
        return if request.offset == 0 && request.len == 0 { Ok(()) } else { Err(errno::INVALID) };
    }
    if request.command == command::READ && request.len > PAYLOAD_BYTES_MAX {
        return Err(errno::INVALID);
    }
    let end = request.offset.checked_add(request.len.into());
    match end.is_some_and(|end| end <= exported.device.len()) {
        true => Ok(()),
        false if changes => Err(errno::NO_SPACE),
        false => Err(errno::INVALID),
    }
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
