//! Output steps after the file system is finished and before files are renamed: the dm-verity hash tree and the output
//! format.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::target::{TargetFile, refusal};
use super::{BuildError, BuildOptions, BuildReport, Progress};
use crate::Error;
use crate::output::{OutputError, free_ranges};
use crate::replace::{Replace, Replacement};
use crate::verity::{self, Verity, VerityLayout, VerityReport};

/// Additional output files of a build.
pub(super) struct Shipping<'a> {
    options: &'a BuildOptions,
    tree: Option<SideFile>,
    root_hash: Option<SideFile>,
}

/// File that is renamed into place together with the image.
struct SideFile {
    path: PathBuf,
    file: Replacement,
}

impl SideFile {
    /// Creates the file. The rules for replacing an existing file are those for an image.
    fn create(path: &Path, options: &BuildOptions) -> Result<Self, BuildError> {
        let replace = if options.force { Replace::Anything } else { Replace::Empty };
        let file = Replacement::create(path, replace).map_err(|e| refusal(e, path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn keep(self) -> Result<(), BuildError> {
        let path = self.path;
        self.file.keep().map_err(|refused| refusal(refused, &path))
    }
}

impl<'a> Shipping<'a> {
    /// Rejects invalid options before the work starts, and creates the files.
    pub(super) fn create(
        options: &'a BuildOptions,
        target: &mut TargetFile,
    ) -> Result<Self, BuildError> {
        check_names(options)?;
        let wanted = &options.output;
        let unfit = |why: &str| {
            let format = wanted.format.name();
            BuildError::Output(OutputError::Unfit { format, why: why.into() })
        };
        if wanted.is_apart() {
            if target.is_device() {
                return Err(unfit("a block device can only be written raw; choose a file"));
            }
            target.set_apart(super::input::beside(&options.image))?;
        }
        if let Some(size) = options.size {
            wanted.format.check(size)?;
        }
        if let Some(verity) = &wanted.verity {
            check_verity(options, verity, target)?;
        }
        let side =
            |path: Option<&PathBuf>| path.map(|path| SideFile::create(path, options)).transpose();
        let tree = side(wanted.verity.as_ref().and_then(|verity| verity.file.as_ref()))?;
        let root_hash = side(wanted.root_hash_file.as_ref())?;
        Ok(Self { options, tree, root_hash })
    }

    /// Performs all output steps on the finished file system.
    pub(super) fn finish(
        self,
        target: &TargetFile,
        report: &mut BuildReport,
        progress: &dyn Progress,
    ) -> Result<Self, BuildError> {
        let wanted = &self.options.output;
        let mut len = report.image_bytes;
        if let Some(verity) = &wanted.verity {
            let made = self.protect(target.file(), len, verity, progress)?;
            if self.tree.is_none() {
                len = made.hash_offset + made.hash_bytes;
            }
            if let Some(side) = &self.root_hash {
                let written = side.file.file().write_all(made.root_hash.as_bytes());
                written.map_err(|e| written_error(&side.path, e))?;
            }
            report.output.verity = Some(made);
        }
        if let Some(file) = target.apart() {
            // A hash tree covers free blocks, so their contents must be preserved.
            let free = if wanted.verity.is_some() {
                Vec::new()
            } else {
                free_ranges(target.file(), report.image_bytes)?
            };
            let raw = disk::output::Raw::new(target.file(), len, free);
            let threads = self.options.thread_count();
            let tell = |done| progress.shipped(done, len);
            disk::output::write(&raw, wanted.format, file, threads, &tell)?;
            report.output.output = Some(wanted.format.name());
            report.output.output_bytes = Some(file.metadata().map_err(BuildError::Write)?.len());
        }
        Ok(self)
    }

    fn protect(
        &self,
        image: &File,
        len: u64,
        verity: &Verity,
        progress: &dyn Progress,
    ) -> Result<VerityReport, BuildError> {
        verity::check_size(len)?;
        let (hash, hash_offset) = match &self.tree {
            Some(side) => (side.file.file(), 0),
            None => (image, len),
        };
        let done = AtomicU64::new(0);
        let tell = |bytes| {
            let so_far = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress.shipped(so_far.min(len), len);
        };
        let place =
            VerityLayout { data: image, data_bytes: len, hash, hash_offset, progress: &tell };
        Ok(verity::protect(&place, verity, self.options.thread_count())?)
    }

    /// Renames the additional files into place.
    pub(super) fn keep(self) -> Result<(), BuildError> {
        for side in [self.tree, self.root_hash].into_iter().flatten() {
            side.keep()?;
        }
        Ok(())
    }
}

fn written_error(path: &Path, source: std::io::Error) -> BuildError {
    BuildError::Image(Box::new(Error::host("write", path, source)))
}

/// Checks whether a hash tree is possible, as far as known before the build.
fn check_verity(
    options: &BuildOptions,
    verity: &Verity,
    target: &TargetFile,
) -> Result<(), BuildError> {
    verity.check().map_err(|why| OutputError::Unfit { format: "dm-verity", why })?;
    if let Some(block_size) = options.block_size {
        verity::check_block_size(block_size)?;
    }
    if let Some(size) = options.size {
        verity::check_size(size)?;
    }
    if target.is_device() && verity.file.is_none() {
        let device = device_bytes(target.file())?;
        verity::check_room(device, options.size.unwrap_or(device))?;
    }
    Ok(())
}

/// Returns the size of a block device, which `stat` does not report.
fn device_bytes(mut device: &File) -> Result<u64, BuildError> {
    device.seek(SeekFrom::End(0)).map_err(BuildError::Write)
}

/// Rejects options that name the same file.
fn check_names(options: &BuildOptions) -> Result<(), BuildError> {
    let wanted = &options.output;
    let tree = wanted.verity.as_ref().and_then(|verity| verity.file.as_deref());
    let named = [("--verity", tree), ("--root-hash-file", wanted.root_hash_file.as_deref())];
    let mut taken = vec![place(&options.image)];
    for (option, path) in named {
        let Some(path) = path else { continue };
        let place = place(path);
        if taken.contains(&place) {
            return Err(BuildError::SameFile { option, path: path.to_owned() });
        }
        taken.push(place);
    }
    Ok(())
}

/// Returns the canonical directory and the name of a path.
fn place(path: &Path) -> (PathBuf, Option<OsString>) {
    let directory = super::input::beside(path);
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    (directory, path.file_name().map(OsString::from))
}
