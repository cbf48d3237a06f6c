//! Parts of an open image that only a mount uses.

use std::ffi::OsString;

use crate::Result;
#[cfg(target_os = "linux")]
use crate::lock::DeviceClaim;

/// Function that is called once.
type WriteRecord = Box<dyn FnOnce() -> Result<()> + Send + Sync>;

/// Parts of an open image that only a mount uses.
#[derive(Default)]
pub(crate) struct Mounting {
    /// Mount source, if it is not the image.
    pub(crate) name: Option<OsString>,
    /// Claim of a block device that the kernel can mount.
    #[cfg(target_os = "linux")]
    pub(crate) claim: Option<DeviceClaim>,
    /// Function that writes a record of the reads.
    pub(crate) write_record: Option<WriteRecord>,
}

impl Mounting {
    /// Writes the record, if there is one.
    pub(crate) fn finish(self) -> Result<()> {
        self.write_record.map_or(Ok(()), |write| write())
    }
}
