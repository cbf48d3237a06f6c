//! Requests by ioctl(2): their numbers, and what goes in and out.
//!
//! For a file system the kernel takes an ioctl's number at its word: it copies as many bytes in, and out, as
//! the number says, and hands over no pointer that could be followed. So what a request brings is
//! [`Operation::Ioctl`](crate::Operation::Ioctl)'s `data`, of [`IoctlIn::in_size`] bytes, and an answer has
//! at most [`IoctlIn::out_size`] bytes. [`input`] and [`answer`] keep to both.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{IoctlIn, IoctlOut};
use crate::{Errno, Reply};

// Where the parts of a number are (`_IOC_...` of `asm-generic/ioctl.h`).
const TYPE_SHIFT: u32 = 8;
const SIZE_SHIFT: u32 = 16;
const SIZE_BITS: u32 = 14;
const DIRECTION_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
/// The caller writes: something goes in.
const WRITE: u32 = 1;
/// The caller reads: something comes out.
const READ: u32 = 2;

const fn number(direction: u32, kind: u8, nr: u8, size: usize) -> u32 {
    assert!(size < 1 << SIZE_BITS);
    direction << DIRECTION_SHIFT
        | (size as u32) << SIZE_SHIFT
        | (kind as u32) << TYPE_SHIFT
        | nr as u32
}

/// A number of which nothing goes in or out (`_IO`).
pub const fn none(kind: u8, nr: u8) -> u32 {
    number(0, kind, nr, 0)
}

/// A number by which a caller reads `size` bytes (`_IOR`).
pub const fn read(kind: u8, nr: u8, size: usize) -> u32 {
    number(READ, kind, nr, size)
}

/// A number by which a caller writes `size` bytes (`_IOW`).
pub const fn write(kind: u8, nr: u8, size: usize) -> u32 {
    number(WRITE, kind, nr, size)
}

/// A number by which a caller writes `size` bytes and reads as many (`_IOWR`).
pub const fn read_write(kind: u8, nr: u8, size: usize) -> u32 {
    number(READ | WRITE, kind, nr, size)
}

/// Whether something goes in with a request of this number.
pub const fn takes_input(cmd: u32) -> bool {
    cmd >> DIRECTION_SHIFT & WRITE != 0
}

/// What came in, as a structure.
///
/// # Errors
/// `EINVAL` if it is not as long.
pub fn input<T: FromBytes>(data: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(data).map_err(|_| Errno::INVAL)
}

/// Answers with what goes out. What ioctl(2) returns is 0.
///
/// # Errors
/// `EINVAL` if the caller has no room for it: then the number says less.
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

/// Answers that it is done, with nothing that goes out: what ioctl(2) returns is 0.
///
/// # Errors
/// `EIO` if there is no room, which there always is.
pub fn done(reply: &mut Reply<'_>) -> Result<(), Errno> {
    reply.put(&IoctlOut::default())
}

#[cfg(test)]
mod tests {
    use super::{answer, input, none, read, read_write, takes_input, write};
    use crate::abi::{IoctlIn, IoctlOut};
    use crate::{Errno, Reply};

    #[test]
    fn numbers_are_the_kernels() {
        // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FITRIM, FS_IOC_GETFSLABEL and VT_WAITACTIVE, as C has them.
        assert_eq!(read(b'f', 1, 8), 0x8008_6601);
        assert_eq!(write(b'f', 2, 8), 0x4008_6602);
        assert_eq!(read_write(b'X', 121, 24), 0xc018_5879);
        assert_eq!(read(0x94, 49, 256), 0x8100_9431);
        assert_eq!(none(b'V', 7), 0x5607);
    }

    #[test]
    fn a_number_tells_whether_something_goes_in() {
        assert!(takes_input(write(b'f', 2, 8)) && takes_input(read_write(b'X', 121, 24)));
        assert!(!takes_input(read(b'f', 1, 8)) && !takes_input(none(b'V', 7)));
    }

    #[test]
    fn nothing_but_what_fits_goes_in_or_out() {
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
