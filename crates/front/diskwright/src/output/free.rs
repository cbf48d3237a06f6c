//! Free space of a finished image.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, OverlayDevice, WindowDevice};
use parking_lot::Mutex;

use crate::image::format_of_device;
use crate::{ImageOptions, dispatch};

/// Device that records discarded ranges. Writes stay in memory.
struct Given {
    image: OverlayDevice,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl BlockDevice for Given {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.image.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.image.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.ranges.lock().push(offset..offset + len);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the free space of the image in the first `len` bytes of a file, which is what trim would discard. The file
/// is not modified. Returns nothing for images that can only be read.
pub(crate) fn free_ranges(image: &File, len: u64) -> vfs::Result<Vec<Range<u64>>> {
    let device = window(image, len).map_err(vfs::Error::Device)?;
    let Some(format) = format_of_device(&*device).map_err(vfs::Error::Device)? else {
        return Ok(Vec::new());
    };
    if dispatch::read_only_because(format, &*device)?.is_some() {
        return Ok(Vec::new());
    }
    let image = OverlayDevice::new(device);
    let given = Arc::new(Given { image, ranges: Mutex::default() });
    let shared: Arc<dyn BlockDevice> = Arc::clone(&given) as _;
    let open = dispatch::open_writable(format, shared, &ImageOptions::default(), Path::new(""))?;
    open.file_system().trim(0..u64::MAX, 0)?;
    // Recovery and closing do not change the free space.
    open.close()?;
    Ok(std::mem::take(&mut *given.ranges.lock()))
}

fn window(image: &File, len: u64) -> io::Result<Arc<dyn BlockDevice>> {
    let device = Arc::new(FileDevice::new(image.try_clone()?)?);
    Ok(Arc::new(WindowDevice::new(device, 0, len)?))
}
