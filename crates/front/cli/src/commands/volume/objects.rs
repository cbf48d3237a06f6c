//! `diskwright volume stat`, `check` and `gc`: the objects of a volume.

use std::io::Write;

use clap::Args;
use diskwright::volume::{self, GarbageCount, VolumeSurvey};
use diskwright::{Error, Outcome, Result, text};
use serde::Serialize;

use super::TakeOverArgs;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct StatArgs {
    /// Address of the volume, or URL@SNAPSHOT
    url: String,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Address of the volume, or URL@SNAPSHOT
    url: String,

    /// Read all objects and verify the checksum of each block
    #[arg(long)]
    data: bool,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    /// Address of the volume
    url: String,

    #[command(flatten)]
    open: TakeOverArgs,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn stat(args: &StatArgs) -> Result<()> {
    let survey = volume::survey(&args.url, false)?;
    show(args.json, &survey, |out| {
        let VolumeSurvey { objects, unreferenced, region_objects_max, .. } = survey;
        writeln!(out, "size: {}", text::size(survey.len))?;
        writeln!(out, "data in the database: {}", text::size(survey.database_bytes))?;
        writeln!(out, "data in objects: {}", text::size(survey.bulk_bytes))?;
        writeln!(out, "objects: {objects}, {}", text::size(survey.objects_bytes))?;
        let bytes = text::size(survey.unreferenced_bytes);
        writeln!(out, "objects that this state does not use: {unreferenced}, {bytes}")?;
        writeln!(out, "maximum number of objects in 4 MiB: {region_objects_max}")
    })
}

pub(super) fn check(args: &CheckArgs) -> Result<Outcome> {
    let survey = volume::survey(&args.url, args.data)?;
    show(args.json, &survey, |out| {
        for problem in &survey.problems {
            writeln!(out, "{}", disk::address::safe_line(problem))?;
        }
        let checked = if args.data { "verified" } else { "present" };
        match survey.damaged_blocks {
            0 => writeln!(out, "all {} in objects are {checked}", text::size(survey.bulk_bytes)),
            count => writeln!(out, "{count} blocks are damaged; restore them from a snapshot"),
        }
    })?;
    Ok(if survey.damaged_blocks == 0 { Outcome::Done } else { Outcome::Image })
}

pub(super) fn gc(args: &GcArgs) -> Result<()> {
    let count = volume::gc(&args.url, args.open.take_over)?;
    show(args.json, &count, |out| {
        let GarbageCount { objects, removed, waiting, .. } = count;
        writeln!(
            out,
            "{removed} of {objects} objects removed, {}; {waiting} objects are unused, {}, and \
             can be removed in a day",
            text::size(count.removed_bytes),
            text::size(count.waiting_bytes),
        )
    })
}

/// Writes a result as JSON or as text.
fn show(
    json: bool,
    result: &impl Serialize,
    write_text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    terminal::with_output(|out| {
        let written = if json {
            let line = serde_json::to_string(result).map_err(|e| Error::Output(e.into()))?;
            writeln!(out, "{}", disk::address::safe_json(line))
        } else {
            write_text(out)
        };
        written.map_err(Error::Output)
    })
}
