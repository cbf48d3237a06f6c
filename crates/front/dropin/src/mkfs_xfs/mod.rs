//! `mkfs.xfs`.

mod args;
mod config;
mod settings;
mod stripes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskwright::build::{BuildOptions, BuildSource, Format};

use crate::failure::{Ended, Failure, STATUSES};
use crate::foreign;
use crate::invoked::{Invoked, say};
use crate::making::{self, Sectors, TargetFile};
use crate::xfs_geometry::XfsGeometry;
use args::Args;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let args = args::read(arguments)?;
    if args.only_version {
        return Ok(invoked.version());
    }
    let file = TargetFile::look(&args.image, STATUSES)?;
    if !args.is_forced && !args.is_trial {
        refuse_to_overwrite(&args)?;
    }
    let bytes = args.bytes.or(file.bytes.filter(|bytes| *bytes > 0));
    let bytes = bytes.ok_or_else(|| {
        let image = args.image.display();
        STATUSES.failed(format_args!("{image} is empty: add -d size="))
    })?;
    check_size(&args, &file, bytes)?;
    check_log(&args)?;
    check_realtime(&args)?;
    if let Some(config) = &args.new_config {
        return config::write(&args, config);
    }
    if args.is_unsupported && !args.is_quiet {
        say(format_args!("Filesystems formatted with --unsupported are not supported!!"));
    }
    let mut options = options(&args, &file, bytes)?;
    let mut geometry = if args.is_trial {
        let directory = tempfile::tempdir().map_err(|e| STATUSES.failed(e))?;
        options.image = directory.path().join("image");
        let trial = |device: &Option<PathBuf>, name| trial_device(device, directory.path(), name);
        options.log_device = trial(&options.log_device, "log")?;
        options.realtime_device = trial(&options.realtime_device, "realtime")?;
        options.source = BuildSource::Several(Vec::new());
        making::make_shipped(&options, STATUSES)?;
        XfsGeometry::of_image(&options.image)?
    } else {
        if !args.is_file {
            making::make(&options, &file, STATUSES)?;
        } else {
            making::make_shipped(&options, STATUSES)?;
        }
        XfsGeometry::of_image(&args.image)?
    };
    if let Some(device) = &args.log_device {
        geometry.name_log(device);
    }
    if let Some(device) = &args.realtime_device {
        geometry.name_realtime(device);
    }
    if !args.is_quiet {
        geometry.show(&args.image);
    }
    Ok(0)
}

/// Minimum file system size of mkfs.xfs in bytes.
const SUPPORTED_BYTES_MIN: u64 = 300 << 20;

/// Rejects a size that exceeds the file or device, or is not supported.
fn check_size(args: &Args, file: &TargetFile, bytes: u64) -> Result<(), Failure> {
    let room = file.bytes.filter(|room| *room > 0 && !args.is_file && *room < bytes);
    if let Some(room) = room {
        let blocks = room / u64::from(args.block_bytes());
        return Err(STATUSES.failed(format_args!(
            "size {bytes} specified for data subvolume is too large, maximum is {blocks} blocks; -d file,size={bytes} \
             makes a file that long"
        )));
    }
    if bytes < SUPPORTED_BYTES_MIN && !is_small(args) {
        return Err(STATUSES.failed(
            "Filesystem must be larger than 300MiB. Smaller ones are slow and not well tested; use \
             --unsupported to create one",
        ));
    }
    Ok(())
}

/// Rejects a log device that has contents, or is too short for the log.
fn check_log(args: &Args) -> Result<(), Failure> {
    let Some(device) = &args.log_device else { return Ok(()) };
    let room = TargetFile::look(device, STATUSES)?.bytes.unwrap_or(0);
    let name = device.display();
    if let Some(bytes) = args.log_bytes()?.filter(|bytes| *bytes > room) {
        let blocks = room / u64::from(args.block_bytes());
        return Err(STATUSES.failed(format_args!(
            "size {bytes} specified for log subvolume is too large, maximum is {blocks} blocks of {name}"
        )));
    }
    match foreign::find(device) {
        Some(old) if !args.is_forced && !args.is_trial => {
            Err(STATUSES.failed(old.refused_by_xfs(device)))
        }
        _ => Ok(()),
    }
}

/// Rejects a realtime device that has contents, or is too short for the section.
fn check_realtime(args: &Args) -> Result<(), Failure> {
    let Some(device) = &args.realtime_device else { return Ok(()) };
    let room = TargetFile::look(device, STATUSES)?.bytes.unwrap_or(0);
    let name = device.display();
    if let Some(bytes) = args.realtime_bytes()?.filter(|bytes| *bytes > room) {
        let blocks = room / u64::from(args.block_bytes());
        return Err(STATUSES.failed(format_args!(
            "size {bytes} specified for rt subvolume is too large, maximum is {blocks} blocks of {name}"
        )));
    }
    match foreign::find(device) {
        Some(old) if !args.is_forced && !args.is_trial => {
            Err(STATUSES.failed(old.refused_by_xfs(device)))
        }
        _ => Ok(()),
    }
}

/// Returns an empty file as long as another device, for a trial.
fn trial_device(
    device: &Option<PathBuf>,
    directory: &Path,
    name: &str,
) -> Result<Option<PathBuf>, Failure> {
    let Some(device) = device else { return Ok(None) };
    let path = directory.join(name);
    let bytes = TargetFile::look(device, STATUSES)?.bytes.unwrap_or(0);
    let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
    made.map_err(|e| STATUSES.failed(e))?;
    Ok(Some(path))
}

/// Returns whether the option or the environment of xfstests requests unsupported sizes.
fn is_small(args: &Args) -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    args.is_unsupported || ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"].into_iter().all(is_set)
}

/// Rejects overwriting existing contents without `-f`.
fn refuse_to_overwrite(args: &Args) -> Result<(), Failure> {
    match foreign::find(&args.image) {
        Some(old) => Err(STATUSES.failed(old.refused_by_xfs(&args.image))),
        None => Ok(()),
    }
}

/// Returns the sector size: the given one, which must be at least the device's, or the device's own.
fn sector_size(args: &Args, file: &TargetFile) -> Result<Option<u32>, Failure> {
    let Some(Sectors { logical, physical }) = file.sectors else { return Ok(args.sector_size) };
    match args.sector_size {
        Some(given) if given < logical => Err(STATUSES.failed(format_args!(
            "illegal sector size {given}; hw sector is {logical}; leave -s size= out"
        ))),
        Some(given) => Ok(Some(given)),
        // A block cannot be smaller than a sector.
        None if args.block_size.is_some_and(|block| block < physical) => Ok(Some(logical)),
        None => Ok(Some(physical)),
    }
}

fn options(args: &Args, file: &TargetFile, bytes: u64) -> Result<BuildOptions, Failure> {
    let source = args.source.clone().unwrap_or(BuildSource::Several(Vec::new()));
    let mut options = BuildOptions::new(source, &args.image, Format::Xfs);
    options.size = Some(bytes);
    options.force = true;
    options.in_place = true;
    options.label = args.label.clone();
    options.features = args.features.clone();
    options.xfs_quota_flags = args.quota_flags;
    options.xfs_autofsck = args.autofsck();
    options.xfs_stripe = args.stripes.stripe(args.block_bytes())?;
    options.xfs_atomic_write_bytes = args.atomic_write_bytes()?;
    options.xfs_only_supported = !is_small(args);
    options.block_size = args.block_size;
    options.inode_size = args.inode_size()?;
    options.dir_block_size = args.dir_block_size;
    options.log_stripe_bytes = args.log_stripe;
    options.access_times = args.access_times;
    options.small = is_small(args);
    options.sector_size = sector_size(args, file)?;
    options.inodes_percent = args.inodes_percent;
    options.ag_count = args.ag_count;
    options.ag_bytes = args.ag_bytes()?;
    options.log_bytes = args.log_bytes()?;
    options.log_group = args.log_group;
    options.log_device.clone_from(&args.log_device);
    options.realtime_device.clone_from(&args.realtime_device);
    options.realtime_bytes = args.realtime_bytes()?;
    options.realtime_extent_bytes = args.realtime_extent_bytes()?;
    options.realtime_group_bytes = args.realtime_group_bytes()?;
    options.realtime_group_count = args.realtime_groups;
    options.inherited = args.inherited;
    making::set_times(&mut options, STATUSES)?;
    let is_random = !making::is_reproducible(&options);
    let random = || is_random.then(making::random_uuid);
    options.uuid = args.uuid.or_else(random);
    Ok(options)
}
