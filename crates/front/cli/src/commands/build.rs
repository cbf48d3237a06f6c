//! `diskwright build`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::build::{
    BuildOptions, BuildReport, BuildSource, Container, Format, ImageFile, ManifestFile, Owner,
    PlacedSource, Platform, Progress, Reference, build,
};
use diskwright::hint::Hint;
use diskwright::text::{parse_size, size};
use diskwright::{Error, Outcome, Result};
use indicatif::ProgressBar;

use super::build_corrections::CorrectionArgs;
use super::build_output;
use super::making::{MakingArgs, XFS, source_date_epoch};
use crate::commands::sources::{SourceArg, SourceArgs};
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright build rootfs/ root.img
  diskwright build rootfs.tar.zst root.img --size 4G --label root --owner 0:0
  diskwright build oci:layout:latest web.img --free 512M --config web.json
  docker save web | diskwright build docker-archive:- web.img
  diskwright build data/ data.img --features ^has_journal,+inline_data --block-size 1K
  diskwright build rootfs/ root.img --fs xfs --size 4G --features ^reflink
  diskwright build base.tar overlay/ --at srv/www site/ root.img
  diskwright build image:disk.img:2 changes/ new.img

Builds are reproducible: the same sources and options give the same bytes, for any number of threads. If the \
environment variable SOURCE_DATE_EPOCH is set (seconds since 1970), no time in the image is later. IMAGE appears \
under its name only when it is complete; a failed or interrupted build leaves nothing. --force does not replace an \
image that is mounted or in use. A GLOB with a slash matches whole paths; any other matches names in all directories.";

/// Build an image from directories, tar archives, container images and other file-system images
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    sources: SourceArgs,

    /// Select the file-system format
    #[arg(long, value_parser = super::arguments::format(), default_value = "ext4")]
    fs: Format,

    /// Set the size of the image, or "auto" for the smallest that holds the sources
    #[arg(long, value_name = "SIZE|auto", value_parser = auto_size, default_value = "auto")]
    size: AutoSize,

    /// Reserve this much free space, with --size auto
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    free: u64,

    /// Set the UUID [default: derived from the contents]
    #[arg(long, value_parser = super::arguments::uuid)]
    uuid: Option<[u8; 16]>,

    /// Set the block size: 1K, 2K or 4K for ext4, a power of two from 1K to 64K for XFS
    #[arg(long, value_name = "SIZE", value_parser = small_size)]
    block_size: Option<u32>,

    /// Set the inode size in bytes, a power of two: 128 to the block size for ext4, 512 to 2048 for XFS
    #[arg(long, value_name = "SIZE", value_parser = small_size)]
    inode_size: Option<u32>,

    /// Set the owner of all files, as numbers [default: the owners of the source]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,

    /// Restore the original names of files that extract or cp renamed with --map-names, in directory sources
    #[arg(long)]
    map_names: bool,

    /// Store blocks of zeros as holes, as mke2fs -d does. Without it, only holes of the source become holes, so that swap
    /// files keep their blocks
    #[arg(long)]
    sparse: bool,

    #[command(flatten)]
    corrections: CorrectionArgs,

    #[command(flatten)]
    making: MakingArgs,

    /// Select the platform of a container image, such as linux/arm64 or linux/arm/v7 [default: the only one, or Linux on
    /// this processor]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", help_heading = CONTAINER)]
    platform: Option<Platform>,

    /// Store each layer in its own directory, numbered from the lowest layer up, as lower directories for overlayfs
    #[arg(long, help_heading = CONTAINER)]
    overlay: bool,

    /// Write the configuration of the container image to FILE, as JSON
    #[arg(long, value_name = "FILE", help_heading = CONTAINER)]
    config: Option<PathBuf>,

    /// Limit the decompressed size of each layer [default: 1G plus 1024 times its compressed size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = CONTAINER)]
    layer_limit: Option<u64>,

    /// Create no journal, like --features ^has_journal
    #[arg(long, help_heading = EXT4)]
    no_journal: bool,

    /// Create one inode for each SIZE bytes of the image
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        conflicts_with = "inodes",
        help_heading = EXT4
    )]
    bytes_per_inode: Option<u64>,

    /// Set the number of inodes [default: those of the source and some spare ones]
    #[arg(long, value_name = "COUNT", help_heading = EXT4)]
    inodes: Option<u64>,

    /// Set the seed of directory hashes, as a UUID [default: derived from the contents]
    #[arg(long, value_name = "UUID", value_parser = super::arguments::uuid, help_heading = EXT4)]
    hash_seed: Option<[u8; 16]>,

    /// Set the directory block size, a power of two from the block size to 64K [default: the larger of 4K and the block
    /// size]
    #[arg(long, value_name = "SIZE", value_parser = small_size, help_heading = XFS)]
    dir_block_size: Option<u32>,

    /// Set the number of allocation groups [default: as mkfs.xfs]
    #[arg(long, value_name = "COUNT", conflicts_with = "ag_size", help_heading = XFS)]
    ag_count: Option<u32>,

    /// Set the size of allocation groups [default: as mkfs.xfs]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = XFS)]
    ag_size: Option<u64>,

    /// Set the size of the log [default: as mkfs.xfs]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = XFS)]
    log_size: Option<u64>,

    /// Place the log (XFS) or journal (ext4) on another file or block device, which is overwritten [default: in the
    /// image]
    #[arg(long, value_name = "FILE")]
    log_device: Option<PathBuf>,
}

/// Help heading of options for container images.
const CONTAINER: &str = "Container image options";
/// Help heading of options for ext4.
const EXT4: &str = "ext4 options";

#[derive(Clone, Copy, Debug)]
struct AutoSize(Option<u64>);

fn auto_size(text: &str) -> Result<AutoSize, String> {
    if text == "auto" { Ok(AutoSize(None)) } else { parse_size(text).map(|n| AutoSize(Some(n))) }
}

fn small_size(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("{text} is too large"))
}

pub(crate) fn owner(text: &str) -> Result<Owner, String> {
    let ids = text.split_once(':');
    let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    let (uid, gid) = ids.ok_or("write two numbers, such as 0:0 or 1000:1000")?;
    Ok(Owner { uid, gid })
}

/// Returns the source that the arguments specify.
fn source(args: &BuildArgs) -> Result<BuildSource> {
    let placed = |named: &SourceArg| {
        Ok(PlacedSource { source: one_source(args, &named.source)?, at: named.at.clone() })
    };
    let mut sources = args.sources.all().iter().map(placed).collect::<Result<Vec<_>>>()?;
    let is_container = |placed: &PlacedSource| matches!(placed.source, BuildSource::Container(_));
    if !sources.iter().any(is_container) {
        refuse_options_of_containers(args)?;
    }
    if sources.len() == 1 && sources[0].at.is_empty() {
        return Ok(sources.remove(0).source);
    }
    Ok(BuildSource::Several(sources))
}

fn refuse_options_of_containers(args: &BuildArgs) -> Result<()> {
    let given = [
        ("--platform", args.platform.is_some()),
        ("--overlay", args.overlay),
        ("--config", args.config.is_some()),
        ("--layer-limit", args.layer_limit.is_some()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        let problem = format!(
            "{option} requires a container image; write oci:, oci-archive: or docker-archive: \
             before its path"
        );
        return Err(Error::Usage(problem));
    }
    Ok(())
}

/// Returns the source for an argument: a container image or a file system image if it has such a
/// prefix, otherwise a path.
fn one_source(args: &BuildArgs, source: &Path) -> Result<BuildSource> {
    if let Some(file) = ImageFile::parse(source.as_os_str()) {
        return Ok(BuildSource::Image(file));
    }
    let Some(reference) = source.to_str().and_then(Reference::parse) else {
        return Ok(match ManifestFile::parse(source.as_os_str()) {
            Some(manifest) => BuildSource::Manifest(manifest),
            None => BuildSource::Files(source.to_owned()),
        });
    };
    if args.config.as_deref() == Some(args.sources.image()) {
        return Err(Error::Usage(
            "--config is the same file as the image; choose another file".into(),
        ));
    }
    let mut container = Container::new(reference.map_err(Error::Usage)?).is_overlay(args.overlay);
    (container.platform, container.config) = (args.platform.clone(), args.config.clone());
    container.layer_bytes_max = args.layer_limit;
    Ok(container.into())
}

fn options(args: &BuildArgs) -> Result<BuildOptions> {
    if args.free > 0 && args.size.0.is_some() {
        let problem = "--free requires --size auto, because a fixed size determines the free space";
        return Err(Error::Usage(problem.into()));
    }
    if args.sources.image().as_os_str() == "-" {
        let problem = "an image cannot be written to standard output, because it is not written in \
                       order; use a file";
        return Err(Error::Usage(problem.into()));
    }
    let making = &args.making;
    let mut options = BuildOptions::new(source(args)?, args.sources.image(), args.fs)
        .free(args.free)
        .features(making.features.clone())
        .no_journal(args.no_journal)
        .small(making.small)
        .corrections(args.corrections.options())
        .force(making.force)
        .output(making.output()?)
        .sparse(args.sparse)
        .map_names(args.map_names);
    options.size = args.size.0;
    options.label = making.label();
    (options.uuid, options.hash_seed) = (args.uuid, args.hash_seed);
    (options.block_size, options.inode_size) = (args.block_size, args.inode_size);
    (options.bytes_per_inode, options.inodes) = (args.bytes_per_inode, args.inodes);
    options.dir_block_size = args.dir_block_size;
    (options.ag_count, options.ag_bytes) = (args.ag_count, args.ag_size);
    options.log_bytes = args.log_size;
    options.log_device.clone_from(&args.log_device);
    options.dedupe = making.dedupe();
    options.owner = args.owner;
    options.threads = making.threads()?;
    options.source_date_epoch = source_date_epoch()?;
    Ok(options)
}

/// Shows the progress of a build.
pub(crate) struct Bar(pub(crate) ProgressBar);

impl Progress for Bar {
    fn made(&self, entries: u64, bytes: u64) {
        self.0.set_position(entries);
        if !self.0.is_hidden() {
            self.0.set_message(size(bytes));
        }
    }

    fn shipped(&self, bytes: u64, of: u64) {
        if !self.0.is_hidden() {
            self.0.set_message(format!("hashed or written: {} of {}", size(bytes), size(of)));
        }
    }
}

pub(crate) fn run(args: &BuildArgs) -> Result<Outcome> {
    // A source has no option for its partition.
    terminal::word_hint(Hint::ChooseListed, "choose one: image:FILE:N");
    let options = options(args)?;
    diskwright::clean_up_on_signals()?;
    let bar = Bar(terminal::spinner("building:"));
    let built = build(&options, &bar);
    bar.0.finish_and_clear();
    let built = built.map_err(Error::from)?;
    report("built", args.sources.image(), args.making.json, &built)?;
    Ok(Outcome::Done)
}

/// Prints the result of a build.
pub(crate) fn report(verb: &str, image: &Path, json: bool, report: &BuildReport) -> Result<()> {
    let warnings = report.corrections.iter().flat_map(|corrections| &corrections.warnings);
    warnings.for_each(|warning| terminal::message(&format_args!("warning: {warning}")));
    for (what, count) in &report.left_out {
        terminal::message(&format_args!("not stored for {count} files: {what}"));
    }
    if json {
        return terminal::with_output(|out| {
            terminal::write_json(&mut *out, report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(Error::Output)
        });
    }
    terminal::message(&format_args!(
        "{verb} {}: {} files, {} of contents, {} image",
        diskwright::text::shown(image),
        report.entries,
        size(report.data_bytes),
        size(report.image_bytes),
    ));
    if report.shared_bytes > 0 {
        terminal::message(&format_args!("{} of contents are shared", size(report.shared_bytes)));
    }
    build_output::report(&report.output);
    Ok(())
}
