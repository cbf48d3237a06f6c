//! Checks targets of symbolic links.

use std::mem::offset_of;

use vfs::Ino;
use vfs::check::Finding;

use super::codes;
use super::context::Context;
use crate::format::bytes::be64;
use crate::format::extent::Extent;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::symlink::{self, HEADER_SIZE, RawHeader, TARGET_LEN_MAX};

/// Checks the target of a link whose extent map was walked.
pub(super) fn check(ctx: &Context<'_>, ino: Ino, inode: &Inode, extents: &[Extent]) {
    let fault = |detail: &str| Finding::new(codes::SYMLINK).of_inode(ino.0).detail(detail);
    let len = inode.size() as usize;
    if len > TARGET_LEN_MAX {
        return ctx.found(fault("length").mismatch(format_args!("at most {TARGET_LEN_MAX}"), len));
    }
    if inode.format() == ForkFormat::Local {
        let target = inode.fork(Fork::Data).get(..len).unwrap_or_default();
        if target.contains(&0) {
            ctx.found(fault("NUL in the target"));
        }
        return;
    }
    let Some(target) = read(ctx, ino, len, extents) else { return };
    if target.len() != len {
        ctx.found(fault("length of the target in its blocks").mismatch(len, target.len()));
    } else if target.contains(&0) {
        ctx.found(fault("NUL in the target"));
    }
}

fn read(ctx: &Context<'_>, ino: Ino, len: usize, extents: &[Extent]) -> Option<Vec<u8>> {
    let geometry = &ctx.geometry;
    let has_header = geometry.features.crc();
    let mut target = Vec::new();
    let mut next = 0;
    for extent in extents {
        let most = u64::from(symlink::blocks_for(geometry, TARGET_LEN_MAX));
        if extent.offset.0 != next || next + extent.len > most {
            let finding = Finding::new(codes::SYMLINK).of_inode(ino.0);
            ctx.found(finding.detail("its blocks are not contiguous or too many"));
            return None;
        }
        next += extent.len;
        let block = geometry.device_block(extent.start);
        let mut run = vec![0; (extent.len as usize) << geometry.block_log];
        if !ctx.read(block, &mut run) {
            return None;
        }
        if !has_header {
            let left = len.saturating_sub(target.len());
            target.extend_from_slice(&run[..left.min(run.len())]);
            continue;
        }
        let range = match symlink::verify(geometry, ino, block, &run) {
            Err(damage) if damage.is_checksum() => {
                ctx.damage(codes::SYMLINK_CHECKSUM, &damage, Some(block));
                symlink::verify_structure(geometry, ino, block, &run)
            }
            outcome => outcome,
        };
        let lsn = be64(&run, offset_of!(RawHeader, lsn));
        ctx.check_lsn(lsn, || Finding::new(codes::LSN).of_inode(ino.0).at_block(block.0));
        match range {
            Ok(range) if range.start as usize == target.len() => {
                let bytes = range.len();
                target.extend_from_slice(&run[HEADER_SIZE..HEADER_SIZE + bytes]);
            }
            Ok(range) => {
                let finding = Finding::new(codes::SYMLINK).of_inode(ino.0).at_block(block.0);
                ctx.found(finding.field("sl_offset").mismatch(target.len(), range.start));
                return None;
            }
            Err(damage) => {
                ctx.damage(codes::SYMLINK, &damage, Some(block));
                return None;
            }
        }
    }
    Some(target)
}
