//! Headers of archives that are written: ustar. Values that do not fit belong into a PAX record before the header.

use zerocopy::{FromZeros, IntoBytes};

use super::Header;

impl Header {
    /// Maximum length of a name and of a link target in bytes.
    pub(crate) const NAME_BYTES_MAX: usize = 100;
    /// Maximum owner ID: seven octal digits.
    pub(crate) const ID_MAX: u32 = 0o7_777_777;
    /// Maximum size in bytes, and maximum time in seconds: eleven octal digits.
    pub(crate) const SIZE_MAX: u64 = 0o77_777_777_777;

    /// Creates a header with default attributes (0644, root, 1970). A longer name is truncated, and a size above
    /// `Header::SIZE_MAX` becomes 0.
    pub fn new(typeflag: u8, name: &[u8], size: u64) -> Self {
        let mut header = Self {
            mode: *b"0000644\0",
            uid: *b"0000000\0",
            gid: *b"0000000\0",
            mtime: *b"00000000000\0",
            chksum: [b' '; 8],
            typeflag,
            magic: *b"ustar\0",
            version: *b"00",
            devmajor: *b"0000000\0",
            devminor: *b"0000000\0",
            ..Self::new_zeroed()
        };
        copy(&mut header.name, name);
        octal(&mut header.size, if size > Self::SIZE_MAX { 0 } else { size });
        header
    }

    /// Sets the permission bits.
    pub fn set_permissions(&mut self, permissions: u16) {
        octal(&mut self.mode, permissions.into());
    }

    /// Sets the owners. An ID above `Header::ID_MAX` becomes 0.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let fitting = |id: u32| if id > Self::ID_MAX { 0 } else { id.into() };
        octal(&mut self.uid, fitting(uid));
        octal(&mut self.gid, fitting(gid));
    }

    /// Sets the time in seconds since 1970, clamped to the range of the field.
    pub fn set_mtime(&mut self, seconds: i64) {
        octal(&mut self.mtime, u64::try_from(seconds).unwrap_or(0).min(Self::SIZE_MAX));
    }

    /// Sets the device numbers.
    pub fn set_device(&mut self, major: u32, minor: u32) {
        octal(&mut self.devmajor, major.into());
        octal(&mut self.devminor, minor.into());
    }

    /// Sets the target of a link, truncated to the field.
    pub fn set_linkname(&mut self, target: &[u8]) {
        copy(&mut self.linkname, target);
    }

    /// Returns the block with its checksum: the sum of all bytes, with the checksum field counted as spaces.
    pub fn finish(&mut self) -> &[u8] {
        self.chksum = [b' '; 8];
        let sum = self.as_bytes().iter().map(|&byte| u64::from(byte)).sum();
        octal(&mut self.chksum[..7], sum);
        self.as_bytes()
    }
}

fn copy(field: &mut [u8], bytes: &[u8]) {
    for (place, &byte) in field.iter_mut().zip(bytes) {
        *place = byte;
    }
}

/// Writes octal digits and a NUL.
fn octal(field: &mut [u8], mut value: u64) {
    let Some((last, digits)) = field.split_last_mut() else { return };
    *last = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value & 7) as u8;
        value >>= 3;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCK_BYTES, HeaderFormat};
    use super::*;

    #[test]
    fn written_headers_can_be_read() {
        let mut header = Header::new(b'0', b"name", 0o1234);
        header.set_permissions(0o4711);
        header.set_owner(Header::ID_MAX, Header::ID_MAX + 1);
        header.set_mtime(-1);
        header.set_device(8, 17);
        header.set_linkname(b"target");
        let block: [u8; BLOCK_BYTES] = header.finish().try_into().unwrap();
        let read = Header::parse(&block).unwrap();
        assert_eq!(read.format(), HeaderFormat::Ustar);
        assert_eq!((read.typeflag, read.path().as_slice()), (b'0', &b"name"[..]));
        assert_eq!((read.size().unwrap(), read.permissions().unwrap()), (0o1234, 0o4711));
        assert_eq!((read.uid().unwrap(), read.gid().unwrap()), (Header::ID_MAX, 0));
        assert_eq!(read.mtime().unwrap(), 0);
        assert_eq!((read.devmajor().unwrap(), read.devminor().unwrap()), (8, 17));
        assert_eq!(read.linkname(), b"target");
    }
}
