//! Parts of an open image that only a mount uses.

use std::ffi::OsString;

use crate::Result;
use crate::lock::DeviceClaim;

/// Parts of an open image that only a mount uses.
#[derive(Default)]
pub(crate) struct Mounting {
    /// Mount source, if it is not the image.
    pub(crate) name: Option<OsString>,
    /// Claim of a block device that the kernel can mount.
    pub(crate) claim: Option<DeviceClaim>,
    #[cfg(feature = "anywhere")]
    pub(crate) recording: Option<crate::publish::Recording>,
}

impl Mounting {
    /// Writes what was recorded.
    pub(crate) fn finish(self) -> Result<()> {
        #[cfg(feature = "anywhere")]
        if let Some(recording) = self.recording {
            recording.finish()?;
        }
        Ok(())
    }
}
