//! `diskwright build`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use diskwright::build::{
    BuildOptions, BuildReport, BuildSource, Container, FeatureChange, Format, ImageFile,
    ManifestFile, Owner, PlacedSource, Platform, Progress, Reference, build,
};
use diskwright::text::{parse_size, size};
use diskwright::{Error, Outcome, Result};
use indicatif::ProgressBar;

use super::build_corrections::CorrectionArgs;
use super::build_output::{self, OutputArgs};
use super::dedupe::DedupeArgs;
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

The same source and options give the same bytes, whatever the number of threads. The environment
variable SOURCE_DATE_EPOCH (seconds since 1970) is the latest time in the image. IMAGE gets its name
when it is finished: a build that fails or is interrupted leaves nothing. --force does not replace an
image that is mounted or in use.";

/// Build an image from directories, tar archives, container images and other images
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    sources: SourceArgs,

    /// Format
    #[arg(long, value_enum, default_value = "ext4")]
    fs: FormatArg,

    /// Size of the image, or "auto" for the smallest that holds the source
    #[arg(long, value_name = "SIZE|auto", value_parser = auto_size, default_value = "auto")]
    size: AutoSize,

    /// Space to leave free, with --size auto
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    free: u64,

    /// Label (ext4: at most 16 bytes, XFS: 12)
    #[arg(long)]
    label: Option<String>,

    /// UUID, instead of one derived from the contents
    #[arg(long, value_parser = super::arguments::uuid)]
    uuid: Option<[u8; 16]>,

    /// Features to turn on (+name or name) and off (-name or ^name), with commas, named as in ext4(5)
    /// or mkfs.xfs(8); for ext4, "none" first starts from nothing
    #[arg(short = 'O', long, value_delimiter = ',', allow_hyphen_values = true)]
    features: Vec<FeatureChange>,

    /// Block size: 1K, 2K or 4K for ext4, 1K to 64K for XFS
    #[arg(long, value_name = "SIZE", value_parser = small_size)]
    block_size: Option<u32>,

    /// Inode size in bytes: a power of two, from 128 to the block size for ext4, 512 to 2048 for XFS
    #[arg(long, value_name = "SIZE", value_parser = small_size)]
    inode_size: Option<u32>,

    /// Owner of everything, as numbers, instead of the source's owners
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,

    #[command(flatten)]
    corrections: CorrectionArgs,

    /// Threads; the image does not depend on it [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Overwrite an existing image
    #[arg(long)]
    force: bool,

    /// Report what was built as one JSON object on standard output
    #[arg(long)]
    json: bool,

    /// Platform of the container image, such as linux/arm64 or linux/arm/v7 [default: Linux on this
    /// processor, if there is more than one]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", help_heading = CONTAINER)]
    platform: Option<Platform>,

    /// Keep the layers apart, as overlayfs has its lower directories, in directories named by their
    /// order from the lowest up
    #[arg(long, help_heading = CONTAINER)]
    overlay: bool,

    /// Write the image's configuration to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = CONTAINER)]
    config: Option<PathBuf>,

    /// Most that one layer may hold [default: 1G and 1024 times what is stored of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = CONTAINER)]
    layer_limit: Option<u64>,

    /// Leave the journal out: the same as --features ^has_journal
    #[arg(long, help_heading = EXT4)]
    no_journal: bool,

    /// One inode for this many bytes of the image
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        conflicts_with = "inodes",
        help_heading = EXT4
    )]
    bytes_per_inode: Option<u64>,

    /// Number of inodes, instead of what the source needs and some more
    #[arg(long, value_name = "COUNT", help_heading = EXT4)]
    inodes: Option<u64>,

    /// Seed of the directory hashes, written like a UUID, instead of one derived from the contents
    #[arg(long, value_name = "UUID", value_parser = super::arguments::uuid, help_heading = EXT4)]
    hash_seed: Option<[u8; 16]>,

    /// Size of directory blocks: a power of two from the block size to 64K [default: at least 4K]
    #[arg(long, value_name = "SIZE", value_parser = small_size, help_heading = XFS)]
    dir_block_size: Option<u32>,

    /// Number of allocation groups, instead of what mkfs.xfs chooses for the size
    #[arg(long, value_name = "COUNT", conflicts_with = "ag_size", help_heading = XFS)]
    ag_count: Option<u32>,

    /// Size of an allocation group
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = XFS)]
    ag_size: Option<u64>,

    /// Size of the log, instead of what mkfs.xfs chooses for the size
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = XFS)]
    log_size: Option<u64>,

    /// Allow less than 300 MiB, the least that mkfs.xfs makes: such images are slower in use
    #[arg(long, help_heading = XFS)]
    small: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    dedupe: DedupeArgs,
}

/// Heading of options that only container images have.
const CONTAINER: &str = "Options of container images";
/// Headings of options that only one format has.
const EXT4: &str = "Options of ext4";
const XFS: &str = "Options of XFS";

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FormatArg {
    Ext4,
    Xfs,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Ext4 => Self::Ext4,
            FormatArg::Xfs => Self::Xfs,
        }
    }
}

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

/// The time that reproducible builds are told to use (reproducible-builds.org).
pub(crate) fn source_date_epoch() -> Result<Option<i64>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.parse().ok()).filter(|&sec: &i64| sec >= 0);
    let problem = "SOURCE_DATE_EPOCH is not a number of seconds since 1970: correct or unset it";
    seconds.map(Some).ok_or_else(|| Error::Usage(problem.into()))
}

/// What the arguments name.
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
            "{option} goes with a container image: write oci:, oci-archive: or docker-archive: before its path"
        );
        return Err(Error::Usage(problem));
    }
    Ok(())
}

/// What an argument names: a container image or the image of a file system if it begins as one, else a path.
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
        return Err(Error::Usage("--config names the image itself: name another file".into()));
    }
    Ok(BuildSource::Container(Container {
        reference: reference.map_err(Error::Usage)?,
        platform: args.platform.clone(),
        is_overlay: args.overlay,
        layer_bytes_max: args.layer_limit,
        config: args.config.clone(),
    }))
}

fn options(args: &BuildArgs) -> Result<BuildOptions> {
    if args.free > 0 && args.size.0.is_some() {
        let problem = "--free goes with --size auto: a given size says what is free already";
        return Err(Error::Usage(problem.into()));
    }
    if args.sources.image().as_os_str() == "-" {
        let problem =
            "an image is not written in order, so it cannot go to standard output: name a file";
        return Err(Error::Usage(problem.into()));
    }
    if args.threads == Some(0) {
        return Err(Error::Usage("--threads must be at least 1".into()));
    }
    let format = args.fs.into();
    Ok(BuildOptions {
        size: args.size.0,
        free: args.free,
        label: args.label.clone().map(String::into_bytes),
        uuid: args.uuid,
        hash_seed: args.hash_seed,
        features: args.features.clone(),
        block_size: args.block_size,
        inode_size: args.inode_size,
        bytes_per_inode: args.bytes_per_inode,
        inodes: args.inodes,
        no_journal: args.no_journal,
        dir_block_size: args.dir_block_size,
        ag_count: args.ag_count,
        ag_bytes: args.ag_size,
        log_bytes: args.log_size,
        small: args.small,
        dedupe: args.dedupe.chosen(),
        owner: args.owner,
        corrections: args.corrections.options(),
        threads: args.threads,
        force: args.force,
        source_date_epoch: source_date_epoch()?,
        output: args.output.options()?,
        ..BuildOptions::new(source(args)?, args.sources.image(), format)
    })
}

/// Shows how a build goes.
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
    let options = options(args)?;
    diskwright::clean_up_on_signals()?;
    let bar = Bar(terminal::spinner("building:"));
    let built = build(&options, &bar);
    bar.0.finish_and_clear();
    report("built", args.sources.image(), args.json, &built?)?;
    Ok(Outcome::Done)
}

/// Says what was made.
pub(crate) fn report(verb: &str, image: &Path, json: bool, report: &BuildReport) -> Result<()> {
    let warnings = report.corrections.iter().flat_map(|corrections| &corrections.warnings);
    warnings.for_each(|warning| terminal::message(&format_args!("warning: {warning}")));
    for (what, count) in &report.left_out {
        terminal::message(&format_args!("not kept, of {count} files: {what}"));
    }
    if json {
        return terminal::with_output(|out| {
            serde_json::to_writer(&mut *out, report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(Error::Output)
        });
    }
    terminal::message(&format_args!(
        "{verb} {}: {} files, {} of contents, {} image",
        diskwright::text::escaped(image.as_os_str().as_encoded_bytes()),
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
