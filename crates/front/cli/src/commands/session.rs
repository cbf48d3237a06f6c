//! Common code of commands that change an image: opening it, continuing after an operation that
//! failed, and closing it in all cases.

use std::ffi::OsString;

use diskwright::build::Owner;
use diskwright::edit::{Editor, Policy};
use diskwright::{Error, Outcome, Result};
use vfs::Timestamp;

use crate::commands::arguments::{ImageToEdit, bytes};
use crate::commands::making::source_date_epoch;
use crate::terminal;

/// Returns the owner of new files and the time of all changes: now, or `SOURCE_DATE_EPOCH`.
pub(super) fn policy(owner: Option<Owner>) -> Result<Policy> {
    let mut policy = Policy::now(owner);
    if let Some(sec) = source_date_epoch()? {
        policy.time = Timestamp { sec, nsec: 0 };
    }
    Ok(policy)
}

/// Opens an image, runs `change` on it and closes it. Changes made before an error are kept.
pub(super) fn edit(
    args: &ImageToEdit,
    owner: Option<Owner>,
    change: impl FnOnce(Editor<'_>) -> Result<Outcome>,
) -> Result<Outcome> {
    let policy = policy(owner)?;
    let open = args.open()?;
    let outcome = change(open.file_system()?.editor(policy)).unwrap_or_else(|error| told(&error));
    open.close()?;
    Ok(outcome)
}

/// Runs an operation on each path. Prints failures and continues, but stops on damage and device
/// errors.
pub(super) fn each<'a>(
    paths: impl IntoIterator<Item = &'a OsString>,
    mut change: impl FnMut(&[u8]) -> Result<()>,
) -> Outcome {
    let mut worst = Outcome::Done;
    for path in paths {
        if let Err(error) = change(bytes(path)) {
            worst = worst.max(told(&error));
        }
        if worst >= Outcome::Image {
            break;
        }
    }
    worst
}

/// Prints an error and returns its outcome.
pub(super) fn told(error: &Error) -> Outcome {
    terminal::message(&error.with_advice());
    error.outcome()
}
