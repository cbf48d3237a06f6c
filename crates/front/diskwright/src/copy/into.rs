//! Copying from the host or an image into an image.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use import::{DirectorySource, Entry, EntryKind, Options, Source};
use vfs::path::{Circle, LastLink, Order, split_last};
use vfs::{
    Corruption, DeviceNumber, Error as FsError, FileSystem, FileType, Ino, Paths, SpecialFile,
    Timestamp,
};

use super::contents::{HostFile, ImageFile};
use super::import::{ImportTarget, Importer, NewFile, NewFileKind};
use super::{CopyOptions, CopyReport, From, Observer, host_name};
use crate::edit::Editor;
use crate::list::{absolute, join};
use crate::made_names::MadeNames;
use crate::windows_names::{STANDS_FOR_NONE, unmapped, unmapped_path};
use crate::{Error, Result, host};

/// Threads that prefetch a host directory.
const READ_AHEAD_THREADS: usize = 2;

/// Copies a file or directory to `to` in an image, or into it if it is a directory.
///
/// An existing file is replaced, unless the same copy created it and the names differ only in case. Without `preserve`,
/// the new file inherits its permissions, owner and extended attributes. Hard links within one copy are preserved.
///
/// # Errors
/// If something cannot be read or created. Files copied before remain.
pub fn into_image<'a>(
    editor: Editor<'a>,
    from: From<'a>,
    to: &[u8],
    options: CopyOptions,
    observer: &'a mut dyn Observer,
) -> Result<CopyReport> {
    into_image_after(editor, from, to, options, &mut MadeNames::default(), observer)
}

/// Same as [`into_image`], as one of several copies that share `names`.
///
/// A file does not replace a file of an earlier copy whose name differs only in case.
///
/// # Errors
/// Same as [`into_image`].
pub fn into_image_after<'a>(
    editor: Editor<'a>,
    from: From<'a>,
    to: &[u8],
    options: CopyOptions,
    names: &'a mut MadeNames,
    observer: &'a mut dyn Observer,
) -> Result<CopyReport> {
    let mut importer = Importer::new(editor, options, names, observer);
    let copied = match from {
        From::Host(path) => from_host(&mut importer, path, to, options),
        From::Image(paths, path) => from_image(&mut importer, paths, path, to, options),
    };
    match copied {
        Ok(()) => importer.finish(),
        Err(error) => {
            importer.give_up();
            Err(error)
        }
    }
}

/// Returns directory, name and path of the target.
fn target(
    editor: &Editor<'_>,
    name: &[u8],
    to: &[u8],
    options: CopyOptions,
    is_directory: bool,
) -> Result<(Ino, Vec<u8>, Vec<u8>)> {
    let paths = editor.paths();
    let path = editor.destination(name, to, options.into_directory, None)?;
    if !is_directory && path == to && to.ends_with(b"/") {
        return Err(Error::file(to, FsError::NotFound));
    }
    let place = if options.recursive {
        paths.parent(&path).map(|(dir, name)| (dir, name.to_vec()))
    } else {
        paths.parent_of_target(&path)
    };
    let (dir, name) = place.map_err(|e| Error::file(&path, e))?;
    Ok((dir, name, absolute(&path)))
}

fn from_host(
    importer: &mut Importer<'_>,
    path: &Path,
    to: &[u8],
    options: CopyOptions,
) -> Result<()> {
    let found = if options.recursive { path.symlink_metadata() } else { path.metadata() };
    let found = found.map_err(|e| Error::host("copy", path, e))?;
    if found.is_dir() && !options.recursive {
        return Err(is_directory(&path.display().to_string()));
    }
    let (dir, name, path_there) =
        target(&importer.editor, &image_name(path, options)?, to, options, found.is_dir())?;
    let place = ImportTarget { dir, name: &name, path: &path_there };
    if found.is_dir() {
        return host_directory(importer, path, place, options);
    }
    host_file(importer, path, &found, place, options)
}

fn is_directory(shown: &str) -> Error {
    Error::Usage(format!("{shown} is a directory; use -r to copy it with its contents"))
}

/// Copies a file that is named as a source.
fn host_file(
    importer: &mut Importer<'_>,
    path: &Path,
    found: &std::fs::Metadata,
    place: ImportTarget<'_>,
    options: CopyOptions,
) -> Result<()> {
    let failed = |e: std::io::Error| Error::host("copy", path, e);
    let known = host::attributes(found);
    let contents;
    let kind = match known.file_type {
        FileType::Symlink => {
            let target = std::fs::read_link(path).map_err(failed)?;
            let target = host::target_bytes(target);
            NewFileKind::Symlink(if options.map_names { unmapped(&target) } else { target })
        }
        FileType::CharDevice if options.recursive => {
            NewFileKind::Special(SpecialFile::CharDevice(known.device))
        }
        FileType::BlockDevice if options.recursive => {
            NewFileKind::Special(SpecialFile::BlockDevice(known.device))
        }
        FileType::Fifo if options.recursive => NewFileKind::Special(SpecialFile::Fifo),
        FileType::Socket if options.recursive => NewFileKind::Special(SpecialFile::Socket),
        _ => {
            let file = File::open(path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            contents = HostFile { file, path, size };
            NewFileKind::File(&contents)
        }
    };
    let unread = |e| Error::host("read the attributes of", path, e);
    let xattrs = if options.preserve { host::xattrs(path, true) } else { Ok(Vec::new()) };
    let item = NewFile {
        kind,
        permissions: known.permissions,
        uid: known.uid,
        gid: known.gid,
        atime: known.atime,
        mtime: known.mtime,
        xattrs: xattrs.map_err(unread)?,
    };
    importer.add(place, &item)?;
    Ok(())
}

/// Returns the name of a host file in the image.
fn image_name(path: &Path, options: CopyOptions) -> Result<Vec<u8>> {
    let name = host_name(path)?;
    if !options.map_names {
        return Ok(name);
    }
    path_in_image(&name, true).map_err(|e| Error::host("copy", path, e))
}

/// Converts a relative host path to an image path. With `maps`, mapped names are restored.
fn path_in_image(path: &[u8], maps: bool) -> std::io::Result<Vec<u8>> {
    if !maps {
        return Ok(path.to_vec());
    }
    unmapped_path(path).ok_or_else(|| std::io::Error::other(STANDS_FOR_NONE))
}

fn host_directory(
    importer: &mut Importer<'_>,
    path: &Path,
    top: ImportTarget<'_>,
    copy: CopyOptions,
) -> Result<()> {
    let meant = |name: &[u8]| {
        let failed = |e| Error::host("copy", path.join(host::path_to_show(name)), e);
        path_in_image(name, copy.map_names).map_err(failed)
    };
    let options = Options { threads: READ_AHEAD_THREADS, exclude: Vec::new() };
    let mut source = DirectorySource::open(path, &options)?;
    let mut tree = CopiedDirectories::default();
    while let Some(entry) = source.next_entry()? {
        let Entry { path, kind, metadata, xattrs, .. } = entry;
        let path = meant(&path)?;
        let path_there = join(top.path, &path);
        let (dir, name) = match split_last(&path) {
            None => (top.dir, top.name),
            Some((parent, name)) => {
                let dir = tree.directory(importer.editor.fs(), parent);
                (dir.map_err(|e| Error::file(&path_there, e))?, name)
            }
        };
        let place = ImportTarget { dir, name, path: &path_there };
        if let EntryKind::Hardlink(target) = &kind {
            let first = tree.find(importer, &meant(target)?).map_err(|e| place_error(place, e))?;
            importer.link(place, first)?;
            continue;
        }
        let time = |time: import::Time| Timestamp { sec: time.sec, nsec: time.nsec };
        let mtime = time(metadata.mtime);
        let kind = match kind {
            EntryKind::Symlink(target) if copy.map_names => EntryKind::Symlink(unmapped(&target)),
            kind => kind,
        };
        let item = NewFile {
            kind: kind_of(&kind),
            permissions: metadata.permissions,
            uid: metadata.uid,
            gid: metadata.gid,
            atime: metadata.atime.map_or(mtime, time),
            mtime,
            xattrs: xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect(),
        };
        let ino = importer.add(place, &item)?;
        if path.is_empty() {
            tree.top = Some(ino);
        }
    }
    Ok(())
}

fn place_error(place: ImportTarget<'_>, error: FsError) -> Error {
    Error::file(place.path, error)
}

fn kind_of(kind: &EntryKind) -> NewFileKind<'_> {
    match kind {
        EntryKind::Directory | EntryKind::Hardlink(_) => NewFileKind::Directory,
        EntryKind::File(content) => NewFileKind::File(content),
        EntryKind::Symlink(target) => NewFileKind::Symlink(target.clone()),
        &EntryKind::CharDevice { major, minor } => {
            NewFileKind::Special(SpecialFile::CharDevice(DeviceNumber { major, minor }))
        }
        &EntryKind::BlockDevice { major, minor } => {
            NewFileKind::Special(SpecialFile::BlockDevice(DeviceNumber { major, minor }))
        }
        EntryKind::Fifo => NewFileKind::Special(SpecialFile::Fifo),
        EntryKind::Socket => NewFileKind::Special(SpecialFile::Socket),
    }
}

/// Directories of a copy by relative path.
#[derive(Default)]
struct CopiedDirectories {
    top: Option<Ino>,
    /// Path of the directory used last. The next one is usually the same or close to it.
    path: Vec<u8>,
    /// Directories on that path, each with its path length.
    levels: Vec<(usize, Ino)>,
}

impl CopiedDirectories {
    /// Returns the directory at a path by looking up each name, so that links are not followed.
    fn directory(&mut self, fs: &dyn FileSystem, path: &[u8]) -> vfs::Result<Ino> {
        let top = self.top.ok_or(FsError::NotFound)?;
        let path = path.strip_suffix(b"/").unwrap_or(path);
        self.leave_for(path);
        for name in path[self.path.len()..].split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            let above = self.levels.last().map_or(top, |&(_, ino)| ino);
            let ino = fs.lookup(above, name)?;
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            self.levels.push((self.path.len(), ino));
        }
        Ok(self.levels.last().map_or(top, |&(_, ino)| ino))
    }

    /// Closes the directories that are not on the way to `path`.
    fn leave_for(&mut self, path: &[u8]) {
        if path == self.path {
            return;
        }
        let is_above = |len: usize| {
            path.get(len).is_none_or(|&b| b == b'/') && path.starts_with(&self.path[..len])
        };
        let above = self.levels.partition_point(|&(len, _)| is_above(len));
        self.levels.truncate(above);
        self.path.truncate(self.levels.last().map_or(0, |&(len, _)| len));
    }

    fn find(&mut self, importer: &Importer<'_>, path: &[u8]) -> vfs::Result<Ino> {
        let (parent, name) = split_last(path).ok_or(FsError::NotFound)?;
        importer.lookup(self.directory(importer.editor.fs(), parent)?, name)
    }
}

fn from_image(
    importer: &mut Importer<'_>,
    paths: Paths<'_>,
    path: &[u8],
    to: &[u8],
    options: CopyOptions,
) -> Result<()> {
    let at = |source| Error::file(path, source);
    let fs = paths.file_system();
    let last = if options.recursive { LastLink::Keep } else { LastLink::Follow };
    let ino = paths.resolve(path, last).map_err(at)?;
    let is_dir = fs.attributes(ino).map_err(at)?.file_type == FileType::Directory;
    if is_dir && !options.recursive {
        return Err(is_directory(&crate::text::escaped(path).to_string()));
    }
    let own_name = split_last(path).map_or(&b""[..], |(_, name)| name);
    let (dir, name, path_there) = target(&importer.editor, own_name, to, options, is_dir)?;
    if std::ptr::addr_eq(fs, importer.editor.fs()) {
        check_apart(fs, ino, dir, &name).map_err(|e| Error::file(&path_there, e))?;
    }
    let mut tree = CopiedDirectories::default();
    let mut links: HashMap<Ino, Ino> = HashMap::new();
    for walked in paths.walk(ino, Order::Sorted) {
        let path_here = |below: &[u8]| join(&absolute(path), below);
        let walked = walked.map_err(|e| Error::file(&path_here(&e.path), e.error))?;
        let (here, there) = (path_here(&walked.path), join(&path_there, &walked.path));
        let (dir, name) = match split_last(&walked.path) {
            None => (dir, name.as_slice()),
            Some((parent, name)) => {
                let dir = tree.directory(importer.editor.fs(), parent);
                (dir.map_err(|e| Error::file(&there, e))?, name)
            }
        };
        let place = ImportTarget { dir, name, path: &there };
        let attributes = walked.attributes;
        if let Some(&first) = links.get(&attributes.ino) {
            importer.link(place, first)?;
            continue;
        }
        let made = image_file(importer, fs, &attributes, &here, place, options)?;
        if walked.path.is_empty() {
            tree.top = Some(made);
        }
        if attributes.links > 1 && attributes.file_type != FileType::Directory {
            links.insert(attributes.ino, made);
        }
    }
    Ok(())
}

/// Rejects copying a file to itself or a directory into itself.
fn check_apart(fs: &dyn FileSystem, from: Ino, dir: Ino, name: &[u8]) -> vfs::Result<()> {
    if fs.lookup(dir, name).is_ok_and(|taken| taken == from) {
        return Err(FsError::Invalid("source and destination are the same file"));
    }
    let (mut above, mut circle) = (dir, Circle::default());
    loop {
        if above == from {
            return Err(FsError::Invalid("a directory cannot be copied into itself"));
        }
        let next = fs.lookup(above, b"..")?;
        if next == above {
            return Ok(());
        }
        if circle.closes_at(above) {
            let damage = Corruption::new("directory tree", "the parent directories form a loop");
            return Err(damage.of_inode(dir.0).into());
        }
        above = next;
    }
}

fn image_file(
    importer: &mut Importer<'_>,
    fs: &dyn FileSystem,
    from: &vfs::Attributes,
    path: &[u8],
    place: ImportTarget<'_>,
    options: CopyOptions,
) -> Result<Ino> {
    let at = |e| Error::file(path, e);
    let contents = ImageFile { fs, ino: from.ino, size: from.size, path };
    let kind = match from.file_type {
        FileType::Directory => NewFileKind::Directory,
        FileType::Regular => NewFileKind::File(&contents),
        FileType::Symlink => NewFileKind::Symlink(fs.readlink(from.ino).map_err(at)?),
        FileType::CharDevice => NewFileKind::Special(SpecialFile::CharDevice(from.device)),
        FileType::BlockDevice => NewFileKind::Special(SpecialFile::BlockDevice(from.device)),
        FileType::Fifo => NewFileKind::Special(SpecialFile::Fifo),
        FileType::Socket => NewFileKind::Special(SpecialFile::Socket),
    };
    let mut xattrs = Vec::new();
    if options.preserve {
        let mut names = Vec::new();
        fs.list_xattrs(from.ino, &mut |name| names.push(name.to_vec())).map_err(at)?;
        for name in names {
            let value = fs.get_xattr(from.ino, &name).map_err(at)?;
            xattrs.push((name, value));
        }
    }
    let item = NewFile {
        kind,
        permissions: from.permissions,
        uid: from.uid,
        gid: from.gid,
        atime: from.atime,
        mtime: from.mtime,
        xattrs,
    };
    importer.add(place, &item)
}
