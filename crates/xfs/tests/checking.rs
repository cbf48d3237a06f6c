//! What check says of an image.

use std::sync::Arc;

use blockdev::BlockDevice;
use check::{Finding, Observer, Options};
use parking_lot::Mutex;

/// One who keeps what is found.
#[derive(Debug, Default)]
struct Keeper(Mutex<Vec<Finding>>);

impl Observer for Keeper {
    fn found(&self, finding: Finding) {
        self.0.lock().push(finding);
    }
}

/// All that check finds in an image.
///
/// # Errors
/// If the image cannot be looked at.
pub(crate) fn findings(device: Arc<dyn BlockDevice>) -> vfs::Result<Vec<Finding>> {
    let keeper = Keeper::default();
    xfs::check::check(device, &Options::default(), &keeper)?;
    Ok(keeper.0.into_inner())
}
