//! `mke2fs`, and `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`.

mod config;
mod extended;
mod profile;
mod wish;

use std::ffi::OsString;

use diskwright::build::{BuildOptions, BuildSource, Format};
use diskwright::output::{OutputFormat, OutputOptions};
use source::Xattr;
use source::correct::{Change, Glob, PermissionChange, Rule};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::making::{self, File};
use config::Config;
use profile::Profile;
use wish::Wish;

pub(crate) use wish::{UuidWish, features, uuid};

/// Bytes of what a size without a letter counts, unless the size of blocks was given.
const KIB: u64 = 1 << 10;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let wish = wish::read(arguments)?;
    if wish.only_version {
        return Ok(invoked.version());
    }
    let config = Config::load(STATUSES)?;
    let file = File::look(&wish.image, STATUSES)?;
    let bytes = size(&wish, &file)?;
    let profile = Profile::of(&wish, invoked.name, bytes, &config)?;
    let options = options(&wish, &profile, bytes)?;
    let made = if wish.is_trial {
        making::try_out(options, STATUSES)?
    } else {
        making::make(&options, &file, STATUSES)?
    };
    if !wish.is_quiet {
        tell(&made);
    }
    Ok(0)
}

fn tell(made: &diskwright::ImageInfo) {
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

fn options(wish: &Wish, profile: &Profile, bytes: u64) -> Result<BuildOptions, Failure> {
    let source = match &wish.source {
        Some(path) => BuildSource::Files(path.clone()),
        None => BuildSource::Several(Vec::new()),
    };
    let mut options = BuildOptions::new(source, &wish.image, Format::Ext4);
    options.size = Some(bytes);
    options.force = true;
    options.label = wish.label.clone();
    options.last_mounted = wish.last_mounted.clone();
    options.features = profile.features.clone();
    options.block_size = wish.block_size.or(profile.block_size);
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
    options.corrections.rules = root_rules(wish);
    options.output = output(wish);
    making::set_times(&mut options, STATUSES)?;
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
fn root_rules(wish: &Wish) -> Vec<Rule> {
    let mut changes = Vec::new();
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
