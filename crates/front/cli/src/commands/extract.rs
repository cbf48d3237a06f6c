//! `diskwright extract`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use diskwright::check::Options;
use diskwright::extract::{
    ExtractOptions, ExtractReport, LostFile, extract_to_directory, extract_to_tar,
    extract_to_tar_file,
};
use diskwright::repair::{Repair, write_plan};
use diskwright::{Error, Image, Outcome, Result};

use crate::commands::arguments::{ImageArgs, SuperblockArgs, bytes};
use crate::commands::host_names::NameArgs;
use crate::commands::repair::PlanProgress;
use crate::terminal::{self, CopyProgress};

const NOTES: &str = "\
Restores types, permissions, nanosecond times, hard links, holes, extended attributes with ACLs and capabilities, \
device nodes and, for root, owners. Without root, extracted files belong to the user, and files of other owners lose their \
set-user-id and set-group-id bits. If the destination cannot store something, such as a device node without root or a \
socket in a tar archive, a message names it, and the exit status is 1. lost+found is extracted like any other directory.

No path of an image can lead outside DEST. An archive appears under its name when it is complete; until then, an \
existing archive is kept. A file that is in use as an image is never replaced, even with --force. --superblock requires --salvage.";

/// Copy the files of an image to a directory or a tar archive
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ExtractArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Destination: a new or empty directory, a file NAME.tar, or - for a tar archive on standard output
    #[arg(value_name = "DEST")]
    destination: PathBuf,

    /// Extract only this file, or the contents of this directory
    #[arg(long, default_value = "/")]
    path: OsString,

    /// Replace an existing archive, or files in a directory that is not empty
    #[arg(long)]
    force: bool,

    /// Continue after damage: skip unreadable files, fill unreadable blocks with zeros, and exit with status 3
    #[arg(long)]
    keep_going: bool,

    /// Extract from an image that is too damaged to open: repair it in memory, report the damage and the repairs, and
    /// continue after damage. Exit with status 1 if there was damage
    #[arg(long)]
    salvage: bool,

    #[command(flatten)]
    superblock: SuperblockArgs,

    #[command(flatten)]
    names: NameArgs,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ExtractArgs) -> Result<Outcome> {
    let to_output = args.destination.as_os_str() == "-";
    if to_output && args.json {
        let problem = "--json cannot be combined with an archive on standard output";
        return Err(Error::Usage(problem.into()));
    }
    if to_output && io::stdout().is_terminal() {
        let problem = "an archive cannot be written to a terminal: redirect the output, or choose \
                       a file";
        return Err(Error::Usage(problem.into()));
    }
    let to_archive = to_output || args.destination.extension().is_some_and(|end| end == "tar");
    if to_archive && args.names.map_names {
        let problem = "--map-names is for directories only; an archive supports any name";
        return Err(Error::Usage(problem.into()));
    }
    if args.superblock.superblock.is_some() && !args.salvage {
        let problem =
            "--superblock requires --salvage; all other reads find superblock copies automatically";
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
    let fs = image.file_system()?;
    let report = if to_output {
        let mut progress = CopyProgress::new("extracting:");
        terminal::with_output(|out| extract_to_tar(fs.paths(), out, &options, &mut progress))?
    } else if to_archive {
        diskwright::clean_up_on_signals()?;
        let mut progress = CopyProgress::new("extracting:");
        extract_to_tar_file(fs.paths(), &args.destination, &options, &mut progress)?
    } else {
        let mut progress = CopyProgress::new("extracting:");
        extract_to_directory(fs.paths(), &args.destination, &options, &mut progress)?
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
    let mut open = args.image.options()?;
    open.superblock = args.superblock.superblock;
    let repair = Repair::open_to_plan(&args.image.image, &open)?;
    let watch = PlanProgress::new(diskwright::stop_on_signals()?);
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
            &"the image is not modified: the repair was computed in memory, and its result is \
              extracted",
        );
    }
    Ok((image, Salvaged { repair, is_sound }))
}

fn finish(args: &ExtractArgs, report: &ExtractReport) -> Result<Outcome> {
    if report.unreadable > 0 || report.left_out > 0 {
        terminal::message(&format_args!(
            "{} files could not be read, {} items were left out",
            report.unreadable, report.left_out
        ));
    }
    for LostFile { path, ranges, .. } in &report.lost {
        terminal::message(&format_args!(
            "{path}: {} bytes are zeros, because they could not be read: {ranges}",
            ranges.bytes
        ));
    }
    if report.lost_left_out > 0 {
        terminal::message(&format_args!("and {} further files", report.lost_left_out));
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
