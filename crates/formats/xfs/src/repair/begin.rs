//! Handles the log before anything else is examined.

use std::sync::Arc;

use disk::BlockDevice;
use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{Error, Result};

use super::damaged_log;
use super::restart::restart;
use crate::XfsCore;
use crate::check::codes;
use crate::format::features::Incompat;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;
use crate::log;
use crate::volume::read_superblock;

/// Size of the cache for a replay, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// Returns whether an image has a realtime section: three fields of the superblock must say so. One field alone is
/// treated as damage, which the copies of the superblock correct.
pub(super) fn has_section(staging: &Staging) -> bool {
    read_superblock(staging).is_ok_and(|sb| {
        let raw = &sb.raw;
        raw.rblocks.get() != 0 && raw.rextents.get() != 0 && raw.rbmblocks.get() != 0
    })
}

/// Refuses to repair an image without its realtime device.
pub(super) fn require_device(staging: &Staging) -> Result<()> {
    if has_section(staging) { crate::open::realtime::require_device(staging) } else { Ok(()) }
}

/// Refuses to repair an image with a zoned realtime device.
///
/// # Errors
/// `Unsupported` for such an image.
pub(super) fn refuse_zones(staging: &Arc<Staging>) -> Result<()> {
    // A damaged superblock is repaired first.
    let Ok(sb) = read_superblock(&**staging) else { return Ok(()) };
    if !sb.features.incompat(Incompat::ZONED) {
        return Ok(());
    }
    Err(Error::unsupported("repairing an image with a zoned realtime device", "use xfs_repair"))
}

/// Replays the log. A log that cannot be replayed is emptied.
pub(super) fn replay(staging: &Arc<Staging>) -> Result<()> {
    let Ok(sb) = read_superblock(&**staging) else { return Ok(()) };
    let damage = match log::log_is_clean(&**staging, &sb) {
        Ok(true) => return without_torn(staging, &sb),
        Ok(false) => match sb.unmaintained() {
            Some(reason) => {
                let what =
                    format!("replaying the log of an image that cannot be written ({reason})");
                return Err(Error::unsupported(what, "mount and unmount it once"));
            }
            None => None,
        },
        // A log on another device is not handled here; an unreadable log stays so.
        Err(Error::Unsupported(_) | Error::Device(_)) => return Ok(()),
        Err(error) => Some(error),
    };
    let damage = match damage {
        Some(error) => error,
        None => match whole(Arc::clone(staging) as _) {
            // The replay leaves the log of version 4 unchanged.
            Ok(_) if !sb.features.crc() && restart(staging).is_err() => {
                Error::Invalid("the log cannot be emptied")
            }
            Ok(transactions) => {
                let what = format!("The log is replayed: {}.", counted(transactions));
                return end(staging, Action::new(what));
            }
            Err(Error::Unsupported(unsupported)) => return Err(Error::Unsupported(unsupported)),
            Err(error) => error,
        },
    };
    staging.abandon();
    let finding = match damage {
        Error::Corrupt(damage) => Finding::of_damage(codes::LOG, &damage),
        error => Finding::new(codes::LOG).detail(error.to_string()),
    };
    emptied(staging, &sb, &finding)
}

/// Clears blocks after the end of a clean log if kernels may take them for records.
fn without_torn(staging: &Arc<Staging>, sb: &Superblock) -> Result<()> {
    if sb.read_only_because().is_some() || !log::has_torn_records(&**staging, sb).unwrap_or(false) {
        return Ok(());
    }
    if log::recover(&**staging, sb).is_err() {
        staging.abandon();
        return Ok(());
    }
    end(staging, Action::new("Torn records after the head of the log are overwritten."))
}

/// Replays the log as when the image is opened, and leaves it clean.
pub(super) fn whole(device: Arc<dyn BlockDevice>) -> Result<u64> {
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
    let fs = XfsCore::open_recovered(device, &options)?;
    fs.engine.checkpoint()?;
    fs.flush_superblock()?;
    fs.engine.empty_log()?;
    fs.log.as_ref().map_or(Ok(()), log::XfsLog::close)?;
    Ok(fs.recovered.transactions)
}

/// Replays as much as possible without reading groups, whose headers may be damaged, and empties the log.
fn emptied(staging: &Arc<Staging>, sb: &Superblock, finding: &Finding) -> Result<()> {
    let what = match log::recover(&**staging, sb) {
        Ok(recovered) => format!(
            "The log is replayed ({}) and emptied; {} pending intents are not completed.",
            counted(recovered.report.transactions),
            recovered.intents.len()
        ),
        Err(_) => {
            staging.abandon();
            match damaged_log::replay(staging, sb)? {
                Some(transactions) => format!(
                    "The log is replayed up to the damage ({}) and emptied; the rest is lost.",
                    counted(transactions)
                ),
                None => "The log is emptied, because it cannot be replayed.".to_owned(),
            }
        }
    };
    if restart(staging).is_err() {
        // The log is not changed, and the check reports it.
        staging.abandon();
        return Ok(());
    }
    end(staging, Action::about(finding, what))
}

fn end(staging: &Staging, action: Action) -> Result<()> {
    staging.end_step(vec![action]).map(drop).map_err(Error::Device)
}

/// Formats a number of transactions.
fn counted(transactions: u64) -> String {
    if transactions == 1 { "1 transaction".into() } else { format!("{transactions} transactions") }
}
