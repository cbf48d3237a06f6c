//! `diskwright publish`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use diskwright::publish::{self, Observer, PublishOptions, PublishReport, Stage};
use diskwright::{Error, Outcome, Result, text};

use crate::commands::arguments::ImageArgs;
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright publish root.img s3://images/fleet
  diskwright publish root.img s3://images/fleet --name web-42 --json
  diskwright ls s3://images/fleet/names/web-42 /etc

The image is cut into chunks, which lie below URL by the digests of their contents, compressed. A chunk that is there
already is not sent again, whichever image it came from; zeros are none. Run again after an interruption, it sends what
is missing. What commands read is URL/names/NAME, which names the new image once all of it is there.

Credentials come from the environment, as the store's own tools have them (AWS_ACCESS_KEY_ID, AWS_ENDPOINT and so on).";

/// Publish an image in object storage, in chunks that images share
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Where to publish it: a prefix, such as s3://bucket/images
    #[arg(value_name = "URL")]
    url: String,

    /// Its name there [default: the file's, without the ending]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Size of a chunk: a power of two. Images share chunks only of one size
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = text::parse_size,
        default_value = "128K"
    )]
    chunk_size: u64,

    /// A record of what a start touches first, which readers fetch ahead in that order
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,

    /// Send what is there already, too: mends chunks that are damaged or lost
    #[arg(long)]
    resend: bool,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows a progress bar for each of the two stages.
struct Progress(RepairProgress);

impl Observer for Progress {
    fn progress(&self, stage: Stage, done: u64, total: u64) {
        let part = match stage {
            Stage::Reading => "reading the image",
            Stage::Sending => "sending chunks",
        };
        self.0.show(part, done, total);
    }
}

pub(crate) fn run(args: &PublishArgs) -> Result<Outcome> {
    let options = PublishOptions::new(&args.image.image, &args.url)
        .name(args.name.clone())
        .open(args.image.options())
        .chunk_bytes(args.chunk_size)
        .order(args.order.clone())
        .resend(args.resend);
    let progress = Progress(RepairProgress::new("publishing"));
    let published = publish::publish(&options, &progress)?;
    drop(progress);
    terminal::with_output(|out| {
        let written = if args.json {
            let line = serde_json::to_string(&published).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", address::safe_json(line))
        } else {
            write_text(&published, out)
        };
        written.map_err(Error::Output)
    })?;
    Ok(Outcome::Done)
}

fn write_text(published: &PublishReport, out: &mut dyn Write) -> std::io::Result<()> {
    let report = &published.report;
    writeln!(out, "{}", published.place)?;
    writeln!(
        out,
        "{} in {} chunks of {}, {} of them not zeros; {} sent, {}",
        text::size(report.image_bytes),
        report.chunks,
        text::size(report.chunk_bytes.into()),
        report.chunks_stored,
        report.chunks_sent,
        text::size(report.bytes_sent),
    )
}
