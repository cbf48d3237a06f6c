//! Checks of an image. Nothing is ever written.
//!
//! These parts run one after the other. Each covers all groups or directories, which several threads share:
//!
//! 1. Superblock, descriptors, their backups, the journal (`superblock`, `groups`, `journal`). The journal is first
//!    replayed in memory. Orphans (`orphans`).
//! 2. Inode tables, each read from start to end (`survey`): every inode in use (`inode`), its map (`mapping`), the
//!    blocks that it claims (`contents`, `claims`), its attributes (`attributes`).
//! 3. Directories in device order (`directories`): entries (`leaf`), indexes (`tree`); then reachability and link
//!    counts (`connect`).
//! 4. Bitmaps and counts compared with the results (`bitmaps`), quota (`quota`).
//! 5. Only with findings: inodes that share blocks (`shared`), and paths (`paths`).
//!
//! The check stores 8 bytes per inode, 40 per directory, and one bit per cluster. Each structure is walked only once,
//! so that a check always ends: a map node for the inode that claims it first, an index block for the entry that leads
//! to it first.

mod attributes;
mod bitmaps;
pub(crate) mod checked_image;
mod claims;
pub(crate) mod codes;
mod connect;
mod contents;
mod context;
mod directories;
mod groups;
mod in_use;
mod inode;
mod inodes;
mod journal;
mod leaf;
mod mapping;
mod orphans;
mod paths;
mod quota;
mod references;
mod resize;
mod shared;
mod superblock;
mod survey;
mod tally;
mod tree;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::BlockDevice;
use vfs::Result;
use vfs::check::{Observer, Options, Phase, Summary};

pub use codes::CODES;
use context::Context;
use directories::Directories;
pub(crate) use in_use::{InUse, find_in_use};
pub(crate) use superblock::ENCODING_UTF8;

use crate::params::Params;

/// Checks an ext2, ext3 or ext4 image and reports all findings to `observer`. Writes nothing; a journal is replayed in
/// memory, unless the options contain `norecovery`.
///
/// # Errors
/// `Unsupported` for unknown features, and for a journal on another device. Everything else is a finding, including
/// device errors and a missing superblock.
pub fn check(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Summary> {
    observer.progress(Phase::Superblock, 0, 1);
    let Some(start) = superblock::begin(device, options, observer)? else {
        return Ok(Summary::default());
    };
    let params = Params::of(start.sb);
    let mut context = Context::new(start.device, observer, options.threads, params);
    context.ignores_journal = options.norecovery;
    context.check_groups();
    context.check_superblock();
    context.check_journal()?;
    context.find_orphans();
    observer.progress(Phase::Superblock, 1, 1);
    let directories = survey::survey(&context);
    if !observer.is_cancelled() {
        context.check_special_inodes();
        context.check_used_features();
        context.check_references();
    }
    context.check_names(&directories);
    context.release(&directories);
    let used = context.claims.used();
    Ok(Summary {
        is_complete: context.is_complete(),
        transactions_replayed: start.transactions_replayed,
        inodes: context.inodes_used.load(Ordering::Relaxed),
        directories: context.directories.load(Ordering::Relaxed),
        blocks_used: used.count(0..used.limit()),
        blocks: used.limit(),
    })
}

/// Checks an image using the superblock copy that the caller specifies. A damaged primary superblock is a finding.
///
/// # Errors
/// Like [`check()`]; `Corrupt` if there is no valid superblock at that position.
pub fn check_by_copy(
    device: Arc<dyn BlockDevice>,
    place: crate::SuperblockPlace,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Summary> {
    check(superblock::by_copy(device, place, observer)?, options, observer)
}

impl Context<'_> {
    /// Checks directories and everything that depends on them, until the check is cancelled.
    fn check_names(&self, directories: &Directories) {
        let steps: [&dyn Fn(); 6] = [
            &|| self.check_directories(directories),
            &|| self.check_connections(directories),
            &|| self.check_links(),
            &|| self.check_counts(),
            &|| self.check_quota(),
            &|| self.find_sharers(),
        ];
        for step in steps {
            if self.observer.is_cancelled() {
                return;
            }
            step();
        }
    }
}
