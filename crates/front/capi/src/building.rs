//! Building images.

use std::ffi::{c_char, c_int, c_void};

use diskwright::build::{
    BuildOptions, BuildReport, BuildSource, Container, FeatureChange, Format, ImageFile,
    ManifestFile, Owner, PlacedSource, Reference, build,
};

use crate::border::{
    Options, as_host_path, call, check_flags, host_path, optional_text, options, path,
    put_if_wanted, utf8,
};
use crate::error::dw_error;
use crate::failure::{Failure, Result};
use crate::making::{DW_EXT4, DW_XFS, sixteen};
use crate::progress::{BuildListener, dw_progress};

/// Allow the replacement of an existing image.
pub const DW_BUILD_FORCE: u32 = 1;
/// Allow an XFS image below 300 MiB.
pub const DW_BUILD_SMALL: u32 = 2;
/// Create no journal (ext4).
pub const DW_BUILD_NO_JOURNAL: u32 = 4;
/// Set the owner of all files to `uid` and `gid`.
pub const DW_BUILD_OWNER: u32 = 8;

const FLAGS: u32 = DW_BUILD_FORCE | DW_BUILD_SMALL | DW_BUILD_NO_JOURNAL | DW_BUILD_OWNER;

/// Options of dw_build. If all fields but struct_size and format are zero, the image has the minimum size for the
/// source.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dw_build_options {
    /// sizeof(dw_build_options).
    pub struct_size: usize,
    /// DW_EXT4 or DW_XFS.
    pub format: u32,
    /// Any of DW_BUILD_FORCE, DW_BUILD_SMALL, DW_BUILD_NO_JOURNAL and DW_BUILD_OWNER.
    pub flags: u32,
    /// Size in bytes. 0 for the minimum size for the source.
    pub size: u64,
    /// Additional free space in bytes, if the size is computed.
    pub free: u64,
    /// The label. NULL for none.
    pub label: *const c_char,
    /// Changes of the default features, separated by commas: "^has_journal,+large_dir". NULL for none.
    pub features: *const c_char,
    /// The 16 bytes of the UUID. NULL derives one from the contents.
    pub uuid: *const u8,
    /// Maximum of all times in the image, in seconds since 1970. NULL for no limit. The environment variable
    /// SOURCE_DATE_EPOCH is ignored.
    pub source_date_epoch: *const i64,
    /// Block size in bytes. 0 for the default.
    pub block_size: u32,
    /// Inode size in bytes. 0 for the default.
    pub inode_size: u32,
    /// Owner of all files, with DW_BUILD_OWNER.
    pub uid: u32,
    /// Group of all files, with DW_BUILD_OWNER.
    pub gid: u32,
    /// Number of threads. 0 for the number of processors. The image does not depend on it.
    pub threads: u32,
    /// Must be 0; reserved for later versions.
    pub reserved: u32,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// Called before each entry with the number of entries started and bytes written so far. May be NULL.
    pub progress: dw_progress,
}

// SAFETY: integers and nullable pointers, for which any bytes are valid.
unsafe impl Options for dw_build_options {}

/// Result of dw_build.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct dw_build_report {
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Number of files created, of any type.
    pub entries: u64,
    /// Number of bytes of file contents.
    pub data_bytes: u64,
}

impl From<BuildReport> for dw_build_report {
    fn from(report: BuildReport) -> Self {
        let BuildReport { image_bytes, entries, data_bytes, .. } = report;
        Self { image_bytes, entries, data_bytes }
    }
}

/// Returns the format with this number.
pub(crate) fn format(number: u32) -> Result<Format> {
    match number {
        DW_EXT4 => Ok(Format::Ext4),
        DW_XFS => Ok(Format::Xfs),
        _ => Err(Failure::invalid("the format is neither DW_EXT4 nor DW_XFS")),
    }
}

/// Parses a source as the command line does.
fn source(named: &[u8]) -> Result<BuildSource> {
    let path = as_host_path(named)?;
    if let Some(file) = ImageFile::parse(path.as_os_str()) {
        return Ok(BuildSource::Image(file));
    }
    if let Some(reference) = str::from_utf8(named).ok().and_then(Reference::parse) {
        return Ok(Container::new(reference.map_err(Failure::invalid)?).into());
    }
    Ok(match ManifestFile::parse(path.as_os_str()) {
        Some(manifest) => BuildSource::Manifest(manifest),
        None => BuildSource::Files(path.to_owned()),
    })
}

/// Parses all sources.
///
/// # Safety
/// `named` has `count` strings.
unsafe fn sources(named: *const *const c_char, count: usize) -> Result<BuildSource> {
    if named.is_null() || count == 0 {
        return Err(Failure::invalid("no source is given"));
    }
    let one = |number: usize| -> Result<BuildSource> {
        // SAFETY: `named` has `count` strings that end with NUL.
        source(unsafe { path(*named.add(number)) }?)
    };
    if count == 1 {
        return one(0);
    }
    let placed = |number| Ok(PlacedSource { source: one(number)?, at: Vec::new() });
    (0..count).map(placed).collect::<Result<_>>().map(BuildSource::Several)
}

pub(crate) fn features(list: Option<&[u8]>) -> Result<Vec<FeatureChange>> {
    let list = utf8(list.unwrap_or_default(), "the list of features")?;
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.parse().map_err(|e: String| Failure::invalid(e))).collect()
}

/// # Safety
/// The pointers keep the rules of the header.
unsafe fn build_options(
    source: BuildSource,
    image: &std::path::Path,
    given: &dw_build_options,
) -> Result<BuildOptions> {
    check_flags(given.flags, FLAGS)?;
    let has = |flag| given.flags & flag != 0;
    let if_given = |number: u32| (number > 0).then_some(number);
    // SAFETY: the caller follows the rules of the header.
    let (label, list, uuid, epoch) = unsafe {
        (
            optional_text(given.label),
            optional_text(given.features),
            sixteen(given.uuid),
            given.source_date_epoch.as_ref().copied(),
        )
    };
    let mut options = BuildOptions::new(source, image, format(given.format)?);
    options.size = (given.size > 0).then_some(given.size);
    options.free = given.free;
    options.label = label.map(<[u8]>::to_vec);
    options.uuid = uuid;
    options.features = features(list)?;
    options.block_size = if_given(given.block_size);
    options.inode_size = if_given(given.inode_size);
    options.no_journal = has(DW_BUILD_NO_JOURNAL);
    options.small = has(DW_BUILD_SMALL);
    options.owner = has(DW_BUILD_OWNER).then_some(Owner { uid: given.uid, gid: given.gid });
    options.threads = if_given(given.threads).map(|threads| threads as usize);
    options.force = has(DW_BUILD_FORCE);
    options.source_date_epoch = epoch;
    Ok(options)
}

/// Builds an image from directories, archives, container images and other images. `sources` are like the arguments of
/// `diskwright build`: "rootfs", "rootfs.tar.zst", "oci:layout:latest", "docker-archive:web.tar", "image:disk.img:2".
/// Later sources are applied over earlier ones. `image` appears under its name when it is complete; after an error
/// nothing is left there. `report` may be NULL.
///
/// The same sources and options produce the same bytes, whatever the number of threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_build(
    sources: *const *const c_char,
    source_count: usize,
    image: *const c_char,
    how: *const dw_build_options,
    report: *mut dw_build_report,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let how = options(how)?;
            let source = self::sources(sources, source_count)?;
            let wanted = build_options(source, host_path(image)?, &how)?;
            let done = build(&wanted, &BuildListener::new(how.context, how.progress))?;
            put_if_wanted(report, done.into());
            Ok(())
        })
    }
}
