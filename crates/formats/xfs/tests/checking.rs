//! Support to run the check on an image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};
use parking_lot::Mutex;
use rustix::fs::ioctl_ficlone;
use testkit::crash::{CrashCase, Judge};
use vfs::check::{Finding, Observer, Options};

/// An observer that keeps findings.
#[derive(Debug, Default)]
struct Keeper(Mutex<Vec<Finding>>);

impl Observer for Keeper {
    fn found(&self, finding: Finding) {
        self.0.lock().push(finding);
    }
}

/// Returns all findings of the check on an image.
///
/// # Errors
/// If the image cannot be checked.
pub(crate) fn findings(device: Arc<dyn BlockDevice>) -> vfs::Result<Vec<Finding>> {
    let keeper = Keeper::default();
    xfs::check::check(device, &Options::default(), &keeper)?;
    Ok(keeper.0.into_inner())
}

/// Asserts that there are no findings for an image.
#[track_caller]
pub(crate) fn assert_sound(path: &Path) {
    if let Err(what) = verdict(path) {
        panic!("{}: {what}", path.display());
    }
}

/// Returns the findings for an image as an error, if there are any.
pub(crate) fn verdict(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let device = FileDevice::new(file).map_err(|error| error.to_string())?;
    let found = findings(Arc::new(device)).map_err(|error| error.to_string())?;
    if found.is_empty() { Ok(()) } else { Err(format!("{found:#?}")) }
}

/// A judge: the check finds nothing in an image left by a crash, with its log replayed in memory, or in the recovered
/// image.
pub(crate) struct Sound;

impl Judge for Sound {
    fn name(&self) -> &str {
        "our own check"
    }

    fn one_in(&self) -> u64 {
        1
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        for (what, device) in [("as it lies", case.crashed), ("recovered", case.recovered)] {
            let found = findings(Arc::new(device.fork()));
            let found = found.map_err(|error| format!("{what}: {error}"))?;
            if !found.is_empty() {
                return Err(format!("{what}: {found:#?}"));
            }
        }
        Ok(())
    }
}

/// Makes files that share some blocks, with holes between, some of which were written later.
pub(crate) fn share(dir: &Path) {
    let first = dir.join("first");
    let file = File::create_new(&first).unwrap();
    for piece in 0..40 {
        file.write_all_at(&[piece as u8; 9000], piece * 20_000).unwrap();
    }
    file.sync_all().unwrap();
    for nth in 0..20 {
        let copy = File::create_new(dir.join(format!("copy {nth}"))).unwrap();
        ioctl_ficlone(&copy, &file).unwrap();
        copy.write_all_at(b"other", nth * 37_000).unwrap();
        if nth % 3 == 0 {
            copy.set_len(300_000).unwrap();
        }
    }
}
