//! Conversion of an image: to another format, to another size, or with the layout of a new image of its format.

use std::path::{Path, PathBuf};
use vfs::hint::Setting;

use xfs::mkfs::SIZE_MIN as XFS_SIZE_MIN;

use super::image_source::{self, ImageTree};
use super::{
    BuildError, BuildOptions, BuildReport, BuildSource, Dedupe, FeatureChange, Format, ImageFile,
    Progress, build,
};
use crate::output::OutputOptions;
use crate::{Details, ImageInfo};

/// ext4 features that files may require and new images lack by default.
const NEEDED_BY_FILES: [&str; 3] = ["project", "ea_inode", "large_dir"];

/// Conservative limit for extended attributes outside the inode in ext4 with 4 KiB blocks, in bytes.
const XATTR_BYTES_MAX: usize = 3500;

/// Maximum size of an attribute's header in bytes.
const XATTR_HEADER_BYTES: usize = 20;

/// Maximum length of an XFS label, in bytes.
const XFS_LABEL_BYTES_MAX: usize = 12;

/// Size of the new image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertSize {
    /// The size of the old image, or more if required.
    AsBefore,
    /// The minimum that contains everything.
    Least,
    /// A size in bytes.
    Given(u64),
}

/// Options of a conversion.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// The old image.
    pub from: ImageFile,
    /// The new image.
    pub image: PathBuf,
    /// Format of the new image; `None` is that of the old one.
    pub format: Option<Format>,
    /// Size of the new image.
    pub size: ConvertSize,
    /// Label that replaces the old one.
    pub label: Option<Vec<u8>>,
    /// True to keep the UUID of the old image instead of deriving one from the contents.
    pub keep_uuid: bool,
    /// Features to enable and disable.
    pub features: Vec<FeatureChange>,
    /// True if an XFS image may be below the minimum of mkfs.xfs. Always allowed if the old one is.
    pub small: bool,
    /// Unit of deduplication, if enabled (XFS).
    pub dedupe: Option<Dedupe>,
    /// Number of threads; `None` selects the number of processors.
    pub threads: Option<usize>,
    /// True if an existing image may be replaced. This may be the old image, which remains until the new one is
    /// complete.
    pub force: bool,
    /// `SOURCE_DATE_EPOCH`: upper limit of all times in the image, in seconds since 1970.
    pub source_date_epoch: Option<i64>,
    /// Output formats of the new image.
    pub output: OutputOptions,
}

setters!(ConvertOptions {
    format: Format = Some(format),
    size: ConvertSize,
    label: impl Into<Vec<u8>> = Some(label.into()),
    keep_uuid: bool,
    features: Vec<FeatureChange>,
    small: bool,
    dedupe: Dedupe = Some(dedupe),
    threads: usize = Some(threads),
    force: bool,
    source_date_epoch: i64 = Some(source_date_epoch),
    output: OutputOptions,
});

impl ConvertOptions {
    /// Creates options for a new image of the same format and size. The image file must not exist.
    pub fn new(from: ImageFile, image: impl Into<PathBuf>) -> Self {
        Self {
            from,
            image: image.into(),
            format: None,
            size: ConvertSize::AsBefore,
            label: None,
            keep_uuid: false,
            features: Vec::new(),
            small: false,
            dedupe: None,
            threads: None,
            force: false,
            source_date_epoch: None,
            output: OutputOptions::default(),
        }
    }
}

/// Converts an image with all of its contents.
///
/// # Errors
/// Same as [`build`]. The old image is not written.
pub fn convert(
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, BuildError> {
    let mut build_options = plan(options)?;
    let first = build(&build_options, progress);
    match first {
        Err(error) if options.size == ConvertSize::AsBefore && is_too_small(&error) => {
            build_options.size = None;
            build(&build_options, progress)
        }
        other => other,
    }
}

/// Returns whether the error means that the size is too small.
fn is_too_small(error: &BuildError) -> bool {
    error.is_no_space()
        || error.is_no_inodes()
        || matches!(error, BuildError::FileSystem(vfs::Error::NoSpace | vfs::Error::Invalid(_)))
}

/// Rejects replacing a disk by the contents of one of its partitions.
fn check_place(options: &ConvertOptions) -> Result<(), BuildError> {
    let from = &options.from;
    let is_part = from.partition.is_some() || from.offset > 0;
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    if is_part && whole(&from.path).is_some_and(|disk| whole(&options.image) == Some(disk)) {
        let problem = "the new image would replace the whole disk image that contains the old one; \
                       choose another file";
        return Err(BuildError::usage(problem));
    }
    Ok(())
}

/// Returns the build options for the new image.
fn plan(options: &ConvertOptions) -> Result<BuildOptions, BuildError> {
    check_place(options)?;
    let failed = |error| BuildError::Image(Box::new(error));
    let old = image_source::how(&options.from).open_as_source(&options.from.path, false);
    let old = old.map_err(failed)?;
    let info = old.info().map_err(failed)?;
    let was = info.format();
    let format = options.format.unwrap_or(was);
    let label = match &options.label {
        Some(label) => label.clone(),
        None => kept_label(&old.label().map_err(failed)?, format)?,
    };
    let old_bytes = info.blocks.saturating_mul(u64::from(info.block_size));
    let small = options.small || was == Format::Xfs && old_bytes < XFS_SIZE_MIN;
    let small = small && format == Format::Xfs;
    let is_kind = was == format;
    let mut features = if format == Format::Ext4 {
        needed_features(ImageTree::of(&options.from, old, format).map_err(failed)?, &info)?
    } else {
        Vec::new()
    };
    features.extend(options.features.iter().cloned());
    let source = BuildSource::Image(options.from.clone());
    let is_usual = format == Format::Ext4 || small || old_bytes >= XFS_SIZE_MIN;
    let mut plan = BuildOptions::new(source, &options.image, format)
        .label(label)
        .features(features)
        .small(small)
        .force(options.force)
        .output(options.output.clone());
    plan.size = match options.size {
        ConvertSize::Given(bytes) => Some(bytes),
        ConvertSize::Least => None,
        // The other format may need more space, so estimate it first instead of attempting the old size.
        ConvertSize::AsBefore => (is_kind && is_usual).then_some(old_bytes),
    };
    if options.size == ConvertSize::AsBefore && is_usual {
        plan.size_min = old_bytes;
    }
    plan.uuid = options.keep_uuid.then_some(info.uuid);
    plan.block_size = is_kind.then_some(info.block_size);
    (plan.dedupe, plan.threads) = (options.dedupe, options.threads);
    plan.source_date_epoch = options.source_date_epoch;
    Ok(plan)
}

/// Returns the label of the old image, or an error if it is too long for the new format.
fn kept_label(label: &[u8], format: Format) -> Result<Vec<u8>, BuildError> {
    if format == Format::Xfs && label.len() > XFS_LABEL_BYTES_MAX {
        let label = crate::text::escaped(label);
        return Err(BuildError::usage(format!(
            "the label {label} is longer than the XFS maximum of {XFS_LABEL_BYTES_MAX} bytes; \
             choose another with {}",
            Setting::new("label")
        )));
    }
    Ok(label.to_vec())
}

/// Returns the ext4 features that the files of an image require.
fn needed_features(old: ImageTree, info: &ImageInfo) -> Result<Vec<FeatureChange>, BuildError> {
    let feature = |name: &str| FeatureChange { name: name.to_owned(), is_on: true };
    if let Details::Ext(details) = &info.details {
        let found = details.features.names();
        let needed = NEEDED_BY_FILES.iter().filter(|name| found.iter().any(|found| found == *name));
        return Ok(needed.map(|name| feature(name)).collect());
    }
    let (mut has_projects, mut has_large_values) = (false, false);
    let mut files = old.source();
    while let Some(entry) = files.next_entry()? {
        has_projects |= entry.inode.is_some_and(|inode| inode.attributes.project_id != 0);
        let bytes =
            |xattr: &import::Xattr| xattr.name.len() + xattr.value.len() + XATTR_HEADER_BYTES;
        has_large_values |= entry.xattrs.iter().map(bytes).sum::<usize>() > XATTR_BYTES_MAX;
    }
    let mut features = Vec::new();
    features.extend(has_projects.then(|| feature("project")));
    features.extend(has_large_values.then(|| feature("ea_inode")));
    Ok(features)
}
