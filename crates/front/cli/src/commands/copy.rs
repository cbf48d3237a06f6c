//! `diskwright copy`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use diskwright::block_copy::{CopyOptions, CopyReport, RestoreReport, copy, restore};
use diskwright::output::OutputFormat;
use diskwright::text::{shown, size};
use diskwright::{Error, Outcome, Result};

use crate::commands::arguments::PlaceArgs;
use crate::terminal::{self, RepairProgress};

const NOTES: &str = "\
Examples:
  diskwright copy /dev/vg/snapshot root.img
  diskwright copy --partition 2 disk.img root.qcow2 --output qcow2
  diskwright copy root.img /dev/sdb --force
  diskwright copy --state day0.state /dev/vg/snapshot day0.img
  diskwright copy --state day0.state --resume /dev/vg/snapshot day0.img
  diskwright copy --since day0.state --state day1.state /dev/vg/snapshot day1.inc
  diskwright copy --restore day1.inc day0.img

Copies only blocks in use. All readers see the copy as the image: the journal or log is copied unchanged, and blocks \
that its replay may need are in use. IMAGE is only read, and must not be mounted for changes. An external log and a \
realtime device are not copied. docs/copy.md describes state files and increments.

Exit status:
  0  done
  1  invalid partition
  2  invalid arguments, or nothing to resume
  3  the image is damaged: everything that may be in use was copied; or a state file or an increment is damaged, or \
belongs to another image
  4  a read or write error, no space, or OUT is too small";

/// Copy the blocks of an image that are in use, or only those that changed since an earlier copy
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CopyArgs {
    /// Image to copy; with --restore, the increment
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// File to create, or a block device with --force; with --restore, the copy that the increment was made for
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// Select the format of OUT
    #[arg(long, value_enum, default_value = "raw")]
    output: CopyFormat,

    /// Write the digests of the copy to FILE. A raw copy can then be resumed, and is the base of increments
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Write only what changed since the copy with this state file. OUT is an increment for --restore
    #[arg(long, value_name = "STATE", conflicts_with = "output")]
    since: Option<PathBuf>,

    /// Continue a copy that was interrupted, with the same --state
    #[arg(long, requires = "state", conflicts_with = "since")]
    resume: bool,

    /// Apply an increment to the copy that it was made for, after both are verified
    #[arg(long, conflicts_with_all = ["output", "state", "since", "resume", "force", "partition", "offset"])]
    restore: bool,

    /// Replace an existing file, or overwrite a block device
    #[arg(long)]
    force: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CopyFormat {
    /// The bytes of the image, with holes
    Raw,
    /// qcow2 for virtual machines
    Qcow2,
    /// zstd with a seek table
    #[value(alias = "zst")]
    Zstd,
}

pub(crate) fn run(args: &CopyArgs) -> Result<Outcome> {
    diskwright::clean_up_on_signals()?;
    if args.restore {
        let bar = RepairProgress::new("restoring");
        let restored = restore(&args.image, &args.out, &|part, done, total| {
            bar.show(part, done, total);
            ControlFlow::Continue(())
        });
        drop(bar);
        return show_restored(args, &restored?);
    }
    let format = match args.output {
        CopyFormat::Raw => OutputFormat::Raw,
        CopyFormat::Qcow2 => OutputFormat::Qcow2,
        CopyFormat::Zstd => OutputFormat::Zstd,
    };
    let mut options = CopyOptions::new(&args.image, &args.out)
        .open(args.place.options(false))
        .format(format)
        .resume(args.resume)
        .force(args.force);
    (options.state, options.since) = (args.state.clone(), args.since.clone());
    let bar = RepairProgress::new("copying");
    let copied = copy(&options, &|part, done, total| {
        bar.show(part, done, total);
        ControlFlow::Continue(())
    });
    drop(bar);
    show_copied(args, &copied?)
}

fn show_copied(args: &CopyArgs, report: &CopyReport) -> Result<Outcome> {
    report.remarks.iter().for_each(|remark| terminal::message(remark));
    if args.json {
        terminal::json_line(report)?;
        return Ok(report.outcome());
    }
    let out = shown(&args.out);
    let (written, used) = (size(report.written_bytes), size(report.used_bytes));
    let resumed = match report.resumed_bytes {
        0 => String::new(),
        bytes => format!(", {} written before", size(bytes)),
    };
    line(&format!(
        "{out}: {used} in use of {}; {written} written{resumed}; SHA-256 {}",
        size(report.image_bytes),
        report.sha256
    ))?;
    Ok(report.outcome())
}

fn show_restored(args: &CopyArgs, report: &RestoreReport) -> Result<Outcome> {
    if args.json {
        terminal::json_line(report)?;
        return Ok(Outcome::Done);
    }
    let (out, written) = (shown(&args.out), size(report.written_bytes));
    line(&format!("{out}: {written} restored; SHA-256 {}", report.sha256))?;
    Ok(Outcome::Done)
}

fn line(text: &str) -> Result<()> {
    use std::io::Write;
    terminal::with_output(|out| writeln!(out, "{text}").map_err(Error::Output))
}
