//! Extraction to a tar file, which is renamed into place when complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use vfs::Paths;

use super::{ExtractOptions, ExtractReport, Observer, extract_to_tar};
use crate::host::FileTypeExt;
use crate::lock;
use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Extracts to a tar archive named `archive`, like [`extract_to_tar`]. The file gets its name when it is complete. With
/// [`ExtractOptions::force`] it then replaces an existing file, which is unchanged on failure. Devices and pipes are
/// written directly.
///
/// # Errors
/// If the image cannot be read (the error names the file), the archive cannot be written, or the existing file is in
/// use.
pub fn extract_to_tar_file(
    paths: Paths<'_>,
    archive: &Path,
    options: &ExtractOptions,
    observer: &mut dyn Observer,
) -> Result<ExtractReport> {
    let in_place = match std::fs::metadata(archive) {
        Ok(found) if options.force && !found.is_file() => Some(in_place(archive, &found)?),
        _ => None,
    };
    if let Some(file) = in_place {
        return fill(paths, &file, archive, options, observer);
    }
    let replace = if options.force { Replace::Anything } else { Replace::Nothing };
    let new = Replacement::create(archive, replace).map_err(|e| e.at("make", archive))?;
    let report = fill(paths, new.file(), archive, options, observer)?;
    new.keep().map_err(|e| e.at("make", archive))?;
    Ok(report)
}

/// Opens a file that is not a regular file for writing.
fn in_place(archive: &Path, found: &std::fs::Metadata) -> Result<File> {
    if found.file_type().is_block_device() {
        return lock::open_to_write(archive);
    }
    File::options().write(true).open(archive).map_err(|e| Error::host("make", archive, e))
}

fn fill(
    paths: Paths<'_>,
    file: &File,
    archive: &Path,
    options: &ExtractOptions,
    observer: &mut dyn Observer,
) -> Result<ExtractReport> {
    let failed = |e: io::Error| Error::host("write", archive, e);
    let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
    let report = extract_to_tar(paths, &mut out, options, observer);
    match report.and_then(|report| out.flush().map(|()| report).map_err(Error::Output)) {
        Err(Error::Output(source)) => Err(failed(source)),
        other => other,
    }
}
