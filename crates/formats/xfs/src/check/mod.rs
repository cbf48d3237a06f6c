//! Checks an image for consistency. Nothing is written.
//!
//! - **The log** is replayed in memory first; the check sees the same state as a mount.
//! - **Groups** are checked in parallel: headers, then each tree once, in the order of keys.
//! - **Inodes** are read in the order of their locations, with large reads, by several threads. Maps, directories and
//!   attributes are checked when their inode is visited.
//! - **Global consistency** is checked with sums instead of lists: the reverse map against all owners of blocks,
//!   reference counts, hash indexes against entries, parent pointers against names. Each side adds to a sum what the
//!   other subtracts. Only if the sum is not zero are both sides listed and compared.
//!
//! INVARIANT: memory is bounded by the image's size, whatever its contents: one bit per block in two sets, and 13 bytes
//! per inode (8 more for a directory).

mod announced;
mod attributes;
mod chunks;
pub(crate) mod codes;
mod context;
mod diagnose;
mod directory;
pub(crate) mod fields;
mod finish;
mod forks;
mod groups;
mod inodes;
mod links;
mod metadir;
mod names;
pub(crate) mod owners;
mod quota;
#[cfg(test)]
mod quota_tests;
pub(crate) mod realtime;
pub(crate) mod references;
mod sums;
pub(crate) mod superblock;
pub(crate) mod superblock_fields;
pub(crate) mod survey;
mod symlink;
mod tree;
mod unlinked;
pub(crate) mod view;

use std::sync::Arc;

use disk::BlockDevice;
use vfs::check::{Observer, Options, Phase, Summary};
use vfs::{Error, Result};

pub use codes::CODES;
use context::Context;
use inodes::Inodes;
use links::InodeLinks;
use owners::Owners;
use quota::Usage;
use realtime::UsedExtents;

use crate::format::dir::DirLayout;

/// Checks an image and reports all findings to `observer`. Does not write to the device.
///
/// # Errors
/// `Unsupported` for images that cannot be checked: unknown incompatible features, or a log on another device. All damage
/// is reported as findings.
pub fn check(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Summary> {
    observer.progress(Phase::Superblock, 0, 1);
    let Some(image) = superblock::open(device, options, observer)? else {
        return Ok(Summary::default());
    };
    let mut ctx = Context::new(image.device, image.sb, observer, options.threads, image.head);
    ctx.is_log_clean = image.is_log_clean;
    superblock::check(&ctx);
    observer.progress(Phase::Superblock, 1, 1);
    let owners = Owners::new(&ctx.geometry);
    let Some((chunks, totals)) = groups::check(&ctx, &owners) else {
        let advice = "xfs_repair -n checks such images";
        return Err(Error::unsupported("more than 2^32 inodes", advice));
    };
    let links = InodeLinks::new(&ctx, &chunks);
    let usage = Usage::new(&ctx, image.uncounted);
    let layout = DirLayout::new(&ctx.geometry);
    let mut inodes = Inodes {
        ctx: &ctx,
        owners: &owners,
        chunks: &chunks,
        links: &links,
        usage: usage.as_ref(),
        pointers: None,
        layout,
        realtime: None,
    };
    let realtime = UsedExtents::new(&inodes);
    inodes.realtime = realtime.as_ref();
    inodes.check();
    let mut summary = finish::finish(&inodes, &totals);
    summary.transactions_replayed = image.transactions;
    Ok(summary)
}
