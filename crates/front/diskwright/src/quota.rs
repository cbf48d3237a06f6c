//! Quotas of users, groups and projects: reports of usage, limits and grace times, and changes of them.
//!
//! ```no_run
//! use diskwright::{Image, ImageOptions};
//! use diskwright::quota::{OwnerKind, OwnerLimits, QuotaRequest, NewLimits, change_quotas};
//!
//! # fn main() -> diskwright::Result<()> {
//! // At most 1 GiB and 10,000 inodes for user 1000, whose usage is counted from now on.
//! let mut request = QuotaRequest::default();
//! request.starts[OwnerKind::User as usize] = true;
//! request.limits.limits.push(OwnerLimits {
//!     space: NewLimits { soft: None, hard: Some(1 << 30) },
//!     inodes: NewLimits { soft: None, hard: Some(10_000) },
//!     ..OwnerLimits::of(OwnerKind::User, 1000)
//! });
//! change_quotas("root.img".as_ref(), &ImageOptions::default(), &request)?;
//!
//! let image = Image::open("root.img")?;
//! image.file_system()?.for_each_owner(OwnerKind::User, &mut |owner| {
//!     println!("{}: {} bytes of {}", owner.id, owner.space.used, owner.space.hard);
//! })?;
//! # Ok(()) }
//! ```

use std::path::Path;

use ext4::tune::Request;
use vfs::Timestamp;
pub use vfs::quota::{
    LimitChanges, NewGrace, NewLimits, OwnerKind, OwnerLimits, OwnerUsage, QuotaState,
    ResourceUsage,
};
use xfs::tune::{QuotaFlags, Quotas};

use crate::image::{open_device, probe};
use crate::tune::{add_xfs_quotas, change_xfs_quota_flags, tune};
use crate::{Error, Format, ImageOptions, Result};

/// Changes of the quotas of an image, in the order of the fields. Arrays are indexed by [`OwnerKind`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaRequest {
    /// Kinds of owners whose usage is counted from now on. The limits of XFS are enforced unless `enforces` says
    /// otherwise.
    pub starts: [bool; 3],
    /// Kinds whose counting ends. ext4 removes their quota files with all limits, and XFS keeps them.
    pub stops: [bool; 3],
    /// XFS: kinds whose limits are enforced, or not any more.
    pub enforces: [Option<bool>; 3],
    /// Limits and grace times.
    pub limits: LimitChanges,
    /// Time of new quota files, and start of grace times; by default now.
    pub time: Option<Timestamp>,
}

/// Changes the quotas of an image after replaying its journal or log.
///
/// # Errors
/// If the image is in use, damaged, full, or of another format, or if its format has no such setting. Also for limits of
/// kinds that are not counted, and for soft limits above hard ones. Earlier changes of the request remain.
pub fn change_quotas(path: &Path, options: &ImageOptions, request: &QuotaRequest) -> Result<()> {
    let device = open_device(path, options)?;
    let format = probe(path, &device, options)?;
    drop(device);
    match format {
        Format::Ext4 => change_ext4(path, options, request)?,
        Format::Xfs => change_xfs(path, options, request)?,
    }
    if request.limits.is_empty() {
        return Ok(());
    }
    let image = options.clone().write(true).open(path)?;
    let now = request.time.or_else(vfs::clock::now).unwrap_or_default();
    let now = u64::try_from(now.sec).unwrap_or(0);
    let changed = image.file_system()?.change_limits(&request.limits, now);
    let closed = image.close();
    changed.and(closed)
}

fn change_ext4(path: &Path, options: &ImageOptions, request: &QuotaRequest) -> Result<()> {
    if request.enforces != [None; 3] {
        let refused = vfs::Error::unsupported(
            "a flag of ext4 images to enforce limits",
            "mount it with the options usrquota, grpquota and prjquota",
        );
        return Err(Error::image(path, refused));
    }
    let quotas: [Option<bool>; 3] = std::array::from_fn(|at| {
        (request.starts[at] || request.stops[at]).then_some(request.starts[at])
    });
    if quotas == [None; 3] {
        return Ok(());
    }
    let mut changes = Request::default();
    (changes.quotas, changes.time) = (quotas, request.time);
    tune(path, options, &changes, &mut |_| Ok(()))
}

fn change_xfs(path: &Path, options: &ImageOptions, request: &QuotaRequest) -> Result<()> {
    if request.starts.contains(&true) {
        add_xfs_quotas(path, options, Quotas::new(request.starts, true), request.time)?;
    }
    if !request.stops.contains(&true) && request.enforces == [None; 3] {
        return Ok(());
    }
    change_xfs_quota_flags(path, options, QuotaFlags::new(request.stops, request.enforces))
}
