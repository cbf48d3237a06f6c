//! `diskwright map`.

use std::ffi::OsStr;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use diskwright::map::{self, CELLS_MAX, Curve, Figures, Mapped, Options};
use diskwright::{Error, Outcome, Result, text};

use crate::commands::arguments::ImageArgs;
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright map root.img
  diskwright map root.img -o root.svg
  diskwright map disk.img --partition 2 -o disk.html --curve hilbert
  diskwright map root.img --format json | jq '.kinds[] | select(.blocks > 0)'

Shows what each part of the disk is used for, free space by the length of its runs, how many pieces files lie in, and
where the journal or log lies. docs/map.md says what is counted as what. Nothing is written to the image.

Exit status: 0 if all could be read; 3 if the image is damaged, in which case what can be told is shown, and the rest as
blocks in use, unknown for what.";

/// Default number of cells, of a picture and of a text map.
const CELLS: usize = 4096;
const CELLS_OF_TEXT: usize = 1536;

/// Metadata cache size in bytes. Small, because nearly all metadata is read once.
const CACHE_BYTES: usize = 32 << 20;

/// Draw what lies where on the disk
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Write to this file, or - for standard output. Its ending says the format: .svg, .html, .json or .txt
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long, requires = "output")]
    force: bool,

    /// What to write [default: what the ending of FILE says; text on standard output]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Most parts of the disk that are told apart [default: 4096; text: 1536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=CELLS_MAX as i64))]
    cells: Option<u32>,

    /// How the disk goes through the picture
    #[arg(long, value_name = "CURVE", default_value = "rows")]
    curve: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A picture
    Svg,
    /// A page with the picture, and tables
    Html,
    /// All numbers as one object
    Json,
    /// Letters, for a terminal
    #[value(alias = "txt")]
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Row by row
    Rows,
    /// A square in which what is near on the disk is near
    Hilbert,
}

impl MapArgs {
    /// Returns the output file, or `None` for standard output.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    fn format(&self) -> Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let Some(path) = self.file() else { return Ok(Format::Text) };
        match path.extension().and_then(OsStr::to_str) {
            Some("svg") => Ok(Format::Svg),
            Some("html" | "htm") => Ok(Format::Html),
            Some("json") => Ok(Format::Json),
            Some("txt") => Ok(Format::Text),
            _ => {
                let problem = "the name of the file does not say what to write: let it end in .svg, .html, .json \
                               or .txt, or add --format";
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
    let usual = if format == Format::Text { CELLS_OF_TEXT } else { CELLS };
    let cells = args.cells.map_or(usual, |cells| cells as usize);
    let progress = RepairProgress::new("reading");
    let mut show = |done, total| {
        progress.show("what lies where", done, total);
        ControlFlow::Continue(())
    };
    let options = args.image.options().cache_bytes(CACHE_BYTES);
    let mapped = map::survey(&args.image.image, &options, cells, &mut show)?;
    drop(progress);
    let bytes = picture(args, format, &mapped)?;
    match args.file() {
        Some(path) => map::write_file(path, &bytes, args.force)?,
        None => terminal::with_output(|out| out.write_all(&bytes).map_err(Error::Output))?,
    }
    let survey = &mapped.survey;
    let of_survey = survey.remarks.iter().filter(|_| format != Format::Text);
    for remark in mapped.remarks.iter().chain(of_survey) {
        terminal::message(remark);
    }
    Ok(if survey.is_sound() { Outcome::Done } else { Outcome::Image })
}

fn picture(args: &MapArgs, format: Format, mapped: &Mapped) -> Result<Vec<u8>> {
    let image = text::public(&args.image.image);
    let name = image.file_name().unwrap_or(image.as_os_str());
    let options = Options {
        title: address::safe_line(&name.to_string_lossy()),
        format: mapped.format.clone(),
        curve: match args.curve {
            Way::Rows => Curve::Rows,
            Way::Hilbert => Curve::Hilbert,
        },
    };
    let survey = &mapped.survey;
    Ok(match format {
        Format::Svg => map::svg(survey, &options).into_bytes(),
        Format::Html => map::html(survey, &options).into_bytes(),
        Format::Text => map::text(survey, &options).into_bytes(),
        Format::Json => {
            let figures = Figures::new(survey, &options);
            let json = serde_json::to_string(&figures).map_err(|e| Error::Output(e.into()))?;
            (address::safe_json(json) + "\n").into_bytes()
        }
    })
}
