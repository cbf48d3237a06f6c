//! `resize2fs`.

use std::ffi::OsString;

use diskwright::Format;
use diskwright::resize::{Least, Report, grow, plan_shrink, shrink};
use ext4::format::features::Incompat;

use crate::dumpe2fs;
use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::making::TargetFile;
use crate::size::{self, Size};
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

#[derive(Debug, Default)]
struct Args {
    image: ImageTarget,
    size: Option<Size>,
    is_least: bool,
    only_least: bool,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let Some(args) = read(arguments.clone())? else { return Ok(invoked.version()) };
    #[cfg(target_os = "linux")]
    if let Some(mount) = crate::online::ext_mount(&args.image.path).filter(|_| !args.only_least) {
        let resized = resize_mounted(&args, &mount);
        return crate::online::or_next(resized, invoked, &arguments);
    }
    let file = TargetFile::look(&args.image.path, STATUSES)?;
    let before = before(&args.image)?;
    if args.only_least {
        let planned = plan_shrink(&args.image.path, &args.image.open(), Least::Possible);
        let planned = planned.map_err(|e| STATUSES.of(&e))?;
        say(format_args!("Estimated minimum size of the filesystem: {}", planned.after.blocks));
        return Ok(0);
    }
    let Some(report) = resize(&args, &before, &file)? else {
        say(format_args!(
            "The filesystem is already {} ({}k) blocks long.  Nothing to do!",
            before.blocks,
            before.block_bytes / 1024
        ));
        return Ok(0);
    };
    say(format_args!(
        "The filesystem on {} is now {} ({}k) blocks long.",
        args.image.path.display(),
        report.after.blocks,
        report.after.block_size / 1024
    ));
    Ok(0)
}

/// Grows a mounted file system.
#[cfg(target_os = "linux")]
fn resize_mounted(
    args: &Args,
    mount: &linux::mounted::MountedDevice,
) -> Result<u8, crate::online::Refused> {
    let found = dumpe2fs::superblock(&args.image)?;
    let block = found.block_size();
    let blocks = match args.size {
        // A mounted file system cannot shrink, so let the kernel refuse it.
        _ if args.is_least => Some(0),
        Some(size) => {
            let bytes = size.bytes(block.into());
            let bytes = bytes.ok_or_else(|| STATUSES.usage("the size is too large"))?;
            Some(bytes / u64::from(block))
        }
        None => None,
    };
    crate::online::resize(&args.image.path, mount, blocks, found.blocks_count, block)
}

/// Current size of a file system.
struct Before {
    blocks: u64,
    block_bytes: u32,
}

/// Returns the size from the superblock, or after recovery if the journal may contain a newer one.
fn before(image: &ImageTarget) -> Result<Before, Failure> {
    if let Ok(sb) = dumpe2fs::superblock(image)
        && !sb.features.incompat(Incompat::RECOVER)
    {
        return Ok(Before { blocks: sb.blocks_count, block_bytes: sb.block_size() });
    }
    let info = image.open().info(&image.path).map_err(|e| STATUSES.of(&e))?;
    if info.format() == Format::Xfs {
        let name = image.path.display();
        return Err(STATUSES.failed(format_args!("{name} contains XFS; use xfs_growfs")));
    }
    Ok(Before { blocks: info.blocks, block_bytes: info.block_size })
}

/// Resizes the image. Returns `None` if there is nothing to do.
fn resize(args: &Args, before: &Before, file: &TargetFile) -> Result<Option<Report>, Failure> {
    let (path, open) = (&args.image.path, args.image.open());
    let failed = |e: diskwright::Error| STATUSES.of(&e);
    let block = u64::from(before.block_bytes);
    let (blocks, least) = if args.is_least {
        (0, Least::Possible)
    } else {
        let bytes = match args.size {
            Some(size) => {
                size.bytes(block).ok_or_else(|| STATUSES.usage("the size is too large"))?
            }
            None => file.bytes.unwrap_or(0).saturating_sub(args.image.offset),
        };
        (bytes / block, Least::Bytes(bytes / block * block))
    };
    if blocks == before.blocks {
        return Ok(None);
    }
    let report = if blocks > before.blocks {
        grow(path, &open, Some(blocks * block)).map_err(failed)?
    } else {
        let stop = diskwright::stop_on_signals().map_err(failed)?;
        let mut goes_on = |_, _| !stop.load(std::sync::atomic::Ordering::Relaxed);
        // A regular file is truncated to the new size, as by the original, because callers distribute it directly.
        shrink(path, &open, least, &mut goes_on).map_err(failed)?
    };
    Ok((!report.is_nothing()).then_some(report))
}

/// Parses the arguments. Returns `None` if only the version was requested.
fn read(arguments: Vec<OsString>) -> Result<Option<Args>, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::RESIZE2FS);
    let mut args = Args::default();
    let mut operands = Vec::new();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => operands.push(operand),
            Word::Option('V') => return Ok(None),
            Word::Option('M') => args.is_least = true,
            Word::Option('P') => args.only_least = true,
            // There is no cache to flush and no progress display, and errors cannot be overridden.
            Word::Option('f' | 'F' | 'p') => {}
            Word::Option('d') => drop(words.value()?),
            Word::Option('b' | 's') => {
                return Err(words.refused("the feature 64bit cannot be changed"));
            }
            Word::Option('S') => return Err(words.refused("stripe alignment is not implemented")),
            Word::Option('z') => {
                return Err(words.refused("e2undo cannot restore what the end of a file contained"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    let mut operands = operands.into_iter();
    match (operands.next(), operands.next(), operands.next()) {
        (Some(image), size, None) => {
            args.image = ImageTarget::parse(image, STATUSES)?;
            args.size = size.map(|text| new_size(&text)).transpose()?;
        }
        (None, ..) => return Err(STATUSES.usage("no image given")),
        (.., Some(extra)) => {
            let extra = extra.to_string_lossy();
            return Err(STATUSES.usage(format_args!("unexpected argument after the size: {extra}")));
        }
    }
    Ok(Some(args))
}

fn new_size(text: &OsString) -> Result<Size, Failure> {
    let text = text.to_string_lossy();
    size::parse(&text).map_err(|why| STATUSES.usage(format_args!("size {text}: {why}")))
}
