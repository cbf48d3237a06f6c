//! `diskwright recover`.

use clap::Args;
use diskwright::edit::{RecoverDetails, RecoverReport};
use diskwright::{Outcome, Result};

use crate::commands::arguments::ImageToEdit;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright recover root.img
  diskwright recover --partition 2 disk.img --json

After a crash, the journal or log contains changes that are not yet written to their final location, and some files can be \
partly removed or truncated. This command completes both. Commands that change an image do so first; commands that only \
read replay the journal or log in memory. After a crash of this command, run it again.";

/// Replay the journal or log of an image and complete unfinished removals and truncations
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    image: ImageToEdit,

    /// Write the result as one JSON object to standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RecoverArgs) -> Result<Outcome> {
    let report = args.image.place.options(false).recover(&args.image.image)?;
    if args.json {
        terminal::json_line(&report)?;
    } else {
        terminal::message(&sentence(&report));
    }
    if let Some(errno) = report.journal_errno() {
        terminal::message(&format_args!(
            "the kernel recorded error {errno} in the journal; run diskwright repair on the image"
        ));
    }
    Ok(Outcome::Done)
}

fn sentence(report: &RecoverReport) -> String {
    if report.is_nothing() {
        return "nothing to recover: the image is clean".into();
    }
    let RecoverReport { transactions, orphans_freed, details } = report;
    let removed = format!("removed {orphans_freed} orphans");
    match details {
        RecoverDetails::Ext { blocks_replayed, blocks_revoked, orphans_truncated, .. } => format!(
            "replayed {transactions} transactions ({blocks_replayed} blocks, {blocks_revoked} \
             revoked), {removed}, completed {orphans_truncated} truncations"
        ),
        RecoverDetails::Xfs { items_replayed, items_skipped, intents } => format!(
            "replayed {transactions} transactions ({items_replayed} items, {items_skipped} \
             skipped), completed {intents} pending intents, {removed}"
        ),
        _ => format!("replayed {transactions} transactions, {removed}"),
    }
}
