//! `mke2fs`, and `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`.

mod args;
mod config;
mod conflicts;
mod decompress;
mod device_test;
mod extended;
mod journal_device;
mod keys;
mod profile;
mod quota;
mod tuning;
mod values;

pub(crate) use self::extended::{fast_commit_bytes, place};

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use diskwright::build::{BuildOptions, BuildSource, Format};
use diskwright::output::{OutputFormat, OutputOptions};
use import::Xattr;
use import::correct::{AttributeChange, Glob, PermissionChange, Rule};

use crate::failure::{Ended, Failure, STATUSES};
use crate::foreign;
use crate::invoked::{Invoked, say, say_all};
use crate::making::{self, Sectors, TargetFile};
use args::{Args, BlockSize};
use config::Config;
use decompress::Decompressed;
use profile::{Profile, Subject};
use quota::Quotas;

pub(crate) use args::{UuidWish, errors_behaviour, features, uuid};

/// `EXT2_FLAGS_TEST_FILESYS`: may be mounted by a driver in development.
pub(crate) const TEST_FILE_SYSTEM: u32 = 4;

/// Permissions of the root directory, independent of the source.
const ROOT_PERMISSIONS: u16 = 0o755;

/// Default sector size in bytes.
const SECTOR_BYTES: u32 = 512;

/// Unit of sizes without a letter, unless the block size was given.
const KIB: u64 = 1 << 10;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut args = args::read(arguments)?;
    if args.only_version {
        return Ok(invoked.version());
    }
    let config = Config::load(STATUSES)?;
    remark(invoked.name, config.remarks());
    let file = TargetFile::look(&args.image, STATUSES)?;
    if !args.is_forced && !args.is_trial && !may_overwrite(&args.image, delay(&config)?) {
        return Ok(1);
    }
    journal_device::take_block_size(&mut args)?;
    let bytes = size(&mut args, &file)?;
    let sector = file.sectors.map(|Sectors { logical, .. }| logical);
    let sector = sector.filter(|bytes| *bytes > SECTOR_BYTES);
    let subject = Subject { name: invoked.name, bytes, sector };
    let profile = Profile::of(&mut args, subject, &config)?;
    remark(invoked.name, &args.remarks);
    remark(invoked.name, &profile.remarks);
    if journal_device::is_asked(&profile.features) {
        journal_device::make(&args, &profile, &file, bytes)?;
        return Ok(0);
    }
    let quotas = Quotas::of(&args, &profile)?;
    let archive = Decompressed::start(args.source.as_deref().filter(|_| !args.is_trial))?;
    let options = options(&args, &profile, (&quotas, &archive), bytes)?;
    let made = if args.is_trial {
        Some(making::try_out(options, STATUSES)?)
    } else {
        if args.test > 0 {
            device_test::test(&args.image, options.offset, bytes, args.test > 1)?;
        }
        let made = making::make(&options, &file, STATUSES)?;
        archive.finish()?;
        quotas.make(&options)?;
        made
    };
    if !args.is_quiet {
        tell(&args.image, made.as_ref());
    }
    Ok(0)
}

/// Prints remarks on standard error.
fn remark(name: &str, remarks: &[String]) {
    for remark in remarks {
        let _ = writeln!(io::stderr(), "{name}: {}", diskwright::text::safe(remark));
    }
}

/// Returns the maximum wait for an answer, if limited.
fn delay(config: &Config) -> Result<Option<Duration>, Failure> {
    let number = |name: &str| {
        let Some(text) = config.option(name) else { return Ok(0) };
        let wrong = |_| STATUSES.failed(format_args!("mke2fs.conf: {name} cannot be {text:?}"));
        text.parse::<i64>().map_err(wrong)
    };
    // All writes are flushed at the end.
    number("sync_kludge")?;
    let seconds = u64::try_from(number("proceed_delay")?).unwrap_or(0);
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// Asks on a terminal whether to overwrite existing contents. Without a terminal there is no question, as in the
/// original. Without an answer, they are overwritten after `delay`.
fn may_overwrite(image: &Path, delay: Option<Duration>) -> bool {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return true;
    }
    let Some(old) = foreign::find(image) else { return true };
    say(format_args!("{}", old.line_of_mke2fs(image)));
    match delay {
        Some(delay) => {
            let seconds = delay.as_secs();
            say_all(&format!("Proceed anyway (or wait {seconds} seconds to proceed) ? (y,N) "));
        }
        None => say_all("Proceed anyway? (y,N) "),
    }
    let _ = io::stdout().flush();
    let (sender, receiver) = std::sync::mpsc::channel();
    // The thread ends with the program if no answer comes.
    let read = move || {
        let mut answer = String::new();
        let _ = io::stdin().read_line(&mut answer);
        let _ = sender.send(answer);
    };
    // If no thread can be started, this counts as no answer, as at the end of input.
    let _ = std::thread::Builder::new().spawn(read);
    let answer = match delay {
        Some(delay) => match receiver.recv_timeout(delay) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return true,
            answer => answer.unwrap_or_default(),
        },
        None => receiver.recv().unwrap_or_default(),
    };
    answer.trim_start().starts_with(['y', 'Y'])
}

fn tell(image: &Path, made: Option<&diskwright::ImageInfo>) {
    let Some(made) = made else {
        // The properties of an image in another format cannot be read.
        say(format_args!("created {} in the sparse format of Android", image.display()));
        return;
    };
    say(format_args!(
        "created {} with {} {}k blocks and {} inodes",
        made.format_name(),
        made.blocks,
        made.block_size / 1024,
        made.inodes
    ));
    say(format_args!("Filesystem UUID: {}", made.uuid_text()));
}

/// Returns the size of the file system in bytes: the given one, or that of the file after the offset.
fn size(args: &mut Args, file: &TargetFile) -> Result<u64, Failure> {
    let unit = match args.block_size {
        Some(BlockSize::Given(bytes)) => bytes.into(),
        _ => KIB,
    };
    let offset = args.extended.offset;
    let Some(size) = args.size else {
        let rest = file.bytes.map(|bytes| bytes.saturating_sub(offset));
        let bytes = rest.filter(|bytes| *bytes > 0).ok_or_else(|| {
            STATUSES.failed(format_args!(
                "{} is empty: write a size after its name",
                args.image.display()
            ))
        })?;
        if offset > 0 {
            let blocks = bytes / KIB;
            args.remarks.push(format!(
                "Warning: offset specified without an explicit file system size; using all \
                 {blocks} KiB after the offset"
            ));
        }
        return Ok(bytes);
    };
    let too_large = || STATUSES.usage("the size is too large");
    size.bytes(unit).ok_or_else(too_large)
}

fn options(
    args: &Args,
    profile: &Profile,
    (quotas, archive): (&Quotas, &Decompressed),
    bytes: u64,
) -> Result<BuildOptions, Failure> {
    let source = match archive.source() {
        Some(path) => BuildSource::Files(path.to_owned()),
        None => BuildSource::Several(Vec::new()),
    };
    let mut options = BuildOptions::new(source, &args.image, Format::Ext4)
        .force(true)
        .in_place(true)
        .sparse(true)
        .size(bytes)
        .offset(args.extended.offset)
        .block_size(profile.block_size)
        .no_xattrs(args.extended.has_no_xattrs)
        .features(quotas.without(&profile.features))
        .tuning(quotas.with_inode(&profile.tuning));
    options.label = args.label.clone();
    options.last_mounted = args.last_mounted.clone();
    options.inode_size = Some(profile.inode_size);
    options.inodes = args.inodes;
    options.bytes_per_inode = match (args.inodes, args.bytes_per_inode) {
        (Some(_), _) => None,
        (None, Some(bytes)) => Some(bytes),
        // The default, but more if the source requires it.
        (None, None) => {
            Some(profile.bytes_per_inode).filter(|bytes| *bytes != making::INODE_RATIO_USUAL)
        }
    };
    options.reserved_percent = args.reserved_percent.or(profile.reserved_percent);
    options.journal_bytes = args.journal_bytes;
    options.log_device.clone_from(&args.journal_device);
    options.keeps_journal = args.journal_device.is_some();
    options.output = output(args);
    making::set_times(&mut options, STATUSES)?;
    options.corrections.rules = root_rules(args, options.time.or(options.source_date_epoch));
    let is_random = !making::is_reproducible(&options);
    let random = || is_random.then(making::random_uuid);
    options.uuid = match args.uuid {
        Some(UuidWish::Given(uuid)) => Some(uuid),
        Some(UuidWish::Random) => Some(making::random_uuid()),
        None => random(),
    };
    options.hash_seed = args.extended.hash_seed.or_else(random);
    Ok(options)
}

/// Returns the rules for the root directory.
fn root_rules(args: &Args, time: Option<i64>) -> Vec<Rule> {
    let mut changes = Vec::new();
    // With a directory as source, the root gets only these attributes. An archive has an entry for the root.
    if args.source.as_ref().is_some_and(|source| source.is_dir()) {
        changes.push(AttributeChange::Owner { uid: Some(0), gid: Some(0) });
        changes.push(AttributeChange::Permissions(PermissionChange::new(|_, _| ROOT_PERMISSIONS)));
        if let Some(sec) = time.or_else(|| vfs::clock::now().map(|now| now.sec)) {
            changes.push(AttributeChange::Time(import::Time { sec, nsec: 0 }));
        }
    }
    if let Some(owner) = args.extended.root_owner {
        changes.push(AttributeChange::Owner { uid: Some(owner.uid), gid: Some(owner.gid) });
    }
    if let Some(bits) = args.extended.root_permissions {
        changes.push(AttributeChange::Permissions(PermissionChange::new(move |_, _| bits)));
    }
    if let Some(label) = &args.extended.root_selinux {
        let value = [label, &b"\0"[..]].concat();
        changes.push(AttributeChange::Xattr(Xattr { name: b"security.selinux".to_vec(), value }));
    }
    let root = |change| Some(Rule { glob: Glob::parse("/").ok()?, change });
    changes.into_iter().filter_map(root).collect()
}

fn output(args: &Args) -> OutputOptions {
    let mut output = OutputOptions::default();
    if args.extended.is_android_sparse {
        output.format = OutputFormat::Sparse;
    }
    output
}
