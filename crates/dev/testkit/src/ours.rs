//! Diskwright's own check as a further checker: it must accept everything that the others accept.

use std::path::Path;

#[cfg(any(feature = "ext4", feature = "xfs"))]
use judge::judge;

#[cfg(any(feature = "ext4", feature = "xfs"))]
mod judge {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;

    use disk::{BlockDevice, FileDevice};
    use parking_lot::Mutex;
    use vfs::check::{Finding, Observer, Options, Summary};

    /// Maximum number of findings shown.
    const SHOWN_MAX: usize = 20;

    #[derive(Default)]
    struct FindingTexts(Mutex<Vec<String>>);

    impl Observer for FindingTexts {
        fn found(&self, finding: Finding) {
            let mut lines = self.0.lock();
            if lines.len() < SHOWN_MAX {
                lines.push(format!("{finding:?}"));
            }
        }
    }

    /// Returns the findings of a check. An image rejected as unsupported is accepted.
    pub(super) fn judge(
        image: &Path,
        check: impl FnOnce(Arc<dyn BlockDevice>, &Options, &dyn Observer) -> vfs::Result<Summary>,
    ) -> Result<(), String> {
        let device =
            File::open(image).and_then(FileDevice::new).map_err(|error| error.to_string())?;
        let keep = FindingTexts::default();
        match check(Arc::new(device), &Options::default(), &keep) {
            Ok(_) | Err(vfs::Error::Unsupported(_)) => {}
            Err(error) => return Err(format!("our own check failed: {error}")),
        }
        let lines = keep.0.into_inner();
        if lines.is_empty() {
            Ok(())
        } else {
            Err(format!("our own check found:\n{}", lines.join("\n")))
        }
    }
}

/// Runs our check on an ext4 image accepted by e2fsck.
#[cfg(feature = "ext4")]
pub(crate) fn ext4(image: &Path) -> Result<(), String> {
    judge(image, ::ext4::check::check)
}

/// Accepts the image: the check of ext4 is not compiled in.
#[cfg(not(feature = "ext4"))]
pub(crate) fn ext4(_image: &Path) -> Result<(), String> {
    Ok(())
}

/// Runs our check on an XFS image accepted by xfs_repair.
#[cfg(feature = "xfs")]
pub(crate) fn xfs(image: &Path) -> Result<(), String> {
    judge(image, ::xfs::check::check)
}

/// Accepts the image: the check of XFS is not compiled in.
#[cfg(not(feature = "xfs"))]
pub(crate) fn xfs(_image: &Path) -> Result<(), String> {
    Ok(())
}
