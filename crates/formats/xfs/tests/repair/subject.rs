//! Repairs an image in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use operations::repair::{PAGE_BYTES, Plan, Staging, make_plan};
use testkit::crash::write_image;
use vfs::check::{Finding, Silent};
use xfs::repair::Repair;

/// The result of a repair.
pub(crate) struct Repaired {
    /// The image with all steps written.
    pub(crate) device: MemoryDevice,
    /// Codes of the initial findings.
    pub(crate) codes: Vec<&'static str>,
    pub(crate) left: Vec<Finding>,
    pub(crate) is_complete: bool,
}

fn plan(device: &MemoryDevice) -> Result<Plan, String> {
    let staging = Arc::new(Staging::new(Arc::new(device.fork())));
    make_plan(&Repair::default(), &staging, &Silent).map_err(|error| format!("refused: {error}"))
}

/// Repairs an image.
///
/// # Errors
/// The reason if there is no plan, or if a second repair finds something to do.
pub(crate) fn repaired(device: MemoryDevice) -> Result<Repaired, String> {
    let first = plan(&device)?;
    for step in &first.steps {
        if std::env::var_os("REPAIR_CASE").is_some() {
            step.actions.iter().for_each(|action| eprintln!("{action:?}"));
        }
        for (number, page) in &step.pages {
            let start = number * PAGE_BYTES;
            let len = PAGE_BYTES.min(device.len() - start) as usize;
            device.write_at(start, &page[..len]).unwrap();
        }
    }
    let again = plan(&device)?;
    if let Some(step) = again.steps.first() {
        return Err(format!("a second repair does something: {:?}", step.actions));
    }
    let mut codes: Vec<&str> = first.findings.iter().map(|finding| finding.code.name).collect();
    codes.dedup();
    let is_complete = first.summary.is_complete;
    // For tests with another kernel, and `xfs_scrub -n`.
    if let Some(dir) =
        std::env::var_os("DISKWRIGHT_REPAIRED_IMAGES").filter(|_| first.left.is_empty())
    {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let file = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
        write_image(&device, &Path::new(&dir).join(file)).unwrap();
    }
    Ok(Repaired { device, codes, left: first.left, is_complete })
}
