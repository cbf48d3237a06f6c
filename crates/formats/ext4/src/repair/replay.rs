//! Replays the journal as far as possible.

use std::sync::Arc;

use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{Error, Result};

use super::image::StagedImage;
use crate::Ext4;
use crate::check::codes::JOURNAL_REPLAY;
use crate::format::features::{Compat, Incompat};
use crate::format::superblock::STATE_ERROR;
use crate::fs::OpenOptions;
use crate::log::{self, RecoveryReport};
use crate::params::read_superblock;

/// Replays the journal if the superblock requests it. Returns `true` if it was replayed or no replay was needed.
///
/// # Errors
/// `Unsupported` for journals on another device and unknown features, and for fast commits in an image that cannot be
/// changed here. Device errors: unreadable data may be readable on a copy of the device.
pub(super) fn replay(staging: &Arc<Staging>) -> Result<bool> {
    let sb = read_superblock(&**staging)?;
    if !sb.features.incompat(Incompat::RECOVER) || !sb.features.compat(Compat::HAS_JOURNAL) {
        return Ok(true);
    }
    match log::recover(&**staging) {
        Ok(report) if report.fast_commits.is_empty() => end(staging, &report).map(|()| true),
        Ok(_) => {
            staging.abandon();
            replay_fast_commits(staging)
        }
        Err(error) => {
            staging.abandon();
            match error {
                Error::Unsupported(_) | Error::Device(_) => Err(error),
                _ => Ok(false),
            }
        }
    }
}

fn end(staging: &Staging, report: &RecoveryReport) -> Result<()> {
    let what = match report.transactions {
        0 => "The journal is marked as empty, because it has nothing to replay.".to_owned(),
        1 => "The journal is replayed: 1 transaction.".to_owned(),
        count => format!("The journal is replayed: {count} transactions."),
    };
    staging.end_step(vec![Action::new(what)]).map_err(Error::Device)?;
    Ok(())
}

/// Fast commits are applied by operations, so the file system must be opened.
fn replay_fast_commits(staging: &Arc<Staging>) -> Result<bool> {
    let replayed = clear_error(staging)
        .and_then(|()| Ext4::open_writable(Arc::clone(staging) as _, &OpenOptions::default()))
        .and_then(|fs| {
            let transactions = fs.recovered().transactions;
            fs.close().map(|()| transactions)
        });
    let transactions = match replayed {
        Ok(transactions) => transactions,
        Err(error @ (Error::Unsupported(_) | Error::Device(_))) => return Err(error),
        Err(_) => {
            staging.abandon();
            return Ok(false);
        }
    };
    let what = format!("The journal is replayed: {transactions} transactions and fast commits.");
    staging.end_step(vec![Action::new(what)]).map_err(Error::Device)?;
    Ok(true)
}

/// Clears the error flag, which forbids changes.
fn clear_error(staging: &Staging) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    let clear = |raw: &mut crate::format::superblock::RawSuperblock| {
        raw.state = (raw.state.get() & !STATE_ERROR).into();
    };
    image.edit_superblock(clear).map_err(Error::Device)
}

/// Replays the transactions before the damage in a journal, and empties it.
///
/// # Errors
/// If the device fails.
pub(super) fn salvage(staging: &Staging) -> Result<()> {
    match log::salvage(staging) {
        Ok(report) => {
            let what = match report.transactions {
                0 => "The journal is emptied; none of its transactions could be replayed.".into(),
                count => format!(
                    "The journal is replayed up to the damage ({count} transactions) and emptied."
                ),
            };
            let action = Action::about(&Finding::new(JOURNAL_REPLAY), what);
            staging.end_step(vec![action]).map_err(Error::Device)?;
        }
        Err(_) => staging.abandon(),
    }
    Ok(())
}
