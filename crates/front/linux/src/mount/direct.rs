//! Mounting by mount(2), for root.

use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{getgid, getuid};

use super::{MountFailure, MountOptions};
use crate::device;

pub(super) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountFailure> {
    let fd = open_device()?;
    let blocks = options.block_size.map_or_else(String::new, |size| format!(",blksize={size}"));
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},{}{blocks}",
        fd.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw(),
        options.fuse_options(),
    );
    let data = CString::new(data).expect("numbers and words have no NUL");
    let (source, fs_type) = names(options);
    match rustix::mount::mount(source, mountpoint, fs_type, flags(options), data.as_c_str()) {
        Ok(()) => Ok(fd),
        Err(Errno::PERM) => Err(MountFailure::NotPermitted),
        Err(Errno::NODEV) => Err(MountFailure::Other(no_fuse())),
        Err(error) => Err(MountFailure::Other(error.into())),
    }
}

fn open_device() -> Result<OwnedFd, MountFailure> {
    match OpenOptions::new().read(true).write(true).open(device::PATH) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::PermissionDenied => MountFailure::NotPermitted,
            io::ErrorKind::NotFound => MountFailure::Other(no_fuse()),
            _ if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                MountFailure::Other(no_fuse())
            }
            _ => {
                let text = format!("{}: {error}", device::PATH);
                MountFailure::Other(io::Error::new(error.kind(), text))
            }
        }),
    }
}

fn no_fuse() -> io::Error {
    let text = "the kernel has no FUSE support, or its module is not loaded (modprobe fuse)";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Returns the device name and the file system type.
fn names(options: &MountOptions) -> (&OsStr, String) {
    let kind = if options.block_size.is_some() { "fuseblk" } else { "fuse" };
    let fs_type = match options.subtype.as_str() {
        "" => kind.into(),
        subtype => format!("{kind}.{subtype}"),
    };
    let source = match options.fs_name.as_os_str() {
        name if !name.is_empty() => name,
        _ if !options.subtype.is_empty() => OsStr::new(&options.subtype),
        _ => OsStr::new("fuse"),
    };
    (source, fs_type)
}

fn flags(options: &MountOptions) -> MountFlags {
    // The handler decides when access times change; the kernel does not update them.
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::NOSYMFOLLOW, options.nosymfollow);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags
}

#[cfg(test)]
mod tests {
    use super::{MountFlags, MountOptions, flags, names};

    #[test]
    fn only_requested_options_are_passed() {
        let common = MountFlags::NOATIME;
        let none = MountOptions::default();
        assert_eq!(flags(&none), common | MountFlags::NOSUID | MountFlags::NODEV);
        let all = MountOptions {
            read_only: true,
            suid: true,
            dev: true,
            noexec: true,
            nosymfollow: true,
            sync: true,
            dirsync: true,
            ..none
        };
        let expected = MountFlags::RDONLY
            | MountFlags::NOEXEC
            | MountFlags::NOSYMFOLLOW
            | MountFlags::SYNCHRONOUS
            | MountFlags::DIRSYNC;
        assert_eq!(flags(&all), common | expected);
    }

    #[test]
    fn a_mount_always_has_a_name() {
        let with = |fs_name: &str, subtype: &str| {
            let options = MountOptions {
                fs_name: fs_name.into(),
                subtype: subtype.into(),
                ..MountOptions::default()
            };
            let (source, fs_type) = names(&options);
            (source.to_str().unwrap().to_owned(), fs_type)
        };
        assert_eq!(with("", ""), ("fuse".into(), "fuse".into()));
        assert_eq!(with("", "ext4"), ("ext4".into(), "fuse.ext4".into()));
        assert_eq!(with("a,b", "ext4"), ("a,b".into(), "fuse.ext4".into()));
        let of_device = MountOptions {
            fs_name: "/dev/loop0".into(),
            subtype: "ext4".into(),
            block_size: Some(1024),
            ..MountOptions::default()
        };
        assert_eq!(names(&of_device).1, "fuseblk.ext4");
    }
}
