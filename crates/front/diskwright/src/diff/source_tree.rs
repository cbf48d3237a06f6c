//! Tree read from an archive, a container image or a manifest. Names and attributes are in memory; contents can be read
//! at any time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use import::mtree::{Manifest, ManifestOptions};
use import::oci::{self, ContainerFault, Limits};
use import::{
    Conflict, Content, Entry, EntryKind, Metadata, Source, SourceError, TAR_BLOCK_BYTES, Time,
};
use vfs::{Attributes, DeviceNumber, FileType, Ino, Protection, Timestamp};

use super::tree::Xattrs;
use crate::Result;
use crate::build::{BuildError, Container, ManifestFile};
use crate::host::{FileTypeExt, path_to_show};
use crate::text::shown;

/// Permissions of implied directories, which belong to root.
const IMPLIED_PERMISSIONS: u16 = 0o755;

/// Maximum number of files, implied directories included. The memory limit for names restricts listed entries to half
/// of that.
const FILES_MAX: usize = 1 << 23;

/// Tree read from a source that cannot be walked.
#[derive(Debug)]
pub struct SourceTree {
    name: String,
    /// All files; the root is first.
    files: Vec<Held>,
    has_nanoseconds: bool,
}

/// File in memory.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
    pub(super) body: HeldBody,
    /// True if the source lists it. Implied directories are not listed.
    pub(super) is_listed: bool,
}

/// Type of an entry, with its data.
#[derive(Debug)]
pub(super) enum HeldBody {
    Directory(BTreeMap<Box<[u8]>, usize>),
    Regular(Content),
    Symlink(Vec<u8>),
    Special,
}

impl SourceTree {
    /// Index of the root.
    pub(super) const ROOT: usize = 0;

    /// Returns whether a path is for [`Self::of_archive`] instead of an image: it starts like an archive, is a pipe, or
    /// is `-`.
    pub fn is_archive(path: &Path) -> bool {
        if path.as_os_str() == "-" {
            return true;
        }
        let Ok(found) = std::fs::metadata(path) else { return false };
        if !found.is_file() {
            return found.file_type().is_fifo();
        }
        let mut head = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take(TAR_BLOCK_BYTES as u64).read_to_end(&mut head));
        read.is_ok() && import::is_archive(&head)
    }

    /// Loads a container image and merges its layers, like a build. Temporary data is stored in an anonymous file in
    /// `beside`.
    ///
    /// # Errors
    /// If it cannot be read, does not match its digests and sizes, or exceeds a limit.
    pub fn of_container(container: &Container, beside: &Path, threads: usize) -> Result<Self> {
        let options = container.options(beside, threads);
        let image =
            oci::ContainerImage::load(&container.reference, &options).map_err(BuildError::from)?;
        Ok(Self::read(container.reference.to_string(), &mut image.source())?)
    }

    /// Loads a tar archive, plain or compressed with gzip or zstd; `-` is standard input. Contents of compressed or
    /// streamed archives are stored in an anonymous file in `beside`. `bytes_max` limits the decompressed size; `None`
    /// is 1 GiB plus 1024 times the compressed size.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, lists a file twice, or exceeds a limit.
    pub fn of_archive(path: &Path, beside: &Path, bytes_max: Option<u64>) -> Result<Self> {
        let limits = Limits { layer_bytes: bytes_max, ..Limits::default() };
        let entries = oci::read_archive(path, beside, &limits).map_err(BuildError::from)?;
        let is_input = path.as_os_str() == "-";
        let mut tree = Self::empty(if is_input { "standard input".into() } else { shown(path) });
        let added = entries.into_iter().try_for_each(|entry| tree.add(entry));
        Ok(added.map(|()| tree).map_err(BuildError::from)?)
    }

    /// Loads a manifest and verifies the contents that it lists.
    ///
    /// # Errors
    /// If it cannot be read or parsed, or the contents differ.
    pub fn of_manifest(manifest: &ManifestFile, threads: usize) -> Result<Self> {
        let options = ManifestOptions { threads, time: Time::default() };
        let read = Manifest::load(&manifest.file, manifest.root.as_deref(), &options);
        Ok(Self::read(shown(&manifest.file), &mut read.map_err(BuildError::from)?.source())?)
    }

    fn read(name: String, source: &mut dyn Source) -> Result<Self, BuildError> {
        let mut tree = Self::empty(name);
        while let Some(entry) = source.next_entry()? {
            tree.add(entry)?;
        }
        Ok(tree)
    }

    fn empty(name: String) -> Self {
        Self { name, files: vec![implied(Self::ROOT)], has_nanoseconds: false }
    }

    /// Returns whether any time has a fraction of a second. Archives without fractions usually do not store them.
    pub(super) fn has_nanoseconds(&self) -> bool {
        self.has_nanoseconds
    }

    pub(super) fn file(&self, number: usize) -> &Held {
        &self.files[number]
    }

    /// Returns the names in a directory, or `None` for other files.
    pub(super) fn names(&self, number: usize) -> Option<&BTreeMap<Box<[u8]>, usize>> {
        match &self.files[number].body {
            HeldBody::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// Returns the index of the file at a path, without following links.
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.try_fold(Self::ROOT, |dir, name| self.names(dir)?.get(name).copied())
    }

    /// Adds an entry, in source order.
    fn add(&mut self, entry: Entry) -> Result<(), SourceError> {
        let path = entry.path.clone();
        let Err(conflict) = self.put(entry) else { return Ok(()) };
        let name = self.name.clone();
        Err(match conflict {
            // There is only one source, so the error refers to it.
            Conflict::NotADirectory(parent) => {
                let entry = Some(path_to_show(&path));
                let fault = Box::new(ContainerFault::NotADirectory(parent));
                SourceError::Layer { layer: name.into(), entry, fault }
            }
            conflict => SourceError::Conflict { name, entry: path, conflict },
        })
    }

    fn put(&mut self, entry: Entry) -> Result<(), Conflict> {
        let Entry { path, kind, metadata, xattrs, .. } = entry;
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (parent, name) = path.split_at(slash.map_or(0, |at| at + 1));
        if let EntryKind::Hardlink(target) = kind {
            return self.link(parent, name, target);
        }
        let number = self.files.len();
        let xattrs = xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect();
        let held = held(number, kind, &metadata, xattrs);
        self.has_nanoseconds |= metadata.mtime.nsec != 0;
        let existing = match name.is_empty() {
            true => Some(Self::ROOT),
            false => self.directory(parent)?.get(name).copied(),
        };
        let Some(existing) = existing else { return self.insert(parent, name, held) };
        let old = &mut self.files[existing];
        let is_directory = |held: &Held| matches!(held.body, HeldBody::Directory(_));
        if !is_directory(old) || !is_directory(&held) {
            return Err(Conflict::Repeated);
        }
        // An existing directory keeps its entries.
        old.attributes = Attributes { ino: old.attributes.ino, ..held.attributes };
        (old.xattrs, old.is_listed) = (held.xattrs, true);
        Ok(())
    }

    fn link(&mut self, parent: &[u8], name: &[u8], target: Vec<u8>) -> Result<(), Conflict> {
        let file = self.find(&target).filter(|&found| self.names(found).is_none());
        let Some(file) = file else { return Err(Conflict::LinkTarget(target)) };
        let names = self.directory(parent)?;
        if name.is_empty() || names.contains_key(name) {
            return Err(Conflict::Repeated);
        }
        names.insert(name.into(), file);
        let links = &mut self.files[file].attributes.links;
        *links = links.saturating_add(1);
        Ok(())
    }

    fn insert(&mut self, parent: &[u8], name: &[u8], held: Held) -> Result<(), Conflict> {
        let number = self.push(held)?;
        self.directory(parent)?.insert(name.into(), number);
        Ok(())
    }

    fn push(&mut self, held: Held) -> Result<usize, Conflict> {
        if self.files.len() >= FILES_MAX {
            return Err(Conflict::TooMany(FILES_MAX));
        }
        let number = self.files.len();
        let ino = Ino(number as u64 + 1);
        self.files.push(Held { attributes: Attributes { ino, ..held.attributes }, ..held });
        Ok(number)
    }

    /// Returns the names in a directory, which is created if missing.
    fn directory(&mut self, path: &[u8]) -> Result<&mut BTreeMap<Box<[u8]>, usize>, Conflict> {
        let (mut dir, mut end) = (Self::ROOT, 0);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            end += name.len() + usize::from(end > 0);
            let Some(names) = self.names(dir) else { break };
            let next = match names.get(name) {
                Some(&next) => next,
                None => {
                    let made = self.push(implied(self.files.len()))?;
                    if let HeldBody::Directory(names) = &mut self.files[dir].body {
                        names.insert(name.into(), made);
                    }
                    made
                }
            };
            if self.names(next).is_none() {
                return Err(Conflict::NotADirectory(path[..end].to_vec()));
            }
            dir = next;
        }
        match &mut self.files[dir].body {
            HeldBody::Directory(names) => Ok(names),
            // Only directories can be walked through.
            _ => Err(Conflict::NotADirectory(path.to_vec())),
        }
    }
}

/// Creates an implied directory.
fn implied(number: usize) -> Held {
    let metadata = Metadata {
        permissions: IMPLIED_PERMISSIONS,
        uid: 0,
        gid: 0,
        mtime: Time::default(),
        atime: None,
        ctime: None,
    };
    let made = held(number, EntryKind::Directory, &metadata, Vec::new());
    Held { is_listed: false, ..made }
}

/// Creates the file of an entry. Not called for hard links.
fn held(number: usize, kind: EntryKind, metadata: &Metadata, xattrs: Xattrs) -> Held {
    let mut device = DeviceNumber::default();
    let (file_type, size, body) = match kind {
        EntryKind::Directory => (FileType::Directory, 0, HeldBody::Directory(BTreeMap::new())),
        EntryKind::File(content) => (FileType::Regular, content.size(), HeldBody::Regular(content)),
        EntryKind::Symlink(target) => {
            (FileType::Symlink, target.len() as u64, HeldBody::Symlink(target))
        }
        EntryKind::CharDevice { major, minor } => {
            device = DeviceNumber { major, minor };
            (FileType::CharDevice, 0, HeldBody::Special)
        }
        EntryKind::BlockDevice { major, minor } => {
            device = DeviceNumber { major, minor };
            (FileType::BlockDevice, 0, HeldBody::Special)
        }
        EntryKind::Fifo | EntryKind::Hardlink(_) => (FileType::Fifo, 0, HeldBody::Special),
        EntryKind::Socket => (FileType::Socket, 0, HeldBody::Special),
    };
    let time = |time: Time| Timestamp { sec: time.sec, nsec: time.nsec };
    let mtime = time(metadata.mtime);
    let attributes = Attributes {
        ino: Ino(number as u64 + 1),
        generation: 0,
        file_type,
        permissions: metadata.permissions,
        links: 1,
        uid: metadata.uid,
        gid: metadata.gid,
        size,
        blocks_512: 0,
        device,
        atime: metadata.atime.map_or(mtime, time),
        mtime,
        ctime: metadata.ctime.map_or(mtime, time),
        crtime: None,
        protection: Protection::default(),
        is_noatime: false,
    };
    Held { attributes, xattrs, body, is_listed: true }
}
