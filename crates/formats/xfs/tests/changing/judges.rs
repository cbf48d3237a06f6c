//! Judges of a crashed image: xfs_repair and the kernel.

use std::sync::Arc;

use disk::BlockDevice;
use testkit::crash::{CheckRecovered, KernelRecovers};
use testkit::xfs_repair_verdict;
use vfs::FileSystem;
use xfs::{OpenOptions, Xfs};

/// Opens an image that others recovered.
pub fn open_to_read(device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn FileSystem>> {
    Ok(Box::new(Xfs::open(device, &OpenOptions::default())?))
}

/// Checks with `xfs_repair -n` what this implementation recovered.
pub fn check_recovered(one_in: u64) -> CheckRecovered {
    CheckRecovered::new("xfs_repair", xfs_repair_verdict, one_in)
}

/// Compares with recovery by the kernel.
pub fn kernel_recovers(one_in: u64) -> KernelRecovers {
    KernelRecovers::new(xfs_repair_verdict, open_to_read, one_in)
}
