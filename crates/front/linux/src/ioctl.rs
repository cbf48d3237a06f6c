//! Requests by ioctl(2): numbers, input and output.
//!
//! For FUSE the kernel derives the sizes of input and output from the ioctl's number. It copies
//! exactly these bytes and passes no pointer that could be followed. The input is the `data` of
//! [`Operation::Ioctl`](crate::Operation::Ioctl), [`IoctlIn::in_size`] bytes long. A reply has at
//! most [`IoctlIn::out_size`] bytes. [`input`] and [`answer`] enforce both.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{IoctlIn, IoctlOut};
use crate::{Errno, Reply};

// Positions of the fields of an ioctl number (`_IOC_...` of `asm-generic/ioctl.h`).
const TYPE_SHIFT: u32 = 8;
const SIZE_SHIFT: u32 = 16;
const SIZE_BITS: u32 = 14;
const DIRECTION_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
/// Direction bit: the caller passes input.
const WRITE: u32 = 1;
/// Direction bit: the caller receives output.
const READ: u32 = 2;

const fn number(direction: u32, kind: u8, nr: u8, size: usize) -> u32 {
    assert!(size < 1 << SIZE_BITS);
    direction << DIRECTION_SHIFT
        | (size as u32) << SIZE_SHIFT
        | (kind as u32) << TYPE_SHIFT
        | nr as u32
}

/// Returns the number of an ioctl with `size` bytes of output (`_IOR`).
pub const fn read(kind: u8, nr: u8, size: usize) -> u32 {
    number(READ, kind, nr, size)
}

/// Returns the number of an ioctl with `size` bytes of input (`_IOW`).
pub const fn write(kind: u8, nr: u8, size: usize) -> u32 {
    number(WRITE, kind, nr, size)
}

/// Returns the number of an ioctl with `size` bytes of input and of output (`_IOWR`).
pub const fn read_write(kind: u8, nr: u8, size: usize) -> u32 {
    number(READ | WRITE, kind, nr, size)
}

/// Returns whether an ioctl with this number has input.
pub const fn takes_input(cmd: u32) -> bool {
    cmd >> DIRECTION_SHIFT & WRITE != 0
}

/// Parses the input as a structure.
///
/// # Errors
/// `EINVAL` if the length differs.
pub fn input<T: FromBytes>(data: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(data).map_err(|_| Errno::INVAL)
}

/// Puts the output into the reply; ioctl(2) returns 0.
///
/// # Errors
/// `EINVAL` if the output is larger than the ioctl's number allows.
pub fn answer<T: IntoBytes + Immutable + ?Sized>(
    args: &IoctlIn,
    value: &T,
    reply: &mut Reply<'_>,
) -> Result<(), Errno> {
    let bytes = value.as_bytes();
    if bytes.len() > args.out_size as usize {
        return Err(Errno::INVAL);
    }
    reply.put(&IoctlOut::default())?;
    reply.put_bytes(bytes)
}

/// Puts an empty success into the reply; ioctl(2) returns 0.
///
/// # Errors
/// `EIO` if the reply buffer is too small, which does not occur in a session.
pub fn done(reply: &mut Reply<'_>) -> Result<(), Errno> {
    reply.put(&IoctlOut::default())
}

#[cfg(test)]
mod tests {
    use super::{answer, input, number, read, read_write, takes_input, write};
    use crate::abi::{IoctlIn, IoctlOut};
    use crate::{Errno, Reply};

    #[test]
    fn numbers_are_the_kernels() {
        // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FITRIM, FS_IOC_GETFSLABEL and VT_WAITACTIVE with their
        // values in C.
        assert_eq!(read(b'f', 1, 8), 0x8008_6601);
        assert_eq!(write(b'f', 2, 8), 0x4008_6602);
        assert_eq!(read_write(b'X', 121, 24), 0xc018_5879);
        assert_eq!(read(0x94, 49, 256), 0x8100_9431);
        assert_eq!(number(0, b'V', 7, 0), 0x5607);
    }

    #[test]
    fn a_request_number_contains_the_direction() {
        assert!(takes_input(write(b'f', 2, 8)) && takes_input(read_write(b'X', 121, 24)));
        assert!(!takes_input(read(b'f', 1, 8)) && !takes_input(number(0, b'V', 7, 0)));
    }

    #[test]
    fn transfers_are_limited_to_the_buffer() {
        assert_eq!(input::<u32>(&7_u32.to_ne_bytes()), Ok(7));
        assert_eq!(input::<u32>(&[0; 3]), Err(Errno::INVAL));
        assert_eq!(input::<u32>(&[0; 5]), Err(Errno::INVAL));
        let args = IoctlIn { out_size: 4, ..IoctlIn::default() };
        let mut buffer = [0xee; 64];
        let mut reply = Reply::new(&mut buffer);
        assert_eq!(answer(&args, &7_u64, &mut reply), Err(Errno::INVAL));
        assert!(reply.is_empty());
        assert_eq!(answer(&args, &7_u32, &mut reply), Ok(()));
        assert_eq!(reply.len(), size_of::<IoctlOut>() + 4);
        assert_eq!(reply.as_bytes()[size_of::<IoctlOut>()..], 7_u32.to_ne_bytes());
    }
}
