//! `diskwright diff`.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use diskwright::diff::{
    Compression, DiffOptions, DiffReport, Ignored, LayerReport, Side, diff, diff_to_layer,
    diff_to_layer_file, json, line,
};
use diskwright::{Error, Outcome, Result};
use serde::Serialize;

use super::diff_sides::SidesArgs;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Examples:
  diskwright diff old.img new.img
  diskwright diff rootfs/ root.img --ignore times,owner
  diskwright diff disk.img:2 disk.img:3 --jsonl
  diskwright diff old.img new.img -o layer.tar.zst
  diskwright diff oci:layout:v1 oci:layout:v2
  diskwright diff rootfs.tar.zst root.img

Each side is an image, a directory, an archive (- for standard input) or a container image.

Output lines:
  A PATH     PATH is only in B
  D PATH     PATH is only in A, with everything below it
  M PATH: …  PATH differs in the listed properties

The options for a log or realtime device are those of the first side that is an image.

Holes and zeros are equal. An empty lost+found in only one side is ignored.

With --output, the layer turns A into B, with apply or any container engine. It contains changed files completely, \
the directories above them, and whiteouts for removed files. If one name of a file with hard links changed, it contains \
all names of that file. The same trees give the same bytes.";

/// Compare the files of two images, directories, archives or container images
///
/// Exit status: 0 without differences, 1 with differences. With --output: 0 if the layer contains all
/// differences, 1 if some cannot be stored in a layer.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    sides: SidesArgs,

    /// Write the differences as an OCI layer to NAME.tar, NAME.tar.gz or NAME.tar.zst, or - for standard output
    #[arg(short, long, value_name = "LAYER")]
    output: Option<PathBuf>,

    /// Select the compression of the layer [default: by its name]
    #[arg(long, value_name = "HOW", requires = "output")]
    compress: Option<Compress>,

    /// Replace an existing layer
    #[arg(long, requires = "output")]
    force: bool,

    /// Ignore differences of these kinds, separated by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    ignore: Vec<Ignore>,

    /// Use at most N threads to compare contents [default: one per processor, at most 8]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,

    /// Write one JSON object per difference, one per line
    #[arg(long, conflicts_with_all = ["json", "output"])]
    jsonl: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ignore {
    Times,
    Owner,
    Mode,
    Xattrs,
    Flags,
    Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    None,
    Gzip,
    Zstd,
}

pub(crate) fn run(args: &DiffArgs) -> Result<Outcome> {
    let ignores = |what| args.ignore.contains(&what);
    let ignored = Ignored {
        times: ignores(Ignore::Times),
        owner: ignores(Ignore::Owner),
        mode: ignores(Ignore::Mode),
        xattrs: ignores(Ignore::Xattrs),
        flags: ignores(Ignore::Flags),
        links: ignores(Ignore::Links),
    };
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let threads = args.threads.unwrap_or_else(processors);
    let options = DiffOptions::default().ignored(ignored).threads(threads);
    if let Some(output) = &args.output {
        check_output(args, output)?;
    }
    let (a, b) = args.sides.open(args.output.as_deref(), options.threads)?;
    let sides = (a.side(), b.side());
    match &args.output {
        Some(output) => layer(args, output, sides, &options),
        None => changes(args, sides, &options),
    }
}

fn check_output(args: &DiffArgs, output: &Path) -> Result<()> {
    if output.as_os_str() != "-" {
        return Ok(());
    }
    if args.json {
        let problem = "--json cannot be combined with a layer on standard output";
        return Err(Error::Usage(problem.into()));
    }
    if io::stdout().is_terminal() {
        let problem = "a layer cannot be written to a terminal: redirect the output, or choose a \
                       file";
        return Err(Error::Usage(problem.into()));
    }
    Ok(())
}

fn layer(
    args: &DiffArgs,
    output: &Path,
    sides: (Side<'_>, Side<'_>),
    options: &DiffOptions,
) -> Result<Outcome> {
    let compression = match args.compress {
        Some(Compress::None) => Compression::None,
        Some(Compress::Gzip) => Compression::Gzip,
        Some(Compress::Zstd) => Compression::Zstd,
        None => Compression::of_name(output),
    };
    let mut progress = CopyProgress::new("comparing:");
    let report = if output.as_os_str() == "-" {
        terminal::with_output(|out| diff_to_layer(sides, options, out, compression, &mut progress))?
    } else {
        diskwright::clean_up_on_signals()?;
        let file = (output, args.force);
        diff_to_layer_file(sides, options, file, compression, &mut progress)?
    };
    drop(progress);
    if args.json {
        terminal::with_output(|out| object(out, &report))?;
    }
    let LayerReport { left_out, .. } = report;
    if left_out > 0 {
        terminal::message(&format_args!("the layer lacks {left_out} items that it cannot contain"));
    }
    Ok(if left_out > 0 { Outcome::No } else { Outcome::Done })
}

fn changes(
    args: &DiffArgs,
    (a, b): (Side<'_>, Side<'_>),
    options: &DiffOptions,
) -> Result<Outcome> {
    let mut progress = CopyProgress::new("comparing:");
    let report: DiffReport = terminal::with_output(|out| {
        if args.json {
            out.write_all(b"{\"changes\":[").map_err(Error::Output)?;
        }
        let mut separator = "\n";
        let report = diff(a, b, options, &mut progress, &mut |change| {
            let written = if args.json {
                write!(out, "{separator}{}", disk::address::safe_json(json(change).to_string()))
            } else if args.jsonl {
                writeln!(out, "{}", disk::address::safe_json(json(change).to_string()))
            } else {
                writeln!(out, "{}", line(change))
            };
            separator = ",\n";
            written.map_err(Error::Output)
        })?;
        if args.json {
            let DiffReport { added, removed, modified, bytes_read } = report;
            let end = serde_json::json!({
                "added": added, "removed": removed, "modified": modified, "bytes_read": bytes_read,
            });
            // The object continues after its list.
            let end = end.to_string();
            writeln!(out, "\n],{}", &end[1..]).map_err(Error::Output)?;
        }
        Ok(report)
    })?;
    Ok(if report.is_equal() { Outcome::Done } else { Outcome::No })
}

fn object(out: &mut dyn Write, report: &impl Serialize) -> Result<()> {
    let written = terminal::write_json(&mut *out, report).map_err(io::Error::from);
    written.and_then(|()| writeln!(out)).map_err(Error::Output)
}
