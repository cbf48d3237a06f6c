//! Properties of an image.

use std::ops::ControlFlow;

use diskwright::disk_map::{Curve, Options, Survey};
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::superblock::{STATE_ERROR, STATE_VALID};
use serde::Serialize;
use vfs::text;

use crate::entry::lossy;
use crate::failure::Result;
use crate::volume::Fs;

/// The image as a whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Info {
    /// `ext2`, `ext3`, `ext4` or `xfs`.
    format: &'static str,
    label: String,
    uuid: String,
    block_size: u32,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    inodes: u64,
    inodes_free: u64,
    /// `clean`, or the problem.
    state: String,
    /// Number of replayed transactions, in memory if opened for reading.
    replayed_transactions: u64,
    features: Vec<String>,
    /// Damage that does not prevent reading.
    remarks: Vec<String>,
}

/// Returns the properties of an open image.
///
/// # Errors
/// If its totals cannot be read.
pub(crate) fn info(fs: &Fs) -> Result<Info> {
    let totals = fs.files().statfs()?;
    let mut info = match fs {
        Fs::Ext(fs) => of_ext(fs),
        Fs::Xfs(fs) => of_xfs(fs),
    };
    info.block_size = totals.block_size;
    info.blocks_free = totals.blocks_free;
    info.blocks_available = totals.blocks_available;
    info.inodes = totals.inodes;
    info.inodes_free = totals.inodes_free;
    Ok(info)
}

/// Returns a map of the disk layout as SVG.
///
/// # Errors
/// If the device fails.
pub(crate) fn map(fs: &Fs, title: &str, cells: u32) -> Result<String> {
    let survey = Survey::take(fs.layout(), cells as usize, &mut |_, _| ControlFlow::Continue(()))?;
    let format = info(fs)?.format.into();
    Ok(diskwright::disk_map::svg(
        &survey,
        &Options { title: title.into(), format, curve: Curve::Rows },
    ))
}

/// A uuid with its dashes.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits = text::hex(uuid);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

fn of_ext(fs: &ext4::Ext4) -> Info {
    let superblock = fs.superblock_found();
    let raw = &superblock.raw;
    let features = &superblock.features;
    let state = raw.state.get();
    let newer = Incompat::FILETYPE | Incompat::META_BG | Incompat::RECOVER;
    let older = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    let is_ext4 = !newer.contains(features.incompat) || !older.contains(features.ro_compat);
    let has_journal = features.compat(ext4::format::features::Compat::HAS_JOURNAL);
    Info {
        format: if is_ext4 { "ext4" } else { ["ext2", "ext3"][usize::from(has_journal)] },
        label: lossy(superblock.label()),
        uuid: uuid_text(&raw.uuid),
        block_size: 0,
        blocks: superblock.blocks_count,
        blocks_free: 0,
        blocks_available: 0,
        inodes: 0,
        inodes_free: 0,
        state: if state & STATE_ERROR != 0 {
            "has errors"
        } else if fs.needs_recovery() {
            "its journal must be replayed"
        } else if state & STATE_VALID == 0 {
            "not cleanly unmounted"
        } else {
            "clean"
        }
        .into(),
        replayed_transactions: fs.recovered().transactions.into(),
        features: features.names(),
        remarks: fs.remarks().to_vec(),
    }
}

fn of_xfs(fs: &xfs::Xfs) -> Info {
    let superblock = fs.superblock_found();
    let raw = &superblock.raw;
    let label_len = raw.fname.iter().position(|&byte| byte == 0).unwrap_or(raw.fname.len());
    let transactions = fs.recovered().transactions;
    let names = superblock.features.names();
    Info {
        format: "xfs",
        label: lossy(&raw.fname[..label_len]),
        uuid: uuid_text(&raw.uuid),
        block_size: 0,
        blocks: raw.dblocks.get(),
        blocks_free: 0,
        blocks_available: 0,
        inodes: 0,
        inodes_free: 0,
        state: if transactions > 0 { "its log must be replayed" } else { "clean" }.into(),
        replayed_transactions: transactions,
        features: names.into_iter().flat_map(|(_, names)| names).collect(),
        remarks: fs.remarks().to_vec(),
    }
}
