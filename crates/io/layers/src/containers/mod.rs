//! Disk containers: files whose tables name the place of each block of a disk. They are read-only.
//!
//! Formats: VMware, Virtual Disk Format 5.0 ([`vmdk`]); Microsoft, Virtual Hard Disk Image Format Specification ([`vhd`])
//! and MS-VHDX ([`vhdx`]); VirtualBox's VDI as observed ([`vdi`]); Android's `sparse_format.h` as documented ([`sparse`]).
//!
//! Tables are read on demand, a page at a time. So a header that claims petabytes needs no memory. A table may name any
//! place of the file, also the header or one place twice. Such a disk reads as that place, which is harmless.

mod device;
pub mod sparse;
pub mod vdi;
pub mod vhd;
pub mod vhdx;
pub mod vmdk;

use std::sync::Arc;

use disk::BlockDevice;

pub use device::{BlockMap, BlockPlace, ContainerDevice};

use crate::Result;

/// Advice for containers that are not supported.
pub(crate) const CONVERT: &str = "convert it with: qemu-img convert -O raw IMAGE RAW";

/// An open container.
pub struct Container {
    /// Name of the format.
    pub format: &'static str,
    /// Its disk.
    pub device: Arc<dyn BlockDevice>,
}

/// Opens the container in a file. Returns `None` if the file is none.
///
/// # Errors
/// If it is damaged, has unsupported features, or refers to other files.
pub fn open(file: &Arc<dyn BlockDevice>) -> Result<Option<Container>> {
    let mut start = vec![0; file.len().min(512) as usize];
    file.read_at(0, &mut start).map_err(crate::LayerError::reading("the start of the image", 0))?;
    let has = |at: usize, magic: &[u8]| start.get(at..at + magic.len()) == Some(magic);
    let file = Arc::clone(file);
    let (format, device): (_, Arc<dyn BlockDevice>) = if has(0, b"KDMV") {
        ("VMDK", Arc::new(vmdk::open(file)?))
    } else if has(0, b"conectix") {
        ("VHD", Arc::new(vhd::open(file)?))
    } else if has(0, b"vhdxfile") {
        ("VHDX", Arc::new(vhdx::open(file)?))
    } else if has(64, &vdi::MAGIC.to_le_bytes()) {
        ("VDI", Arc::new(vdi::open(file)?))
    } else if has(0, &sparse::MAGIC.to_le_bytes()) {
        ("Android sparse", Arc::new(sparse::open(file)?))
    } else {
        return Ok(None);
    };
    Ok(Some(Container { format, device }))
}
