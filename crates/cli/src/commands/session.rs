//! What the commands that change an image have in common: opening it, going on after what cannot
//! be done, and closing it whatever happened.

use std::ffi::OsString;

use diskwright::build::Owner;
use diskwright::edit::{Editor, Policy};
use diskwright::{Error, Image, Outcome, Result};
use vfs::Timestamp;

use crate::commands::arguments::{ImageToEdit, bytes};
use crate::commands::making::source_date_epoch;
use crate::terminal;

/// Who owns new files, and the time of all changes: now, unless `SOURCE_DATE_EPOCH` says when.
pub(super) fn policy(owner: Option<Owner>) -> Result<Policy> {
    let mut policy = Policy::now(owner);
    if let Some(sec) = source_date_epoch()? {
        policy.time = Timestamp { sec, nsec: 0 };
    }
    Ok(policy)
}

/// Opens an image, lets `change` work in it and closes it. What was done before an error stays.
pub(super) fn edit(
    args: &ImageToEdit,
    owner: Option<Owner>,
    change: impl FnOnce(Editor<'_>) -> Result<Outcome>,
) -> Result<Outcome> {
    let policy = policy(owner)?;
    let open = Image::edit(&args.image, &args.place.options(false))?;
    let outcome = change(open.editor(policy)).unwrap_or_else(|error| told(&error));
    open.close()?;
    Ok(outcome)
}

/// Does something to each path. A path for which that fails is named, and the others are done; but
/// damage and failures of the device are the end.
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

/// Says what went wrong; what that means for the exit status.
pub(super) fn told(error: &Error) -> Outcome {
    terminal::message(&error.with_advice());
    error.outcome()
}
