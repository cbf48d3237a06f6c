//! Checks the realtime section: the extents of realtime files against each other, the bitmap, the summary and the
//! superblock's count.
//!
//! These files, and the trees of realtime groups, are on the data device. So only the superblock of groups is read from
//! the realtime device.

mod differences;
mod files;
mod group_files;
mod groups;
mod space;
mod used;

use vfs::check::Finding;

use self::used::Listed;
use super::codes;
use super::diagnose;
use super::forks;
use super::inodes::Inodes;
use crate::format::inode::Fork;

pub(super) use groups::mapped_of;
pub(super) use space::{check, rebuild};
pub(super) use used::{FileClaims, UsedExtents};
pub(crate) use used::{file_size, group_file_size};

/// Reports extents that were claimed more than once, with their owners.
fn report_disputed(inodes: &Inodes<'_>, used: &UsedExtents) {
    let mut disputed = used.disputed.lock().clone();
    if disputed.is_empty() {
        return;
    }
    disputed.sort_unstable();
    disputed.dedup();
    let again = UsedExtents::of(used.realtime, None, Some(disputed));
    diagnose::quietly(inodes, |quiet| {
        let quiet = Inodes { realtime: Some(&again), ..*quiet };
        quiet.each_used(|ino, inode| {
            if inode.is_realtime() {
                forks::map(&quiet, ino, inode, Fork::Data, |_| {});
            }
        });
    });
    let Some(Listed { claims, .. }) = again.listed else { return };
    let mut claims = claims.into_inner();
    claims.sort_unstable();
    let mut last: Option<(u64, Vec<u64>)> = None;
    for of_extent in claims.chunk_by(|a, b| a.0 == b.0) {
        let extent = of_extent[0].0;
        let owners: Vec<u64> = of_extent.iter().map(|(_, ino)| *ino).collect();
        // Adjacent extents with the same owners are one finding.
        if !last.as_ref().is_some_and(|(before, same)| *before + 1 == extent && *same == owners) {
            let names: Vec<String> = owners.iter().map(|ino| format!("inode {ino}")).collect();
            let detail = format!("realtime extent {extent} is used by {}", names.join(" and "));
            let finding = Finding::new(codes::REALTIME_TWICE).of_inode(owners[0]);
            inodes.ctx.found(finding.detail(detail));
        }
        last = Some((extent, owners));
    }
}
