//! `diskwright convert`.

use std::path::PathBuf;

use clap::Args;
use diskwright::build::{ConvertOptions, ConvertSize, ImageFile, convert};
use diskwright::text::parse_size;
use diskwright::{Format, Outcome, Result};

use crate::commands::arguments::PlaceArgs;
use crate::commands::build::{Bar, report};
use crate::commands::making::{MakingArgs, source_date_epoch};
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright convert root.ext4 root.xfs --fs xfs
  diskwright convert data.xfs small.xfs --size min
  diskwright convert --partition 2 disk.img root.img --keep-uuid
  diskwright convert old.ext3 old.ext3 --force

The new image contains all files of IN with their attributes, in the state after replay of the journal or log, with \
a new layout and without fragmentation. ext2 and ext3 become ext4; XFS version 4 becomes version 5. A message reports \
attributes that the new format cannot store. IN is not changed. With --force, IN and OUT can be the same file, which is \
replaced when the new image is complete.";

/// Copy an image into a new one of another format, another size or a newer version of its format
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ConvertArgs {
    /// Image to convert: ext2, ext3, ext4 or XFS
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// Image to create
    #[arg(value_name = "OUT")]
    image: PathBuf,

    /// Select the file-system format of OUT [default: that of IN; ext4 for ext2 and ext3]
    #[arg(long, value_parser = super::arguments::format())]
    fs: Option<Format>,

    /// Set the size of OUT, "min" for the smallest possible size, or "auto" for the size of IN, or more if the files need it
    #[arg(long, value_name = "SIZE|min|auto", value_parser = size, default_value = "auto")]
    size: ConvertSize,

    /// Keep the UUID of IN [default: derived from the contents]. Linux does not mount two XFS file systems with one UUID
    #[arg(long)]
    keep_uuid: bool,

    #[command(flatten)]
    making: MakingArgs,

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
    let (place, making) = (args.place.options(false), &args.making);
    let from = ImageFile {
        path: args.from.clone(),
        offset: place.offset,
        partition: place.partition,
        devices: place.devices.clone(),
    };
    let mut options = ConvertOptions::new(from, &args.image)
        .size(args.size)
        .keep_uuid(args.keep_uuid)
        .features(making.features.clone())
        .small(making.small)
        .force(making.force)
        .output(making.output()?);
    options.format = args.fs;
    options.label = making.label();
    (options.dedupe, options.threads) = (making.dedupe(), making.threads()?);
    options.source_date_epoch = source_date_epoch()?;
    diskwright::clean_up_on_signals()?;
    let bar = Bar(terminal::spinner("converting:"));
    let converted = convert(&options, &bar);
    bar.0.finish_and_clear();
    report("converted", &args.image, making.json, &converted?)?;
    Ok(Outcome::Done)
}
