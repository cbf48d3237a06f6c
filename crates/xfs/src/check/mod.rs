//! Checking an image: everything it says, against everything else it says. Nothing is written.
//!
//! - **The log** is replayed in memory first; what is checked is what a mount would see.
//! - **Groups** are gone through side by side: headers, then each tree once, in the order of keys.
//! - **Inodes** are read in the order of their place and in large pieces, by several threads. What an inode
//!   owns is looked at when it is met: maps, directories, attributes.
//! - **What spans the image** is not kept but summed up: the reverse map against all that owns blocks, counts
//!   of references, hash indexes against entries, parent pointers against names. Each side adds to a sum what
//!   the other subtracts. Only where something is left over are both sides listed and compared.
//!
//! INVARIANT: memory is bounded by the image's size, whatever it says: a bit a block in two sets, and 13 bytes
//! an inode (8 more for a directory).

mod announced;
mod attributes;
mod chunks;
pub(crate) mod codes;
pub(crate) mod context;
mod diagnose;
mod directory;
mod fields;
mod finish;
mod forks;
mod groups;
mod inodes;
mod links;
mod names;
mod owners;
mod quota;
#[cfg(test)]
mod quota_tests;
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

use ::check::{Observer, Options, Phase, Summary};
use blockdev::BlockDevice;
use vfs::{Error, Result};

pub use codes::CODES;
use context::Context;
use inodes::Inodes;
use links::Links;
use owners::Owners;
use quota::Usage;

use crate::format::dir::Layout;

/// Checks an image and tells `observer` of all that is wrong with it. The device is not written to.
///
/// # Errors
/// `Unsupported` for images that cannot be looked at: unknown incompatible features, metadata directories,
/// realtime devices, a log on another device or one of version 4 that must be replayed. Whatever is damaged is
/// a finding.
pub fn check(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Summary> {
    observer.progress(Phase::Superblock, 0, 1);
    let Some(image) = superblock::open(device, options, observer)? else {
        return Ok(Summary::default());
    };
    let head = superblock::log_head(&*image.device, &image.sb);
    let mut ctx = Context::new(image.device, image.sb, observer, options.threads, head);
    ctx.is_log_clean = image.is_log_clean;
    superblock::check(&ctx);
    observer.progress(Phase::Superblock, 1, 1);
    let owners = Owners::new(&ctx.geometry);
    let Some((chunks, totals)) = groups::check(&ctx, &owners) else {
        let advice = "xfs_repair -n checks such images";
        return Err(Error::unsupported("more than 2^32 inodes", advice));
    };
    let links = Links::new(&ctx, &chunks);
    let usage = Usage::new(&ctx, image.uncounted);
    let layout = Layout::new(&ctx.geometry);
    let inodes = Inodes {
        ctx: &ctx,
        owners: &owners,
        chunks: &chunks,
        links: &links,
        usage: usage.as_ref(),
        pointers: None,
        layout,
    };
    inodes.check();
    let mut summary = finish::finish(&inodes, &totals);
    summary.transactions_replayed = image.transactions;
    Ok(summary)
}
