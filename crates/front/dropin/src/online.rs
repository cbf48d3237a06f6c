//! Requests about mounted file systems, which only the kernel can serve.
//!
//! An ioctl is used if there is one. Other requests are passed to the next program of the same name in `PATH` that is
//! not Diskwright. Without one they are rejected.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use linux::mounted::MountedDevice;
use rustix::io::Errno;

use crate::dumpe2fs;
use crate::failure::{Ended, Failure, STATUSES};
use crate::handover;
use crate::invoked::{Invoked, say};
use crate::target::ImageTarget;
use crate::words::{Word, Words};

/// Returns the XFS mount for a mount point, a device, or the file of a loop device, or `None` if it is not mounted.
pub(crate) fn xfs_mount(target: &Path) -> Result<Option<MountedDevice>, Failure> {
    let at = |e: Error| STATUSES.failed(format_args!("{}: {e}", target.display()));
    let mount = match MountedDevice::named(target).map_err(at)? {
        Some(mount) => Some(mount),
        None => MountedDevice::of_image(target).map_err(at)?,
    };
    match mount {
        Some(mount) if mount.format == "xfs" => Ok(Some(mount)),
        None if !target.is_dir() => Ok(None),
        _ => {
            let target = target.display();
            let message = format!("{target} is not a mounted XFS filesystem");
            Err(STATUSES.failed(message))
        }
    }
}

/// Returns the mount of a block device with an ext file system.
pub(crate) fn ext_mount(device: &Path) -> Option<MountedDevice> {
    let is_device = device.metadata().is_ok_and(|found| found.file_type().is_block_device());
    let mount = MountedDevice::named(device).ok().flatten().filter(|_| is_device);
    mount.filter(|mount| mount.format.starts_with("ext"))
}

/// Request that the kernel did not serve.
pub(crate) struct Refused {
    failure: Failure,
    /// True if the kernel lacks the request, so that another program may serve it differently.
    is_unknown: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, is_unknown: false }
    }
}

impl Refused {
    pub(crate) fn into_failure(self) -> Failure {
        self.failure
    }

    fn new(error: &Error, failure: Failure) -> Self {
        let is_unknown = [Errno::NOTTY, Errno::OPNOTSUPP]
            .contains(&Errno::from_io_error(error).unwrap_or(Errno::IO));
        Self { failure, is_unknown }
    }
}

/// Passes unsupported requests to the next program of this name.
pub(crate) fn or_next(
    served: Result<u8, Refused>,
    invoked: &Invoked,
    arguments: &[OsString],
) -> Ended {
    served.or_else(|refused| {
        let other = if refused.is_unknown { handover::run(invoked.name, arguments) } else { None };
        other.ok_or(refused.failure)
    })
}

/// Resizes a mounted file system to `blocks`, or to the size of its device.
pub(crate) fn resize(
    device: &Path,
    mount: &MountedDevice,
    blocks: Option<u64>,
    before: u64,
    block_bytes: u32,
) -> Result<u8, Refused> {
    let (name, point) = (device.display(), mount.point.display());
    let failed = |e: Error| {
        let message = match e.kind() {
            ErrorKind::PermissionDenied => "Permission denied to resize filesystem".to_owned(),
            _ => format!("While trying to resize {name}, which the kernel has mounted: {e}"),
        };
        Refused::new(&e, STATUSES.failed(message))
    };
    let room = mount.device_bytes().map_err(failed)? / u64::from(block_bytes.max(1));
    let blocks = blocks.unwrap_or(room);
    let kilobytes = block_bytes / 1024;
    if blocks == before {
        say(format_args!(
            "The filesystem is already {before} ({kilobytes}k) blocks long.  Nothing to do!"
        ));
        return Ok(0);
    }
    say(format_args!("Filesystem at {name} is mounted on {point}; on-line resizing required"));
    if blocks < before {
        let message = "On-line shrinking not supported: unmount the file system first";
        return Err(STATUSES.failed(message).into());
    }
    if blocks > room {
        return Err(STATUSES.failed(format_args!(
            "The containing partition (or device) is only {room} blocks. You requested a new size of {blocks} blocks."
        ))
        .into());
    }
    mount.open().and_then(|root| linux::mounted::resize_ext4(root, blocks)).map_err(failed)?;
    // The kernel keeps the primary superblock in the device's page cache.
    let after =
        dumpe2fs::superblock(&ImageTarget::at(device)).map_or(blocks, |found| found.blocks_count);
    say(format_args!("The filesystem on {name} is now {after} ({kilobytes}k) blocks long."));
    Ok(0)
}

/// Sets the label of a mounted file system.
pub(crate) fn set_label(mount: &MountedDevice, label: &[u8]) -> Result<(), Refused> {
    let set = mount.open().and_then(|root| linux::mounted::set_label(root, label));
    set.map_err(|e| {
        let point = mount.point.display();
        let advice =
            "unmount it to change the label, or use a kernel that supports it (ext4: 5.17, XFS: \
             4.18)";
        Refused::new(
            &e,
            STATUSES.failed(format_args!("FS_IOC_SETFSLABEL of {point}: {e}: {advice}")),
        )
    })
}

/// Serves e2label with a device and a label for a mounted device. The label ends at its first NUL.
pub(crate) fn label(arguments: &[OsString], label: &[u8], invoked: &Invoked) -> Option<Ended> {
    let mount = ext_mount(Path::new(arguments.first()?))?;
    let end = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
    let set = set_label(&mount, &label[..end]).map(|()| 0);
    Some(or_next(set, invoked, arguments))
}

/// Serves tune2fs for a mounted device. Returns `None` if the device is not mounted or there are no changes.
pub(crate) fn tune(arguments: &[OsString], invoked: &Invoked) -> Option<Ended> {
    let asked = Asked::read(arguments).ok()?;
    let device = asked.device.as_deref()?;
    if !asked.changes {
        return None;
    }
    let mount = ext_mount(device)?;
    match asked.label {
        Some(label) if !asked.changes_more => {
            // Longer labels are truncated, as in tune2fs.
            let label = &label[..label.len().min(16)];
            let set = set_label(&mount, label).and_then(|()| {
                if asked.shows {
                    dumpe2fs::show(&dumpe2fs::superblock(&ImageTarget::at(device))?);
                }
                Ok(0)
            });
            Some(or_next(set, invoked, arguments))
        }
        _ => Some(handover::run(invoked.name, arguments).ok_or_else(|| {
            STATUSES.failed(format_args!(
                "{} is mounted on {}: the kernel changes only the label (-L) of a mounted file \
                 system, and PATH has no other {}; unmount it first",
                device.display(),
                mount.point.display(),
                invoked.name
            ))
        })),
    }
}

/// Arguments of tune2fs that affect mounted file systems.
#[derive(Default)]
struct Asked {
    device: Option<std::path::PathBuf>,
    label: Option<Vec<u8>>,
    changes: bool,
    changes_more: bool,
    shows: bool,
}

impl Asked {
    fn read(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut words = Words::new(arguments.to_vec(), STATUSES, &crate::supported::TUNE2FS);
        let mut asked = Self::default();
        while let Some(word) = words.next()? {
            match word {
                Word::Operand(path) => words.only(&mut asked.device, path)?,
                Word::Option('l') => asked.shows = true,
                Word::Option('L') => (asked.changes, asked.label) = (true, Some(words.bytes()?)),
                Word::Option('f' | 'V') => {}
                Word::Option(letter) => {
                    (asked.changes, asked.changes_more) = (true, true);
                    if "cCeEgiIJmMoOQrTuUz".contains(letter) {
                        words.value()?;
                    }
                }
            }
        }
        Ok(asked)
    }
}
