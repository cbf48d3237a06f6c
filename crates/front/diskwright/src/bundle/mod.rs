//! Metadata bundles: the metadata of an image in one object beside it, in the order of use. Readers of a remote image
//! fetch it with one request (`bundle` and `publish --bundle`).
//!
//! ```no_run
//! use diskwright::bundle::{BundleOptions, bundle};
//!
//! # fn main() -> diskwright::Result<()> {
//! let made = bundle(&BundleOptions::new("s3://bucket/root.img"))?;
//! println!("{} has {} bytes", made.place, made.bundle_bytes);
//! # Ok(()) }
//! ```

mod obfuscate;
mod order;
mod plan;
mod reads;
mod target;
mod walk;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::BlockDevice;
use remote::bundle::{Encoded, Identity, MakeError, make};
use serde::Serialize;

pub use obfuscate::{ObfuscateReport, obfuscate};
pub(crate) use plan::plan;

use crate::{Error, ImageOptions, Result, start_record};
use target::{Source, Target};

/// Options for making a bundle.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BundleOptions {
    /// The image: a file, or an object that is not a published image.
    pub image: PathBuf,
    /// File for the bundle, instead of a file or object beside the image.
    pub out: Option<PathBuf>,
    /// Location of the file system in the image.
    pub open: ImageOptions,
    /// Record of the ranges read first by a start, created by mounting with a record. Their data are added.
    pub order: Option<PathBuf>,
}

impl BundleOptions {
    /// Creates options for a bundle beside `image`.
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), out: None, open: ImageOptions::default(), order: None }
    }
}

setters!(BundleOptions {
    out: Option<PathBuf>,
    open: ImageOptions,
    order: Option<PathBuf>,
});

/// A bundle that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BundleReport {
    /// File or object of the bundle.
    pub place: String,
    /// Digest that identifies the bundle.
    pub digest: String,
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Size of the bundle in bytes.
    pub bundle_bytes: u64,
    /// Size of the metadata before compression in bytes, without zeros.
    pub metadata_bytes: u64,
    /// Size of the data of the recorded start before compression in bytes.
    pub start_bytes: u64,
}

/// Makes the metadata bundle of an image. An image file is locked until the bundle is stored.
///
/// # Errors
/// If the image cannot be read, is a published image or has no file system, or if the bundle cannot be stored.
pub fn bundle(options: &BundleOptions) -> Result<BundleReport> {
    let order = options.order.as_deref().map_or(Ok(Vec::new()), start_record::read)?;
    let source = Source::open(&options.image, &options.open)?;
    let target = Target::of(&source, &options.image, options.out.as_deref())?;
    let device = source.device();
    let made = made(&options.image, &device, &options.open, order, &source.identity()?)?;
    let report = BundleReport {
        place: target.shown(),
        digest: made.digest.to_string(),
        image_bytes: device.len(),
        bundle_bytes: made.bytes.len() as u64,
        metadata_bytes: made.metadata_bytes,
        start_bytes: made.start_bytes,
    };
    source.wait_until_distinct()?;
    target.store(&source, made.bytes)?;
    Ok(report)
}

fn made(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &ImageOptions,
    start: Vec<Range<u64>>,
    identity: &Identity,
) -> Result<Encoded> {
    let plan = plan(path, device, options, start)?;
    make(&**device, &plan, identity).map_err(|error| match error {
        MakeError::Image { source, .. } => Error::host("read", path, source),
        error => Error::Usage(error.to_string()),
    })
}
