//! Finds the metadata of an image and the order of its use: opens the image and walks its tree, breadth first, while the
//! reads are recorded. Metadata that this does not read follow, in the order of the image.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use remote::bundle::Plan;
use vfs::survey::{BlockUse, Extent, FileLayout, Sink, TellsLayout};

use super::order::Order;
use super::reads::RemoteReads;
use super::walk::walk;
use crate::{Error, ImageOptions, Result, image};

/// Returns the plan of a bundle. `device` is the whole device that contains the image, and `start` has the parts that a
/// recorded start reads.
pub(crate) fn plan(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &ImageOptions,
    start: Vec<Range<u64>>,
) -> Result<Plan> {
    let options = options.clone().write(false);
    let (first, len) = image::range(path, &**device, &options)?;
    // The survey reads most metadata in the order of the image. On a remote device this is faster than the walk, which
    // then finds the metadata in memory.
    let found = survey(path, device, &options)?;
    let at = |part: &Range<u64>| first + part.start..first + part.end;
    let outside = [0..first, first + len..device.len()];
    let mut order = Order::of(found.metadata.iter().chain(&found.log).map(at).chain(outside));
    let reads = Arc::new(RemoteReads::new(device));
    let opened = options.open_named(path, Arc::clone(&reads) as _)?;
    reads.ranges().for_each(|part| order.add(part));
    walk(&*opened.file_system()?);
    reads.ranges().for_each(|part| order.add(part));
    found.metadata.iter().map(at).for_each(|part| order.add(part));
    Ok(Plan { metadata: order.into_parts(), start })
}

fn survey(path: &Path, device: &Arc<dyn BlockDevice>, options: &ImageOptions) -> Result<Found> {
    let image = options.open_named(path, Arc::clone(device))?;
    let fs = image.file_system()?;
    let layout: &dyn TellsLayout = fs.layout();
    let shape = layout.shape().map_err(|source| Error::image(path, source))?;
    let mut found = Found { block_bytes: shape.block_size.into(), ..Found::default() };
    layout.tell_layout(&mut found);
    Ok(found)
}

/// Receiver of the layout.
#[derive(Default)]
struct Found {
    block_bytes: u64,
    /// Metadata, in bytes.
    metadata: Vec<Range<u64>>,
    /// The journal or log. Only the parts that opening the image reads are needed.
    log: Vec<Range<u64>>,
}

impl Sink for Found {
    fn extent(&mut self, Extent { start, len, kind }: Extent) {
        let bytes = |block: u64| block.saturating_mul(self.block_bytes);
        let part = bytes(start)..bytes(start.saturating_add(len));
        let list = match kind {
            BlockUse::Headers
            | BlockUse::Allocation
            | BlockUse::Inodes
            | BlockUse::Directories
            | BlockUse::Attributes
            | BlockUse::Maps
            | BlockUse::System => &mut self.metadata,
            BlockUse::Log => &mut self.log,
            BlockUse::Data
            | BlockUse::Shared
            | BlockUse::Preallocated
            | BlockUse::Bad
            | BlockUse::Free
            | BlockUse::Unknown => return,
        };
        match list.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => list.push(part),
        }
    }

    fn file(&mut self, _file: FileLayout) {}

    /// Metadata that cannot be read are not in the bundle. A reader gets the same error from the image.
    fn remark(&mut self, _remark: String) {}

    fn progress(&mut self, _done: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
