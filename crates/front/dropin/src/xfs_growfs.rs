//! `xfs_growfs` and `xfs_info`, on images, devices and mounted file systems.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskwright::ImageOptions;
use diskwright::resize::{grow, grow_realtime};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::supported;
use crate::words::{Word, Words};
use crate::xfs_geometry::XfsGeometry;

#[derive(Default)]
struct Args {
    target: PathBuf,
    blocks: Option<u64>,
    inodes_percent: Option<u32>,
    only_look: bool,
    only_version: bool,
    /// Failure for an option that neither images nor ioctls support.
    refused: Option<Failure>,
    /// Failure for growing the realtime section of a mounted file system.
    realtime: Option<Failure>,
    realtime_blocks: Option<u64>,
    realtime_device: Option<PathBuf>,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut args = read(arguments.clone())?;
    if args.only_version {
        return Ok(invoked.version());
    }
    #[cfg(target_os = "linux")]
    match (crate::online::xfs_mount(&args.target), args.refused.take()) {
        (Ok(Some(_)), Some(refused)) => {
            return crate::handover::run(invoked.name, &arguments).ok_or(refused);
        }
        (_, Some(refused)) => return Err(refused),
        (mount, None) => match (mount?, args.realtime.take()) {
            (Some(_), Some(refused)) => {
                return crate::handover::run(invoked.name, &arguments).ok_or(refused);
            }
            (Some(mount), None) => return grow_mounted(&args, &mount),
            (None, Some(_)) => return grow_realtime_of(&args),
            (None, None) => {}
        },
    }
    #[cfg(not(target_os = "linux"))]
    if let Some(refused) = args.refused.take() {
        return Err(refused);
    }
    #[cfg(not(target_os = "linux"))]
    if args.realtime.is_some() {
        return grow_realtime_of(&args);
    }
    if args.inodes_percent.is_some() {
        return Err(STATUSES.refused("-m", "only the data section of an image can grow"));
    }
    grow_image(&args)
}

fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::XFS_GROWFS);
    let (mut args, mut target) = (Args::default(), None);
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => {
                let only = words.only(&mut target, path);
                only.map_err(|error| args.refused.take().unwrap_or(error))?;
            }
            Word::Option('D') => args.blocks = Some(words.parsed()?),
            Word::Option('m') => args.inodes_percent = Some(words.by(percent)?),
            Word::Option('n') => args.only_look = true,
            // The data section is the default.
            Word::Option('d') => {}
            Word::Option('V') => args.only_version = true,
            Word::Option(letter @ ('r' | 'R')) => {
                args.realtime = Some(words.refused("the data section of a mount can grow"));
                if letter == 'R' {
                    args.realtime_blocks = Some(words.parsed()?);
                }
            }
            Word::Option(supported::RT_DEVICE) => args.realtime_device = Some(words.path()?),
            Word::Option(letter @ ('e' | 'i' | 'l' | 'L' | 'p' | 't' | 'x')) => {
                args.refused = Some(words.refused("only the data and realtime sections can grow"));
                if matches!(letter, 'e' | 'L' | 'p' | 't') {
                    words.value()?;
                }
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    if !args.only_version {
        args.target = words.named(target)?;
    }
    Ok(args)
}

fn percent(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "write 0 to 100".into())
}

fn grow_image(args: &Args) -> Ended {
    let before = XfsGeometry::of_image(&args.target)?;
    before.show(&args.target);
    if args.only_look {
        return Ok(0);
    }
    let bytes = in_bytes(args.blocks, before.block_size)?;
    let report = grow(&args.target, &ImageOptions::default(), bytes);
    let report = report.map_err(|e| STATUSES.of(&e))?;
    if report.is_nothing() {
        say(format_args!("data size unchanged, skipping"));
    } else {
        let (before, after) = (report.before.blocks, report.after.blocks);
        say(format_args!("data blocks changed from {before} to {after}"));
    }
    Ok(0)
}

/// Converts a number of blocks to bytes.
fn in_bytes(blocks: Option<u64>, block_size: u32) -> Result<Option<u64>, Failure> {
    let bytes = blocks.map(|blocks| {
        let bytes = blocks.checked_mul(block_size.into());
        bytes.ok_or_else(|| STATUSES.usage("the size is too large"))
    });
    bytes.transpose()
}

/// Grows the realtime section of an image.
fn grow_realtime_of(args: &Args) -> Ended {
    if args.blocks.is_some() || args.inodes_percent.is_some() {
        return Err(STATUSES.usage("-r and -R exclude -D and -m on an image"));
    }
    let mut before = XfsGeometry::of_image(&args.target)?;
    if let Some(device) = &args.realtime_device {
        before.name_realtime(device);
    }
    before.show(&args.target);
    if args.only_look {
        return Ok(0);
    }
    let bytes = in_bytes(args.realtime_blocks, before.block_size)?;
    let mut options = ImageOptions::default();
    options.devices.realtime.clone_from(&args.realtime_device);
    let report = grow_realtime(&args.target, &options, bytes);
    let report = report.map_err(|e| STATUSES.of(&e))?;
    if report.is_nothing() {
        say(format_args!("realtime size unchanged, skipping"));
    } else {
        let (before, after) = (report.before.blocks, report.after.blocks);
        say(format_args!("realtime blocks changed from {before} to {after}"));
    }
    Ok(0)
}

/// Grows a mounted file system through the kernel.
#[cfg(target_os = "linux")]
fn grow_mounted(args: &Args, mount: &linux::mounted::MountedDevice) -> Ended {
    let before = XfsGeometry::of_mount(mount)?;
    before.show(&mount.source);
    if args.only_look {
        return Ok(0);
    }
    let failed = |e: std::io::Error| {
        STATUSES.failed(format_args!("XFS_IOC_FSGROWFSDATA of {}: {e}", mount.point.display()))
    };
    let room = mount.device_bytes().map_err(failed)? / u64::from(before.block_size.max(1));
    let blocks = match (args.blocks, args.inodes_percent) {
        (Some(blocks), _) => blocks,
        // Only the limit changes.
        (None, Some(_)) => before.blocks,
        (None, None) => room,
    };
    if blocks > room {
        let message = format!("data size {blocks} too large, maximum is {room}");
        return Err(STATUSES.failed(message));
    }
    let percent = args.inodes_percent.unwrap_or(before.inodes_percent);
    if blocks == before.blocks && percent == before.inodes_percent {
        say(format_args!("data size unchanged, skipping"));
        return Ok(0);
    }
    mount
        .open()
        .and_then(|root| linux::mounted::grow_xfs(root, blocks, percent))
        .map_err(failed)?;
    let after = XfsGeometry::of_mount(mount)?;
    if after.blocks != before.blocks {
        let (before, after) = (before.blocks, after.blocks);
        say(format_args!("data blocks changed from {before} to {after}"));
    }
    if after.inodes_percent != before.inodes_percent {
        let (before, after) = (before.inodes_percent, after.inodes_percent);
        say(format_args!("inode max percent changed from {before} to {after}"));
    }
    Ok(0)
}

/// Shows the geometry of an image, a device or a mounted file system.
pub(crate) fn info(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES, &supported::XFS_INFO);
    let mut target = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut target, path)?,
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option('t') => return Err(words.refused("the kernel's table of mounts is read")),
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    let target = words.named(target)?;
    show(&target)?;
    Ok(0)
}

fn show(target: &Path) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if let Some(mount) = crate::online::xfs_mount(target)? {
        XfsGeometry::of_mount(&mount)?.show(&mount.source);
        return Ok(());
    }
    XfsGeometry::of_image(target)?.show(target);
    Ok(())
}
