//! `diskwright map`.

use std::ffi::OsStr;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use diskwright::disk_map::{self, CELLS_MAX, Curve, Domain, Figures, Mapped, Options};
use diskwright::{Error, Outcome, Result, text};

use crate::commands::arguments::ImageArgs;
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright map root.img
  diskwright map root.img -o root.svg
  diskwright map disk.img --partition 2 -o disk.html --curve hilbert
  diskwright map root.img --format json | jq '.kinds[] | select(.blocks > 0)'
  diskwright map /dev/sdb --partition 1 --format ddrescue --metadata -o domain.map
  ddrescue -m domain.map /dev/sdb rescued.img rescued.map

Shows the use of each part of the disk, the lengths of free extents, the fragmentation of files, and the location of the \
journal or log. docs/map.md defines the kinds of blocks. Nothing is written to the image.

Exit status:
  0  everything could be read
  3  the image is damaged; the readable part is shown, and other blocks in use have an unknown owner";

/// Default number of cells, of a picture and of a text map.
const CELLS: usize = 4096;
const CELLS_OF_TEXT: usize = 1536;

/// Metadata cache size in bytes. Small, because nearly all metadata is read once.
const CACHE_BYTES: usize = 32 << 20;

/// Draw a map of the blocks of an image and their use
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Write to FILE, or - for standard output. The suffix selects the format: .svg, .html, .json or .txt
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,

    /// Select the format [default: by the suffix of FILE, text on standard output]
    #[arg(long, value_name = "FORMAT")]
    format: Option<MapFormat>,

    /// With --format ddrescue, include all blocks in use. This is the default
    #[arg(long, conflicts_with = "metadata")]
    used: bool,

    /// With --format ddrescue, include no contents of files
    #[arg(long)]
    metadata: bool,

    /// Divide the disk into at most N parts, 1 to 65536 [default: 4096, for text 1536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CELLS_MAX as i64))]
    cells: Option<u32>,

    /// Select the order of blocks in the picture
    #[arg(long, value_name = "CURVE", default_value = "rows")]
    curve: CurveName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MapFormat {
    /// Picture
    Svg,
    /// Web page with the picture and tables
    Html,
    /// One JSON object with all numbers
    Json,
    /// Letters, for a terminal
    #[value(alias = "txt")]
    Text,
    /// Domain mapfile of GNU ddrescue: the blocks in use
    Ddrescue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CurveName {
    /// Row by row
    Rows,
    /// Hilbert curve in a square: blocks close on disk are close in the picture
    Hilbert,
}

impl MapArgs {
    /// Returns the output file, or `None` for standard output.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    fn format(&self) -> Result<MapFormat> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let Some(path) = self.file() else { return Ok(MapFormat::Text) };
        match path.extension().and_then(OsStr::to_str) {
            Some("svg") => Ok(MapFormat::Svg),
            Some("html" | "htm") => Ok(MapFormat::Html),
            Some("json") => Ok(MapFormat::Json),
            Some("txt") => Ok(MapFormat::Text),
            _ => {
                let problem = "unknown output format: use a file name that ends in .svg, .html, \
                               .json or .txt, or add --format";
                Err(Error::Usage(problem.to_owned()))
            }
        }
    }
}

pub(crate) fn run(args: &MapArgs) -> Result<Outcome> {
    let format = args.format()?;
    if args.file().is_some() {
        diskwright::clean_up_on_signals()?;
    }
    if format == MapFormat::Ddrescue {
        return rescue_domain(args);
    }
    if args.used || args.metadata {
        return Err(Error::Usage("--used and --metadata need --format ddrescue".to_owned()));
    }
    let usual = if format == MapFormat::Text { CELLS_OF_TEXT } else { CELLS };
    let cells = args.cells.map_or(usual, |cells| cells as usize);
    let options = args.image.options()?.cache_bytes(CACHE_BYTES);
    let mapped = with_progress(|show| disk_map::survey(&args.image.image, &options, cells, show))?;
    write(args, &picture(args, format, &mapped)?)?;
    let survey = &mapped.survey;
    let of_survey = survey.remarks.iter().filter(|_| format != MapFormat::Text);
    for remark in mapped.remarks.iter().chain(of_survey) {
        terminal::message(remark);
    }
    Ok(if survey.is_sound() { Outcome::Done } else { Outcome::Image })
}

/// Calls a function with a progress bar.
fn with_progress<T>(work: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> T) -> T {
    let progress = RepairProgress::new("reading");
    work(&mut |done, total| {
        progress.show("disk map", done, total);
        ControlFlow::Continue(())
    })
}

fn write(args: &MapArgs, bytes: &[u8]) -> Result<()> {
    match args.file() {
        Some(path) => disk_map::write_file(path, bytes, args.force),
        None => terminal::with_output(|out| out.write_all(bytes).map_err(Error::Output)),
    }
}

fn rescue_domain(args: &MapArgs) -> Result<Outcome> {
    let domain = if args.metadata { Domain::Metadata } else { Domain::Used };
    let options = args.image.options()?.cache_bytes(CACHE_BYTES);
    let map = with_progress(|show| {
        disk_map::rescue_domain_of(&args.image.image, &options, domain, show)
    })?;
    write(args, map.text.as_bytes())?;
    map.remarks.iter().for_each(|remark| terminal::message(remark));
    Ok(if map.remarks.is_empty() { Outcome::Done } else { Outcome::Image })
}

fn picture(args: &MapArgs, format: MapFormat, mapped: &Mapped) -> Result<Vec<u8>> {
    let image = text::public(&args.image.image);
    let name = image.file_name().unwrap_or(image.as_os_str());
    let options = Options {
        title: disk::address::safe_line(&name.to_string_lossy()),
        format: mapped.format.to_owned(),
        curve: match args.curve {
            CurveName::Rows => Curve::Rows,
            CurveName::Hilbert => Curve::Hilbert,
        },
    };
    let survey = &mapped.survey;
    Ok(match format {
        MapFormat::Svg => disk_map::svg(survey, &options).into_bytes(),
        MapFormat::Html => disk_map::html(survey, &options).into_bytes(),
        MapFormat::Text => disk_map::text(survey, &options).into_bytes(),
        MapFormat::Ddrescue => unreachable!("it is not made of a survey"),
        MapFormat::Json => {
            let figures = Figures::new(survey, &options);
            let json = serde_json::to_string(&figures).map_err(|e| Error::Output(e.into()))?;
            (disk::address::safe_json(json) + "\n").into_bytes()
        }
    })
}
