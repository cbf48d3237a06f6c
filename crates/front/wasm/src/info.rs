//! Properties of an image.

use std::ops::ControlFlow;

use diskwright::disk_map::{Curve, Options, Survey};
use diskwright::{Details, Image, ImageInfo, ImageState};
use serde::Serialize;

use crate::entry::lossy;
use crate::failure::Result;

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
    state: &'static str,
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
pub(crate) fn info(image: &Image) -> Result<Info> {
    let totals = image.statfs()?;
    let (found, replayed) = (image.info()?, image.recovery().transactions);
    Ok(Info {
        format: found.format_name(),
        label: lossy(&found.label),
        uuid: found.uuid_text(),
        block_size: totals.block_size,
        blocks: found.blocks,
        blocks_free: totals.blocks_free,
        blocks_available: totals.blocks_available,
        inodes: totals.inodes,
        inodes_free: totals.inodes_free,
        state: state(&found, replayed),
        replayed_transactions: replayed,
        features: found.features().into_iter().flat_map(|group| group.names).collect(),
        remarks: image.remarks().to_vec(),
    })
}

/// Returns the state at the time of opening.
fn state(found: &ImageInfo, replayed: u64) -> &'static str {
    match &found.details {
        Details::Ext(_) if found.state == ImageState::HasErrors => found.state.text(),
        Details::Ext(_) if found.needs_recovery => "its journal must be replayed",
        Details::Ext(_) => found.state.text(),
        Details::Xfs(_) if replayed > 0 => "its log must be replayed",
        Details::Xfs(_) => ImageState::Clean.text(),
    }
}

/// Returns a map of the disk layout as SVG.
///
/// # Errors
/// If the device fails.
pub(crate) fn map(image: &Image, title: &str, cells: u32) -> Result<String> {
    let fs = image.file_system()?;
    let survey = Survey::take(fs.layout(), cells as usize, &mut |_, _| ControlFlow::Continue(()))?;
    let format = info(image)?.format.into();
    Ok(diskwright::disk_map::svg(
        &survey,
        &Options { title: title.into(), format, curve: Curve::Rows },
    ))
}
