//! `diskwright extract`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use diskwright::check::Options;
use diskwright::extract::{
    ExtractOptions, ExtractReport, extract_to_directory, extract_to_tar, extract_to_tar_file,
};
use diskwright::repair::{Repair, write_plan};
use diskwright::{Error, Image, Outcome, Result};

use crate::commands::arguments::{ImageArgs, SuperblockArgs, bytes};
use crate::commands::host_names::NameArgs;
use crate::commands::repair::Watch;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Everything is restored: types, permissions, nanosecond times, hard links, holes, extended
attributes with ACLs and capabilities, device nodes and, for root, owners. Without root, owners stay
yours and set-user-id and set-group-id bits are dropped. What the destination does not take (a
device node without the right to make one, an attribute, a socket in a tar) is named and left out,
and the exit status is 1. lost+found is extracted like any other directory.

No path in an image can lead outside of DEST. An archive gets its name when it is whole; one that it
replaces stays until then. A file that somebody uses as an image is not replaced, whatever --force says.";

/// Copy files out of an image, to a directory or a tar archive
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ExtractArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// A directory, new or empty; a file NAME.tar; or - for a tar on standard output
    #[arg(value_name = "DEST")]
    destination: PathBuf,

    /// Only this file or directory; what is in a directory comes without its name
    #[arg(long, default_value = "/")]
    path: OsString,

    /// Extract into a directory that is not empty, replacing files; replace an existing archive
    #[arg(long)]
    force: bool,

    /// Go on after damage: leave out or fill with zeros what cannot be read, and exit with 3
    #[arg(long)]
    keep_going: bool,

    /// Take out what is left of an image that is too damaged to be opened: repair it in memory first, say what is
    /// wrong and what becomes of it, and go on after damage; exit with 1 if anything was wrong
    #[arg(long)]
    salvage: bool,

    #[command(flatten)]
    superblock: SuperblockArgs,

    #[command(flatten)]
    names: NameArgs,

    /// Report what was extracted as one JSON object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ExtractArgs) -> Result<Outcome> {
    let to_output = args.destination.as_os_str() == "-";
    if to_output && args.json {
        let problem = "--json has no place beside an archive on standard output";
        return Err(Error::Usage(problem.into()));
    }
    if to_output && io::stdout().is_terminal() {
        let problem = "an archive is nothing for a terminal: redirect it, or name a file";
        return Err(Error::Usage(problem.into()));
    }
    let to_archive = to_output || args.destination.extension().is_some_and(|end| end == "tar");
    if to_archive && args.names.map_names {
        let problem = "--map-names is for a directory: an archive holds any name";
        return Err(Error::Usage(problem.into()));
    }
    if args.superblock.superblock.is_some() && !args.salvage {
        let problem =
            "--superblock needs --salvage: other ways of reading find copies by themselves";
        return Err(Error::Usage(problem.into()));
    }
    let (image, salvaged) = match args.salvage {
        true => salvage(args).map(|(image, salvaged)| (image, Some(salvaged)))?,
        false => (args.image.open()?, None),
    };
    let options = ExtractOptions::default()
        .path(bytes(&args.path))
        .keep_going(args.keep_going || args.salvage)
        .force(args.force)
        .map_names(args.names.map_names);
    let report = if to_output {
        let mut progress = CopyProgress::new("extracting:");
        terminal::with_output(|out| extract_to_tar(image.paths(), out, &options, &mut progress))?
    } else if to_archive {
        diskwright::clean_up_on_signals()?;
        let mut progress = CopyProgress::new("extracting:");
        extract_to_tar_file(image.paths(), &args.destination, &options, &mut progress)?
    } else {
        let mut progress = CopyProgress::new("extracting:");
        extract_to_directory(image.paths(), &args.destination, &options, &mut progress)?
    };
    let outcome = finish(args, &report)?;
    Ok(salvaged.map_or(outcome, |salvaged| outcome.max(salvaged.outcome())))
}

/// Result of salvaging an image.
struct Salvaged {
    repair: Repair,
    is_sound: bool,
}

impl Salvaged {
    /// Returns the outcome of the command if nothing else failed.
    fn outcome(&self) -> Outcome {
        match self.repair.device_error() {
            Some(error) => {
                terminal::message(&format_args!("incomplete: the device failed to read: {error}"));
                Outcome::Io
            }
            None if self.is_sound => Outcome::Done,
            None => Outcome::No,
        }
    }
}

/// Returns the image as it would be after a repair, and prints its problems.
fn salvage(args: &ExtractArgs) -> Result<(Image, Salvaged)> {
    let mut open = args.image.options();
    open.superblock = args.superblock.superblock;
    let repair = Repair::open_to_plan(&args.image.image, &open)?;
    let watch = Watch::new(diskwright::stop_on_signals()?);
    let salvaged = repair.salvage(&Options::default(), &watch);
    drop(watch);
    let (image, plan) = salvaged?;
    let is_sound = plan.findings.is_empty() && plan.left.is_empty();
    if !is_sound {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = repair.report_of(&plan).write_text(&mut text);
        let _ = write_plan(&plan, &mut text);
        terminal::lines(&text);
        terminal::message(
            &"the image stays as it is: this was done in memory, and what it gives is extracted",
        );
    }
    Ok((image, Salvaged { repair, is_sound }))
}

fn finish(args: &ExtractArgs, report: &ExtractReport) -> Result<Outcome> {
    if report.unreadable > 0 || report.left_out > 0 {
        terminal::message(&format_args!(
            "{} files could not be read, {} things were left out",
            report.unreadable, report.left_out
        ));
    }
    if args.json {
        terminal::with_output(|out| {
            terminal::write_json(&mut *out, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(Error::Output)
        })?;
    }
    Ok(report.outcome())
}
