//! `mke2fs`, and `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`.

mod config;
mod extended;
mod profile;
mod wish;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use diskwright::OpenImage;
use diskwright::build::{BuildOptions, BuildSource, Format};
use diskwright::output::{OutputFormat, OutputOptions};
use diskwright::tune::change_superblock;
use ext4::format::superblock::RawSuperblock;
use source::Xattr;
use source::correct::{Change, Glob, PermissionChange, Rule};

use crate::failure::{Ended, Failure, STATUSES};
use crate::foreign;
use crate::invoked::{Invoked, say, say_all};
use crate::making::{self, File, Sectors};
use config::Config;
use profile::Profile;
use wish::Wish;

pub(crate) use wish::{UuidWish, errors_behaviour, features, uuid};

/// `s_errors`: go on, which is usual.
const ERRORS_CONTINUE: u16 = 1;
/// `EXT2_FLAGS_TEST_FILESYS`: it may be used by a driver that is being developed.
pub(crate) const TEST_FILE_SYSTEM: u32 = 4;

/// Permissions that the root directory has whatever those of the source are.
const ROOT_PERMISSIONS: u16 = 0o755;

/// Sizes of sectors and blocks of usual devices.
const SECTOR_BYTES: u32 = 512;
const BLOCK_BYTES: u32 = 4096;

/// Bytes of what a size without a letter counts, unless the size of blocks was given.
const KIB: u64 = 1 << 10;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let wish = wish::read(arguments)?;
    if wish.only_version {
        return Ok(invoked.version());
    }
    let config = Config::load(STATUSES)?;
    let file = File::look(&wish.image, STATUSES)?;
    if !wish.is_forced && !wish.is_trial && !may_overwrite(&wish.image) {
        return Ok(1);
    }
    let bytes = size(&wish, &file)?;
    let profile = Profile::of(&wish, invoked.name, bytes, &config)?;
    let options = options(&wish, &profile, &file, bytes)?;
    let hints = Hints::of(&wish)?;
    let made = if wish.is_trial {
        making::try_out(options, STATUSES)?
    } else {
        let made = making::make(&options, &file, STATUSES)?;
        hints.write(&wish.image)?;
        made
    };
    if !wish.is_quiet {
        tell(&wish.image, &made);
    }
    Ok(0)
}

/// Asks on a terminal whether old contents are to be overwritten. Programs are not asked, as by the original.
fn may_overwrite(image: &Path) -> bool {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return true;
    }
    let Some(old) = foreign::find(image) else { return true };
    say(format_args!("{}", old.line_of_mke2fs(image)));
    say_all("Proceed anyway? (y,N) ");
    let _ = io::stdout().flush();
    let mut answer = String::new();
    let _ = io::stdin().read_line(&mut answer);
    answer.trim_start().starts_with(['y', 'Y'])
}

/// The size of a block: the given one, which must not be smaller than a sector of the device, or the usual one.
fn block_size(wish: &Wish, profile: &Profile, file: &File) -> Result<Option<u32>, Failure> {
    let Some(Sectors { logical, .. }) = file.sectors else {
        return Ok(wish.block_size.or(profile.block_size));
    };
    match wish.block_size {
        Some(given) if given < logical => Err(STATUSES.failed(format_args!(
            "Invalid argument while setting blocksize; too small for device ({logical}-byte sectors)"
        ))),
        Some(given) => Ok(Some(given)),
        None if logical > SECTOR_BYTES => {
            Ok(Some(profile.block_size.unwrap_or(BLOCK_BYTES).max(logical)))
        }
        None => Ok(profile.block_size),
    }
}

/// What the superblock has beside the layout, for those who use the file system.
struct Hints {
    errors: Option<u16>,
    stride: Option<u16>,
    stripe_width: Option<u32>,
    is_test: bool,
}

impl Hints {
    fn of(wish: &Wish) -> Result<Self, Failure> {
        let extended = &wish.extended;
        let hints = Self {
            errors: wish.errors.filter(|errors| *errors != ERRORS_CONTINUE),
            stride: extended.stride,
            stripe_width: extended.stripe_width,
            is_test: extended.is_test,
        };
        if extended.is_android_sparse && !hints.is_none() {
            return Err(STATUSES.refused(
                "-E android_sparse with -e, stride, stripe_width or test_fs",
                "they are written into an image as it lies",
            ));
        }
        Ok(hints)
    }

    fn is_none(&self) -> bool {
        let has_numbers = self.stride.is_some() || self.stripe_width.is_some();
        self.errors.is_none() && !has_numbers && !self.is_test
    }

    fn write(&self, image: &Path) -> Result<(), Failure> {
        if self.is_none() {
            return Ok(());
        }
        let mut change = |raw: &mut RawSuperblock| {
            raw.errors = self.errors.unwrap_or(raw.errors.get()).into();
            raw.raid_stride = self.stride.unwrap_or(raw.raid_stride.get()).into();
            raw.raid_stripe_width = self.stripe_width.unwrap_or(raw.raid_stripe_width.get()).into();
            if self.is_test {
                raw.flags = (raw.flags.get() | TEST_FILE_SYSTEM).into();
            }
            Ok(())
        };
        let changed = change_superblock(image, &OpenImage::default(), &mut change);
        changed.map_err(|e| STATUSES.of(&e))
    }
}

fn tell(image: &Path, made: &diskwright::ImageInfo) {
    if made.format.is_empty() {
        // What is not an image as it lies says nothing of itself.
        say(format_args!("made {} in the sparse format of Android", image.display()));
        return;
    }
    say(format_args!(
        "made {} with {} {}k blocks and {} inodes",
        made.format,
        made.blocks,
        made.block_size / 1024,
        made.inodes
    ));
    say(format_args!("Filesystem UUID: {}", made.uuid));
}

/// The size of the file system in bytes: what was asked for, or that of the file.
fn size(wish: &Wish, file: &File) -> Result<u64, Failure> {
    let unit = wish.block_size.map_or(KIB, u64::from);
    let Some(size) = wish.size else {
        return file.bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
            STATUSES.failed(format_args!(
                "{} has no size yet: write one after its name",
                wish.image.display()
            ))
        });
    };
    let too_large = || STATUSES.usage("the size is too large");
    size.bytes(unit).ok_or_else(too_large)
}

fn options(
    wish: &Wish,
    profile: &Profile,
    file: &File,
    bytes: u64,
) -> Result<BuildOptions, Failure> {
    let source = match &wish.source {
        Some(path) => BuildSource::Files(path.clone()),
        None => BuildSource::Several(Vec::new()),
    };
    let mut options = BuildOptions::new(source, &wish.image, Format::Ext4);
    options.size = Some(bytes);
    options.force = true;
    options.in_place = true;
    options.label = wish.label.clone();
    options.last_mounted = wish.last_mounted.clone();
    options.features = profile.features.clone();
    options.block_size = block_size(wish, profile, file)?;
    options.inode_size = wish.inode_size.or(profile.inode_size);
    options.inodes = wish.inodes;
    options.bytes_per_inode = match (wish.inodes, wish.bytes_per_inode) {
        (Some(_), _) => None,
        (None, Some(bytes)) => Some(bytes),
        // As usual, but as many as the source calls for.
        (None, None) => profile.bytes_per_inode.filter(|bytes| *bytes != making::INODE_RATIO_USUAL),
    };
    options.reserved_percent = wish.reserved_percent.or(profile.reserved_percent);
    options.journal_bytes = wish.journal_bytes;
    options.output = output(wish);
    making::set_times(&mut options, STATUSES)?;
    options.corrections.rules = root_rules(wish, options.time.or(options.source_date_epoch));
    let is_random = !making::is_reproducible(&options);
    let random = || is_random.then(making::random_uuid);
    options.uuid = match wish.uuid {
        Some(UuidWish::Given(uuid)) => Some(uuid),
        Some(UuidWish::Random) => Some(making::random_uuid()),
        None => random(),
    };
    options.hash_seed = wish.extended.hash_seed.or_else(random);
    Ok(options)
}

/// What is said of the root directory alone.
fn root_rules(wish: &Wish, time: Option<i64>) -> Vec<Rule> {
    let mut changes = Vec::new();
    // A directory gives the root its attributes only; an archive has an entry for the root.
    if wish.source.as_ref().is_some_and(|source| source.is_dir()) {
        changes.push(Change::Owner { uid: Some(0), gid: Some(0) });
        changes.push(Change::Permissions(PermissionChange::new(|_, _| ROOT_PERMISSIONS)));
        if let Some(sec) = time.or_else(|| vfs::clock::now().map(|now| now.sec)) {
            changes.push(Change::Time(source::Time { sec, nsec: 0 }));
        }
    }
    if let Some(owner) = wish.root_owner {
        changes.push(Change::Owner { uid: Some(owner.uid), gid: Some(owner.gid) });
    }
    if let Some(bits) = wish.extended.root_permissions {
        changes.push(Change::Permissions(PermissionChange::new(move |_, _| bits)));
    }
    if let Some(label) = &wish.extended.root_selinux {
        let value = [label, &b"\0"[..]].concat();
        changes.push(Change::Xattr(Xattr { name: b"security.selinux".to_vec(), value }));
    }
    let root = |change| Some(Rule { glob: Glob::parse("/").ok()?, change });
    changes.into_iter().filter_map(root).collect()
}

fn output(wish: &Wish) -> OutputOptions {
    let mut output = OutputOptions::default();
    if wish.extended.is_android_sparse {
        output.format = OutputFormat::Sparse;
    }
    output
}
