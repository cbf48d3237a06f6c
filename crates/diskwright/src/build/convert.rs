//! An image made anew of another one: in another format, of another size, or as new images of its format are.

use std::path::{Path, PathBuf};

use xfs::mkfs::SIZE_MIN as XFS_SIZE_MIN;

use super::image_source::{self, ImageTree};
use super::{
    BuildError, BuildOptions, BuildReport, BuildSource, Dedupe, FeatureChange, Format, ImageFile,
    Progress, build,
};
use crate::output::OutputOptions;
use crate::{Image, ImageInfo};

/// Features of ext4 that files need, and that new images do not have of their own accord.
const NEEDED_BY_FILES: [&str; 3] = ["project", "ea_inode", "large_dir"];

/// Bytes of extended attributes for which ext4 has room beside the inode, in blocks of 4 KiB, with something to
/// spare for headers.
const XATTR_BYTES_MAX: usize = 3500;

/// Bytes that an attribute takes beside its name and value, at most.
const XATTR_HEADER_BYTES: usize = 20;

/// Longest label of XFS, in bytes.
const XFS_LABEL_BYTES_MAX: usize = 12;

/// How large the new image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertSize {
    /// As large as the old one, or as is needed if that is more.
    AsBefore,
    /// The least that holds everything.
    Least,
    /// So many bytes.
    Given(u64),
}

/// What to convert, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// The old image.
    pub from: ImageFile,
    /// The new image.
    pub image: PathBuf,
    /// Its format; `None` is that of the old one.
    pub format: Option<Format>,
    /// Its size.
    pub size: ConvertSize,
    /// Its label, instead of the old one's.
    pub label: Option<Vec<u8>>,
    /// Whether it has the UUID of the old one, instead of one derived from the contents.
    pub keep_uuid: bool,
    /// Features to turn on and off.
    pub features: Vec<FeatureChange>,
    /// Whether an XFS image may be smaller than mkfs.xfs makes them. One of an image that is, may.
    pub small: bool,
    /// What shares blocks with its like, if anything does (XFS).
    pub dedupe: Option<Dedupe>,
    /// Threads; `None` takes as many as there are processors.
    pub threads: Option<usize>,
    /// Whether an existing image may be replaced; also the old one itself, which stays until the new one is whole.
    pub force: bool,
    /// `SOURCE_DATE_EPOCH`: no time in the image is later, in seconds since 1970.
    pub source_date_epoch: Option<i64>,
    /// What the new image becomes.
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
    /// An image of the same format and size with all that is in the old one, under a name that no file has yet.
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

/// Makes an image of another one, with everything that is in it.
///
/// # Errors
/// As [`build`]. The old image is never written.
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

/// Whether an image of this size cannot hold what it should.
fn is_too_small(error: &BuildError) -> bool {
    error.is_no_space()
        || error.is_no_inodes()
        || matches!(error, BuildError::FileSystem(vfs::Error::NoSpace | vfs::Error::Invalid(_)))
}

/// Refuses to replace a disk by what lies in one of its partitions.
fn check_place(options: &ConvertOptions) -> Result<(), BuildError> {
    let from = &options.from;
    let is_part = from.partition.is_some() || from.offset > 0;
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    if is_part && whole(&from.path).is_some_and(|disk| whole(&options.image) == Some(disk)) {
        let problem = "the new image would replace the whole disk that the old one lies in: name another file";
        return Err(BuildError::usage(problem));
    }
    Ok(())
}

/// The build that makes the new image.
fn plan(options: &ConvertOptions) -> Result<BuildOptions, BuildError> {
    check_place(options)?;
    let failed = |error| BuildError::Image(Box::new(error));
    let old = Image::open_as_source(&options.from.path, &image_source::how(&options.from), false);
    let old = old.map_err(failed)?;
    let info = old.info().clone();
    let was = if info.format == "xfs" { Format::Xfs } else { Format::Ext4 };
    let format = options.format.unwrap_or(was);
    let label = match &options.label {
        Some(label) => label.clone(),
        None => kept_label(&old, format)?,
    };
    let uuid = options.keep_uuid.then(|| uuid::Uuid::parse_str(&info.uuid)).transpose();
    let uuid = uuid.map_err(|_| BuildError::usage("the image has no UUID to keep"))?;
    let old_bytes = info.blocks.saturating_mul(u64::from(info.block_size));
    let small = options.small || was == Format::Xfs && old_bytes < XFS_SIZE_MIN;
    let small = small && format == Format::Xfs;
    let is_kind = was == format;
    let mut features = if format == Format::Ext4 {
        needed_features(ImageTree::of(&options.from, old, format), &info)?
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
        // What fits into one format need not fit into the other: that is reckoned first, instead of tried.
        ConvertSize::AsBefore => (is_kind && is_usual).then_some(old_bytes),
    };
    if options.size == ConvertSize::AsBefore && is_usual {
        plan.size_min = old_bytes;
    }
    plan.uuid = uuid.map(uuid::Uuid::into_bytes);
    plan.block_size = is_kind.then_some(info.block_size);
    (plan.dedupe, plan.threads) = (options.dedupe, options.threads);
    plan.source_date_epoch = options.source_date_epoch;
    Ok(plan)
}

/// The label of the old image, if the new one has room for it.
fn kept_label(old: &Image, format: Format) -> Result<Vec<u8>, BuildError> {
    let label = old.file_system().label()?;
    if format == Format::Xfs && label.len() > XFS_LABEL_BYTES_MAX {
        let label = crate::text::escaped(&label);
        return Err(BuildError::usage(format!(
            "the label {label} has more than the {XFS_LABEL_BYTES_MAX} bytes that XFS keeps: give another with --label"
        )));
    }
    Ok(label)
}

/// The features of ext4 that the files of an image need.
fn needed_features(old: ImageTree, info: &ImageInfo) -> Result<Vec<FeatureChange>, BuildError> {
    let feature = |name: &str| FeatureChange { name: name.to_owned(), is_on: true };
    if info.format != "xfs" {
        let has = |name: &&str| {
            info.features.iter().any(|group| group.names.iter().any(|found| found == name))
        };
        return Ok(NEEDED_BY_FILES
            .iter()
            .filter(|name| has(name))
            .map(|name| feature(name))
            .collect());
    }
    let (mut has_projects, mut has_large_values) = (false, false);
    let mut files = old.source();
    while let Some(entry) = files.next_entry()? {
        has_projects |= entry.inode.is_some_and(|inode| inode.attributes.project_id != 0);
        let bytes =
            |xattr: &source::Xattr| xattr.name.len() + xattr.value.len() + XATTR_HEADER_BYTES;
        has_large_values |= entry.xattrs.iter().map(bytes).sum::<usize>() > XATTR_BYTES_MAX;
    }
    let mut features = Vec::new();
    features.extend(has_projects.then(|| feature("project")));
    features.extend(has_large_values.then(|| feature("ea_inode")));
    Ok(features)
}
