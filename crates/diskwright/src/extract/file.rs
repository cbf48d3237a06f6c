//! Extraction to a tar archive in a file, which gets its name when it is whole.

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

/// Extracts to a tar archive called `archive`, as [`extract_to_tar`] does. It gets its name when it is
/// whole: with [`ExtractOptions::force`] it replaces another file then, which stays as it is until then and
/// whatever fails. A device or pipe is written to.
///
/// # Errors
/// If the image cannot be read (the error names the file), if the archive cannot be written, or if somebody
/// uses the file that it would replace.
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

/// Opens what is no regular file, to be written to.
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
