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

The image is divided into chunks, which are compressed and stored below URL under the digests of their contents. A chunk \
that exists, from any image, is not sent again. Chunks of zeros are not stored. Run the command again after an \
interruption to send the missing chunks. Commands read the image as URL/names/NAME, which refers to the new image only \
when it is complete.

Credentials come from the environment variables of the store's own tools, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT.";

/// Publish an image in object storage, in chunks that images share
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Prefix of published images, such as s3://bucket/images
    #[arg(value_name = "URL")]
    url: String,

    /// Set the name of the image [default: the file name without its suffix]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Set the chunk size, a power of two from 4K to 16M. Images share only chunks of the same size
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = text::parse_size,
        default_value = "128K"
    )]
    chunk_size: u64,

    /// Store the read order of FILE, which mount --record wrote, for read-ahead by readers
    #[arg(long, value_name = "FILE")]
    order: Option<PathBuf>,

    /// Store a bundle of all metadata, and of the data of --order. Readers fetch it with one request
    #[arg(long)]
    bundle: bool,

    /// Send existing chunks again, to repair damaged or lost ones
    #[arg(long)]
    resend: bool,

    /// Write the result as one JSON object to standard output
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
        .open(args.image.options()?)
        .chunk_bytes(args.chunk_size)
        .order(args.order.clone())
        .bundle(args.bundle)
        .resend(args.resend);
    let progress = Progress(RepairProgress::new("publishing"));
    let published = publish::publish(&options, &progress)?;
    drop(progress);
    terminal::with_output(|out| {
        let written = if args.json {
            let line = serde_json::to_string(&published).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", disk::address::safe_json(line))
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
    )?;
    if report.bundle_bytes > 0 {
        writeln!(out, "metadata bundle of {}", text::size(report.bundle_bytes))?;
    }
    Ok(())
}
