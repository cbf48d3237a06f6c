//! `-O journal_dev`: a journal on its own device, without a file system.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use diskwright::build::{BuildOptions, BuildSource, FeatureChange, Format};
use diskwright::open_other_device;
use ext4::format::journal_device::{JournalDevice, JournalDeviceOptions};
use vfs::Timestamp;

use super::args::{Args, BlockSize, UuidWish};
use super::profile::Profile;
use super::values::has;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say;
use crate::making::{self, TargetFile};

/// Name of the feature.
const FEATURE: &str = "journal_dev";

/// Returns whether the last change of the feature turns it on.
pub(super) fn is_asked(features: &[FeatureChange]) -> bool {
    features.iter().rfind(|change| change.name == FEATURE).is_some_and(|change| change.is_on)
}

/// Uses the block size of the journal device of `-J device=`, unless one is given.
pub(super) fn take_block_size(args: &mut Args) -> Result<(), Failure> {
    let Some(path) = &args.journal_device else { return Ok(()) };
    let journal = read(path)?;
    match args.block_size {
        Some(BlockSize::Given(given)) if given != journal.block_size() => {
            let (name, size) = (path.display(), journal.block_size());
            Err(STATUSES.failed(format_args!(
                "{name} has blocks of {size} bytes, but -b {given} is given; leave -b out"
            )))
        }
        _ => {
            say(format_args!("Using journal device's blocksize: {}", journal.block_size()));
            args.block_size = Some(BlockSize::Given(journal.block_size()));
            Ok(())
        }
    }
}

/// Reads the superblock of a journal device.
fn read(path: &Path) -> Result<JournalDevice, Failure> {
    let failed =
        |e: &dyn std::fmt::Display| STATUSES.failed(format_args!("{}: {e}", path.display()));
    let device = open_other_device(path, false).map_err(|e| failed(&e))?;
    let joined = join(device).map_err(|e| failed(&e))?;
    ext4::log::read_device(&*joined).map_err(|e| failed(&e))
}

fn join(device: Arc<dyn BlockDevice>) -> std::io::Result<Arc<dyn BlockDevice>> {
    let none: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(0));
    Ok(Arc::new(JoinedDevice::new(none, Some(device), None)?))
}

/// Makes a journal device.
pub(super) fn make(
    args: &Args,
    profile: &Profile,
    file: &TargetFile,
    bytes: u64,
) -> Result<(), Failure> {
    let name = args.image.display();
    if args.source.is_some() {
        return Err(STATUSES.usage("-d: a journal device contains no files"));
    }
    if args.extended.offset > 0 || args.journal_device.is_some() {
        return Err(STATUSES.usage("-O journal_dev takes a whole device or file"));
    }
    let source = BuildSource::Several(Vec::new());
    let mut build = BuildOptions::new(source, &args.image, Format::Ext4);
    making::set_times(&mut build, STATUSES)?;
    let sec = build.time.or(build.source_date_epoch).or_else(|| vfs::clock::now().map(|t| t.sec));
    let time = Timestamp { sec: sec.unwrap_or(0), nsec: 0 };
    let random = || match making::is_reproducible(&build) {
        true => *b"journal device\x8a\x01",
        false => making::random_uuid(),
    };
    let options = JournalDeviceOptions {
        size_bytes: bytes,
        block_size: profile.block_size,
        uuid: match args.uuid {
            Some(UuidWish::Given(uuid)) => uuid,
            Some(UuidWish::Random) => making::random_uuid(),
            None => random(),
        },
        label: args.label.clone().unwrap_or_default(),
        hash_seed: args.extended.hash_seed.unwrap_or_else(random),
        has_checksum: has(&profile.features, "metadata_csum"),
        time,
    };
    let failed = |e: &dyn std::fmt::Display| STATUSES.failed(format_args!("{name}: {e}"));
    let plan = JournalDevice::plan(&options).map_err(|e| failed(&e))?;
    if !args.is_trial {
        prepare(args, file, bytes).map_err(|e| failed(&e))?;
        let device = open_other_device(&args.image, true).map_err(|e| failed(&e))?;
        let joined = join(device).map_err(|e| failed(&e))?;
        ext4::log::make_device(&*joined, &plan).map_err(|e| failed(&e))?;
    }
    if !args.is_quiet {
        let (blocks, size) = (plan.blocks, plan.block_size() / 1024);
        say(format_args!("created a journal device with {blocks} {size}k blocks"));
        say(format_args!("Filesystem UUID: {}", uuid::Uuid::from_bytes(options.uuid)));
    }
    Ok(())
}

/// Creates the file, or lengthens it to the size of the journal.
fn prepare(args: &Args, file: &TargetFile, bytes: u64) -> std::io::Result<()> {
    if file.bytes.is_some_and(|found| found >= bytes) {
        return Ok(());
    }
    let options = OpenOptions::new().write(true).create(true).truncate(false).open(&args.image)?;
    options.set_len(bytes)
}
