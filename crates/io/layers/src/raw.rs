//! Bounded reads of structures.

use disk::BlockDevice;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{LayerError, Result};

/// Reads `len` bytes of a device. Fails if they are past its end, or more than `max`.
pub(crate) fn bytes(
    device: &dyn BlockDevice,
    what: &'static str,
    at: u64,
    len: u64,
    max: u64,
) -> Result<Vec<u8>> {
    let device_len = device.len();
    if len > max {
        let problem = format!("{len} bytes long, expected at most {max}");
        return Err(LayerError::damaged(what, at, problem));
    }
    if at.checked_add(len).is_none_or(|end| end > device_len) {
        let problem = format!("{len} bytes end past the end of the device ({device_len} bytes)");
        return Err(LayerError::damaged(what, at, problem));
    }
    let mut bytes = vec![0; len as usize];
    device.read_at(at, &mut bytes).map_err(LayerError::reading(what, at))?;
    Ok(bytes)
}

/// Reads one structure.
pub(crate) fn structure<T: FromBytes>(
    device: &dyn BlockDevice,
    what: &'static str,
    at: u64,
) -> Result<T> {
    let len = size_of::<T>() as u64;
    let bytes = bytes(device, what, at, len, len)?;
    T::read_from_bytes(&bytes).map_err(|_| LayerError::damaged(what, at, "too short"))
}

/// Returns the structure at the start of `bytes`.
pub(crate) fn prefix<'a, T: FromBytes + KnownLayout + Immutable + zerocopy::Unaligned>(
    bytes: &'a [u8],
    what: &'static str,
    at: u64,
) -> Result<(&'a T, &'a [u8])> {
    T::ref_from_prefix(bytes)
        .map_err(|_| LayerError::damaged(what, at, format!("only {} bytes long", bytes.len())))
}

/// Returns text up to the first NUL, if it is printable ASCII.
pub(crate) fn ascii(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let text = str::from_utf8(&field[..end]).ok()?;
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte)).then_some(text)
}
