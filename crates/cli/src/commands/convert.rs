//! `diskwright convert`.

use std::path::PathBuf;

use clap::Args;
use diskwright::build::{ConvertOptions, ConvertSize, FeatureChange, ImageFile, convert};
use diskwright::text::parse_size;
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::PlaceArgs;
use crate::commands::build::{Bar, FormatArg, report, source_date_epoch};
use crate::commands::build_output::OutputArgs;
use crate::commands::dedupe::DedupeArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright convert root.ext4 root.xfs --fs xfs
  diskwright convert data.xfs small.xfs --size min
  diskwright convert --partition 2 disk.img root.img --keep-uuid
  diskwright convert old.ext3 old.ext3 --force

The new image has all files of the old one as they are once its journal or log was replayed, with
their attributes, and is laid out anew: ext2 and ext3 become ext4, an XFS of version 4 becomes one of
version 5, and nothing is fragmented. What the new format does not keep is said. The old image is not
written; with --force, IN and OUT may be the same file, which is replaced when the new image is whole.";

/// Make an image anew: in another format, smaller, or as new ones of its format are
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ConvertArgs {
    /// Image to convert: ext2, ext3, ext4 or XFS
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// Image to make
    #[arg(value_name = "OUT")]
    image: PathBuf,

    /// Format [default: that of IN; ext4 for ext2 and ext3]
    #[arg(long, value_enum)]
    fs: Option<FormatArg>,

    /// Size of the new image; "min" is the smallest that holds everything, "auto" that of IN, or what is
    /// needed if that is more
    #[arg(long, value_name = "SIZE|min|auto", value_parser = size, default_value = "auto")]
    size: ConvertSize,

    /// Label, instead of that of IN
    #[arg(long)]
    label: Option<String>,

    /// Keep the UUID, instead of deriving one from the contents; kernels do not mount two XFS of one UUID
    #[arg(long)]
    keep_uuid: bool,

    /// Features to turn on and off, as for build
    #[arg(short = 'O', long, value_delimiter = ',', allow_hyphen_values = true)]
    features: Vec<FeatureChange>,

    /// Allow an XFS of less than 300 MiB, also if IN is none
    #[arg(long)]
    small: bool,

    /// Threads; the image does not depend on it [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Overwrite an existing image, which may be IN
    #[arg(long)]
    force: bool,

    /// Report what was made as one JSON object on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    dedupe: DedupeArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

fn size(text: &str) -> Result<ConvertSize, String> {
    match text {
        "auto" => Ok(ConvertSize::AsBefore),
        "min" => Ok(ConvertSize::Least),
        other => parse_size(other).map(ConvertSize::Given),
    }
}

pub(crate) fn run(args: &ConvertArgs) -> Result<Outcome> {
    if args.threads == Some(0) {
        return Err(Error::Usage("--threads must be at least 1".into()));
    }
    let place = args.place.options(false);
    let options = ConvertOptions {
        from: ImageFile {
            path: args.from.clone(),
            offset: place.offset,
            partition: place.partition,
        },
        image: args.image.clone(),
        format: args.fs.map(Into::into),
        size: args.size,
        label: args.label.clone().map(String::into_bytes),
        keep_uuid: args.keep_uuid,
        features: args.features.clone(),
        small: args.small,
        dedupe: args.dedupe.chosen(),
        threads: args.threads,
        force: args.force,
        source_date_epoch: source_date_epoch()?,
        output: args.output.options()?,
    };
    diskwright::clean_up_on_signals()?;
    let bar = Bar(terminal::spinner("converting:"));
    let converted = convert(&options, &bar);
    bar.0.finish_and_clear();
    report("converted", &args.image, args.json, &converted?)?;
    Ok(Outcome::Done)
}
