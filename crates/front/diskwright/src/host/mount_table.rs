//! Mounts of block devices on Linux, with the numbers of the devices.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::DeviceMount;

/// Mounts visible to this process, with the numbers of their devices.
const TABLE_WITH_NUMBERS: &str = "/proc/self/mountinfo";

/// Returns the mounts of block devices visible to this process, oldest first.
pub(crate) fn device_mounts() -> Vec<DeviceMount> {
    let table = fs::read(TABLE_WITH_NUMBERS).unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(parse_with_number).collect()
}

/// Parses a line of `/proc/self/mountinfo`. Returns `None` for file systems without a device.
fn parse_with_number(line: &[u8]) -> Option<DeviceMount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let number = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let point = OsString::from_vec(unescaped(fields.nth(1)?)).into();
    // Options of the mount, then optional fields up to a hyphen, and the name of the file system.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(2);
    let source = PathBuf::from(OsString::from_vec(unescaped(rest.next()?)));
    let options = String::from_utf8_lossy(rest.next()?).into_owned();
    // File systems on several devices, such as btrfs, have a number of their own.
    let number = if number.starts_with("0:") { number_of(&source)? } else { number };
    Some(DeviceMount { number, point, options })
}

/// Returns the number of the block device at an absolute path.
fn number_of(source: &Path) -> Option<String> {
    super::device_number(source).filter(|_| source.is_absolute())
}

/// Decodes the kernel's escapes of white space and backslashes, such as `\040`.
pub(crate) fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(octal);
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_numbers_are_parsed() {
        let line =
            br"36 35 98:0 / /mnt\0402 rw,noatime master:1 - ext4 /dev/loop0 ro,errors=continue";
        let mount = parse_with_number(line).unwrap();
        assert_eq!((&*mount.number, &*mount.options), ("98:0", "ro,errors=continue"));
        assert_eq!(mount.point, Path::new("/mnt 2"));
        for other in
            [&b""[..], b"36 35", b"22 27 0:21 / /proc rw - proc proc rw", b"36 35 7:1 / /m rw"]
        {
            assert_eq!(parse_with_number(other), None);
        }
    }
}
