//! Copying from an image to the host.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use vfs::path::{LastLink, split_last};
use vfs::{FileType, Paths};

use super::{CopyOptions, CopyReport, Observer};
use crate::extract::names::host_name;
use crate::extract::{ExtractOptions, extract_to_directory};
use crate::host::{self, FileTypeExt};
use crate::{Error, Result, lock};

/// Copies a file or directory of an image to `to` on the host, or into it if it is a directory.
///
/// Existing files and links are replaced without following links, except images in use.
///
/// # Errors
/// If something cannot be read or created. Files copied before remain.
pub fn out_of_image(
    paths: Paths<'_>,
    from: &[u8],
    to: &Path,
    options: CopyOptions,
    observer: &mut dyn Observer,
) -> Result<CopyReport> {
    let at = |source| Error::file(from, source);
    let last = if options.recursive { LastLink::Keep } else { LastLink::Follow };
    let ino = paths.resolve(from, last).map_err(at)?;
    let attributes = paths.file_system().attributes(ino).map_err(at)?;
    let is_directory = attributes.file_type == FileType::Directory;
    if !options.recursive && is_directory {
        let shown = crate::text::escaped(from);
        let problem = format!("{shown} is a directory; use -r to copy it with its contents");
        return Err(Error::Usage(problem));
    }
    let Some(name_here) = name_on_host(from, to, options, observer) else {
        return Ok(CopyReport { left_out: 1, ..CopyReport::default() });
    };
    let destination = match destination(to, &name_here, options)? {
        Destination::File(path) => path,
        Destination::Stream => {
            let file = File::options().write(true).open(to);
            let file = file.map_err(|e| Error::host("write", to, e))?;
            return to_stream(paths, ino, from, (to, file), observer);
        }
        Destination::Device => {
            let file = lock::open_to_write(to)?;
            return to_stream(paths, ino, from, (to, file), observer);
        }
    };
    let (directory, name) = match is_directory {
        true => (destination, None),
        false => parent_and_name(&destination)?,
    };
    // With `follow`, the walk starts at the target of a symbolic link.
    let extraction = ExtractOptions {
        path: from.to_vec(),
        name,
        follow: !options.recursive,
        force: true,
        plain: !options.preserve,
        map_names: options.map_names,
        keep_going: options.keep_going,
        ..ExtractOptions::default()
    };
    let report = extract_to_directory(paths, &directory, &extraction, observer)?;
    let (files, bytes, left_out) = (report.files, report.bytes, report.left_out);
    Ok(CopyReport { files, bytes, shared: 0, left_out })
}

/// Returns the last part of `from` as the host allows it. `None`, with a warning, if it does not and no other name is
/// given.
fn name_on_host(
    from: &[u8],
    to: &Path,
    options: CopyOptions,
    observer: &mut dyn Observer,
) -> Option<Vec<u8>> {
    let own_name = split_last(from).map_or(&b""[..], |(_, name)| name);
    match host_name(own_name, options.map_names) {
        Ok(name) => Some(name.into_owned()),
        // The user chose another name, which may be valid.
        Err(_) if !to.is_dir() => Some(own_name.into()),
        Err(problem) => {
            let shown = crate::text::escaped(from);
            observer.warning(&format!(
                "{shown}: Windows does not support this name, because {problem}; use --map-names \
                 to rename it, or add a name to the destination"
            ));
            None
        }
    }
}

/// Splits the path of a new file into an existing directory and the name in it.
fn parent_and_name(destination: &Path) -> Result<(PathBuf, Option<Vec<u8>>)> {
    let name = destination.file_name().map(|name| name.as_encoded_bytes().to_vec());
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Error::host("copy to", parent, missing));
    }
    Ok((parent.to_owned(), name))
}

enum Destination {
    File(PathBuf),
    /// Character device or pipe.
    Stream,
    /// Block device, which must not be in use.
    Device,
}

fn destination(to: &Path, own_name: &[u8], options: CopyOptions) -> Result<Destination> {
    let Ok(found) = to.metadata() else {
        let last = to.as_os_str().as_encoded_bytes().last();
        let ends_as_directory = last.is_some_and(|&last| std::path::is_separator(last.into()));
        if options.into_directory || ends_as_directory && own_name.is_empty() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::host("copy to", to, missing));
        }
        return Ok(Destination::File(to.to_owned()));
    };
    let file_type = found.file_type();
    if found.is_dir() {
        let name = host::path(own_name);
        let name = name.map_err(|e| Error::host("copy to", host::path_to_show(own_name), e))?;
        return Ok(Destination::File(to.join(name)));
    }
    if options.into_directory {
        let problem = std::io::Error::from(std::io::ErrorKind::NotADirectory);
        return Err(Error::host("copy to", to, problem));
    }
    Ok(match () {
        () if file_type.is_block_device() => Destination::Device,
        () if file_type.is_fifo() || file_type.is_char_device() => Destination::Stream,
        () => Destination::File(to.to_owned()),
    })
}

fn to_stream(
    paths: Paths<'_>,
    ino: vfs::Ino,
    from: &[u8],
    (to, mut file): (&Path, File),
    observer: &mut dyn Observer,
) -> Result<CopyReport> {
    let failed = |e| Error::host("write", to, e);
    let mut report = CopyReport { files: 1, ..CopyReport::default() };
    let mut written = Ok(());
    let read = paths.read_inode(ino, &mut |bytes| {
        written = file.write_all(bytes);
        report.bytes += bytes.len() as u64;
        observer.copied(bytes.len() as u64);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(|e| Error::file(from, e))?;
    written.map_err(failed)?;
    Ok(report)
}
