//! Writes the entries of a source to a fresh file system.
//!
//! One thread applies the entries in source order through the usual file system operations; this order alone determines
//! the layout. Only the copying of file contents is parallel.

use std::ops::ControlFlow;

use import::{Body, Entry, EntryKind, InodeDetails, Metadata, Source, Time, Xattr};
use vfs::{
    AllocateMode, DeviceNumber, ExtentPlace, FileSystem, Ino, NewInode, SetAttributes, SpecialFile,
    Timestamp,
};

use super::copy::{Copied, Copier, CopyExtent, Runs};
use super::dedupe::{KnownContents, Looked, WholeFile};
use super::details::{LeftOut, SourceDetails};
use super::policy::Policy;
use super::sparse::{self, BlockGrid};
use super::{BuildError, identity};
use crate::made_names::MadeNames;

/// Bytes of a streamed file read at a time.
const STREAM_BYTES: usize = 1 << 20;

/// Permissions of parent directories that the source does not list.
const IMPLIED_DIRECTORY_PERMISSIONS: u16 = 0o755;

/// Totals of the entries created so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreatedTotals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// Bytes that share blocks with other files.
    pub(super) shared: u64,
}

/// Writer of entries to a file system.
pub(super) struct Writer<'a, 'scope> {
    fs: &'a dyn FileSystem,
    policy: Policy,
    copier: Copier<'scope>,
    /// Attributes to set at the end, because creating further entries would change them.
    directories: Vec<(Ino, SetAttributes)>,
    details: SourceDetails<'a>,
    /// Directory of the last entry, which is usually also that of the next one.
    parent: (Vec<u8>, Ino),
    made: CreatedTotals,
    /// Checksum of the contents of streamed files.
    contents: u64,
    buffer: Vec<u8>,
    /// Contents available for deduplication.
    known: Option<KnownContents<'a>>,
    names: MadeNames,
    /// Bytes of contents since the space of zeros was last freed.
    unsettled: u64,
}

impl<'a, 'scope> Writer<'a, 'scope> {
    pub(super) fn new(fs: &'a dyn FileSystem, policy: Policy, copier: Copier<'scope>) -> Self {
        let parent = (Vec::new(), fs.root());
        let (directories, made, buffer) = (Vec::new(), CreatedTotals::default(), Vec::new());
        let (details, known, names) = (SourceDetails::new(fs), None, MadeNames::default());
        let (contents, unsettled) = (0, 0);
        Self {
            fs,
            policy,
            copier,
            directories,
            details,
            parent,
            made,
            contents,
            buffer,
            known,
            names,
            unsettled,
        }
    }

    /// Enables deduplication.
    pub(super) fn with_known(self, known: Option<KnownContents<'a>>) -> Self {
        Self { known, ..self }
    }

    /// Returns the totals so far.
    pub(super) fn made(&self) -> CreatedTotals {
        self.made
    }

    /// Creates one entry. The contents of a streamed file are read from `source`.
    pub(super) fn add(
        &mut self,
        mut entry: Entry,
        source: &mut dyn Source,
    ) -> Result<(), BuildError> {
        self.made.entries += 1;
        let path = std::mem::take(&mut entry.path);
        self.apply(&path, entry, source).map_err(|e| e.at(&path))
    }

    /// Rejects a name that equals another entry's name in a case-insensitive directory.
    fn note_name(&mut self, dir: Ino, name: &[u8]) -> Result<(), BuildError> {
        match self.names.note(self.fs, dir, name)? {
            Some(other) => Err(BuildError::SameButForCase(other)),
            None => Ok(()),
        }
    }

    fn apply(
        &mut self,
        path: &[u8],
        entry: Entry,
        source: &mut dyn Source,
    ) -> Result<(), BuildError> {
        let Entry { path: _, kind, metadata, xattrs, inode } = entry;
        let inode = inode.as_deref();
        let times = self.times(&metadata, inode);
        let new = self.new_inode(&metadata, times.mtime);
        if path.is_empty() {
            return self.set_root(&xattrs, &new, times, inode);
        }
        let (dir, name) = self.parent_of(path)?;
        self.note_name(dir, name)?;
        let is_directory = matches!(kind, EntryKind::Directory);
        let fs = self.fs;
        let special = |file| once(fs.mknod(dir, name, file, &new));
        let ino = match kind {
            EntryKind::Directory => self.directory(dir, name, &new, times)?,
            EntryKind::File(content) => {
                let ino = once(self.fs.create(dir, name, &new))?;
                if let Some(details) = inode {
                    self.details.before_contents(ino, details)?;
                }
                self.fill(ino, content, source)?;
                ino
            }
            EntryKind::Symlink(target) => once(self.fs.symlink(dir, name, &target, &new))?,
            EntryKind::Hardlink(target) => {
                let ino = self.resolve(&target)?.ok_or(BuildError::LinkTarget(target))?;
                return once(self.fs.link(ino, dir, name, None));
            }
            EntryKind::CharDevice { major, minor } => {
                special(SpecialFile::CharDevice(DeviceNumber { major, minor }))?
            }
            EntryKind::BlockDevice { major, minor } => {
                special(SpecialFile::BlockDevice(DeviceNumber { major, minor }))?
            }
            EntryKind::Fifo => special(SpecialFile::Fifo)?,
            EntryKind::Socket => special(SpecialFile::Socket)?,
        };
        self.set_xattrs(ino, &xattrs, inode)?;
        if !times.are_one() {
            self.fs.set_attributes(ino, &times.change())?;
        }
        if let Some(details) = inode {
            self.details.check_times(ino, &times.change())?;
            if is_directory {
                self.details.of_directory(ino, details)?;
            } else {
                self.details.of_file(ino, details)?;
            }
        }
        Ok(())
    }

    /// Sets extended attributes. Attributes that the format does not support are skipped if the source is an image, and
    /// an error otherwise.
    fn set_xattrs(
        &mut self,
        ino: Ino,
        xattrs: &[Xattr],
        inode: Option<&InodeDetails>,
    ) -> Result<(), BuildError> {
        for xattr in xattrs {
            match inode {
                Some(_) => self.details.set_xattr(ino, &xattr.name, &xattr.value)?,
                None => self.fs.set_xattr(ino, &xattr.name, &xattr.value)?,
            }
        }
        Ok(())
    }

    /// Applies owner, permissions and xattrs of the source's root to the root of the image.
    fn set_root(
        &mut self,
        xattrs: &[Xattr],
        new: &NewInode,
        times: Times,
        inode: Option<&InodeDetails>,
    ) -> Result<(), BuildError> {
        let root = self.fs.root();
        self.set_directory(root, new, times)?;
        self.set_xattrs(root, xattrs, inode)?;
        if let Some(details) = inode {
            self.details.of_directory(root, details)?;
        }
        Ok(())
    }

    /// Creates a directory or updates an existing one.
    fn directory(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewInode,
        times: Times,
    ) -> Result<Ino, BuildError> {
        match self.fs.mkdir(dir, name, new) {
            Ok(ino) => {
                self.directories.push((ino, times.change()));
                Ok(ino)
            }
            Err(vfs::Error::Exists) => {
                let ino = self.fs.lookup(dir, name)?;
                if self.fs.attributes(ino)?.file_type != vfs::FileType::Directory {
                    return Err(BuildError::Repeated);
                }
                self.set_directory(ino, new, times)?;
                Ok(ino)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn set_directory(&mut self, ino: Ino, new: &NewInode, times: Times) -> Result<(), BuildError> {
        let change = SetAttributes {
            permissions: Some(new.permissions),
            uid: Some(new.uid),
            gid: Some(new.gid),
            ..times.change()
        };
        self.fs.set_attributes(ino, &change)?;
        self.directories.push((ino, times.change()));
        Ok(())
    }

    /// Writes the contents of a new file.
    fn fill(
        &mut self,
        ino: Ino,
        content: import::Content,
        source: &mut dyn Source,
    ) -> Result<(), BuildError> {
        let size = content.size();
        self.made.bytes += content.data_len();
        if self.known.is_some() && !self.policy.is_trial {
            return self.fill_shared(ino, content, source);
        }
        let mut runs = Vec::new();
        let mut whole = None;
        let mut end = content.runs().last().map_or(0, |r| r.offset + r.len);
        match content.body() {
            Body::Empty => {}
            Body::Stream if !self.policy.is_trial => {
                end = self.stream(ino, &content, source)?;
            }
            Body::Stream | Body::Detached(_) => {
                let without_zeros = self.allocate(ino, &content)?;
                let taken = without_zeros.as_deref().unwrap_or(content.runs());
                end = taken.last().map_or(0, |run| run.offset + run.len);
                for run in taken.iter().filter(|_| !self.policy.is_trial) {
                    self.place(ino, run.offset, run.len, &mut whole, &mut runs)?;
                }
            }
        }
        if end < size {
            self.fs.truncate(ino, size, None)?;
        }
        if self.policy.is_trial {
            return Ok(());
        }
        if let (Body::Detached(body), Some(first)) = (content.into_body(), whole) {
            let runs = if runs.is_empty() { Runs::One(first) } else { Runs::Many(runs) };
            self.copy(Copied { ino, size, body }, runs)?;
        }
        Ok(())
    }

    /// Queues a file for copying. Frees the space of zeros after a certain amount of contents.
    fn copy(&mut self, file: Copied, runs: Runs) -> Result<(), BuildError> {
        if !self.policy.is_sparse {
            return self.copier.copy(file, runs);
        }
        let bytes: u64 = runs.as_slice().iter().map(|run| run.len).sum();
        if self.unsettled + bytes < sparse::SETTLED_BYTES {
            self.unsettled += bytes;
            return self.copier.copy(file, runs);
        }
        let runs = runs.as_slice().iter();
        for part in runs.flat_map(|run| run.parts(sparse::SETTLED_BYTES)) {
            self.unsettled += part.len;
            self.copier.copy(file.clone(), Runs::One(part))?;
            if self.unsettled >= sparse::SETTLED_BYTES {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Allocates space for the data of a file. If there is not enough, blocks of zeros get none, and the allocated data
    /// runs are returned.
    fn allocate(
        &mut self,
        ino: Ino,
        content: &import::Content,
    ) -> Result<Option<Vec<import::DataRun>>, BuildError> {
        let Err(error) = self.allocate_runs(ino, content.runs()) else { return Ok(None) };
        let is_full = matches!(error, vfs::Error::NoSpace);
        let Body::Detached(body) = content.body() else { return Err(error.into()) };
        if !is_full || !self.policy.is_sparse || self.policy.is_trial {
            return Err(error.into());
        }
        self.settle()?;
        match self.allocate_runs(ino, content.runs()) {
            Err(vfs::Error::NoSpace) => {}
            other => return Ok(other.map(|()| None)?),
        }
        self.fs.truncate(ino, 0, None)?;
        let blocks = BlockGrid { unit: self.copier.block_size(), size: content.size() };
        let runs = sparse::data_runs(body, content.runs(), blocks)?;
        self.allocate_runs(ino, &runs)?;
        Ok(Some(runs))
    }

    fn allocate_runs(&self, ino: Ino, runs: &[import::DataRun]) -> vfs::Result<()> {
        let mut runs = runs.iter();
        runs.try_for_each(|run| self.fs.allocate(ino, run.offset, run.len, AllocateMode::Exposed))
    }

    /// Waits for the copying threads and frees the space of zeros.
    fn settle(&mut self) -> Result<(), BuildError> {
        self.unsettled = 0;
        let zeros = self.copier.settle()?;
        Ok(make_holes(self.fs, zeros)?)
    }

    /// Same as [`Self::fill`], with deduplication.
    fn fill_shared(
        &mut self,
        ino: Ino,
        content: import::Content,
        source: &mut dyn Source,
    ) -> Result<(), BuildError> {
        let size = content.size();
        let (mut runs, mut whole) = (Vec::new(), None);
        match (content.body(), &mut self.known) {
            (Body::Detached(body), Some(known)) => {
                let looked = known.look(ino, size, content.runs(), body)?;
                for part in looked.parts.iter().filter(|part| part.same.is_none()) {
                    let run = part.run;
                    self.fs.allocate(ino, run.offset, run.len, AllocateMode::Exposed)?;
                    self.place(ino, run.offset, run.len, &mut whole, &mut runs)?;
                }
                self.share(ino, &looked)?;
            }
            (Body::Stream, _) => self.stream_shared(ino, size, content.runs(), source)?,
            _ => {}
        }
        if self.fs.attributes(ino)?.size < size {
            self.fs.truncate(ino, size, None)?;
        }
        if let (Body::Detached(body), Some(first)) = (content.into_body(), whole) {
            let runs = if runs.is_empty() { Runs::One(first) } else { Runs::Many(runs) };
            self.copier.copy(Copied { ino, size, body }, runs)?;
        }
        Ok(())
    }

    /// Shares the parts that other files have. The remaining parts already have their blocks.
    fn share(&mut self, ino: Ino, looked: &Looked) -> Result<(), BuildError> {
        let Some(known) = &mut self.known else { return Ok(()) };
        self.contents = self.contents.wrapping_add(looked.contents);
        looked.parts.iter().try_for_each(|part| known.share(ino, part))
    }

    /// Same as [`Self::stream`], with deduplication. Blocks are looked up before they are written, whole files
    /// afterwards.
    fn stream_shared(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[import::DataRun],
        source: &mut dyn Source,
    ) -> Result<(), BuildError> {
        let mut file = WholeFile::new(size);
        let is_by_file = self.known.as_ref().is_some_and(KnownContents::is_by_file);
        self.buffer.resize(STREAM_BYTES, 0);
        let mut buffer = std::mem::take(&mut self.buffer);
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let want = (run.len - done).min(STREAM_BYTES as u64) as usize;
                let bytes = &mut buffer[..want];
                read_all(source, bytes)?;
                let offset = run.offset + done;
                if is_by_file {
                    file.add(bytes);
                    self.fs.write(ino, offset, bytes, None)?;
                    let term = identity::contents_term(offset, bytes);
                    self.contents = self.contents.wrapping_add(term);
                } else {
                    self.write_unlike(ino, size, offset, bytes)?;
                }
                done += want as u64;
            }
        }
        self.buffer = buffer;
        let known = self.known.as_mut().filter(|_| is_by_file && !runs.is_empty());
        let Some(known) = known else { return Ok(()) };
        let Some(part) = known.written(ino, runs, file)? else { return Ok(()) };
        self.fs.truncate(ino, 0, None)?;
        known.share(ino, &part)
    }

    /// Writes the new blocks of a file and shares the others.
    fn write_unlike(
        &mut self,
        ino: Ino,
        size: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BuildError> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let mut looked = Looked::default();
        known.split(ino, size, (offset, bytes), &mut looked)?;
        for part in looked.parts.iter().filter(|part| part.same.is_none()) {
            let start = (part.run.offset - offset) as usize;
            let bytes = &bytes[start..start + part.run.len as usize];
            self.fs.write(ino, part.run.offset, bytes, None)?;
            let term = identity::contents_term(part.run.offset, bytes);
            self.contents = self.contents.wrapping_add(term);
        }
        self.share(ino, &looked)
    }

    /// Finds the device location of the allocated bytes of a run. Stores it in `one` if the whole file has a single
    /// location, in `many` otherwise.
    fn place(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        one: &mut Option<CopyExtent>,
        many: &mut Vec<CopyExtent>,
    ) -> Result<(), BuildError> {
        self.fs.extent_map(ino, offset, len, &mut |extent| {
            let ExtentPlace::Device(device_offset) = extent.place else {
                return ControlFlow::Continue(());
            };
            let run = CopyExtent { file_offset: extent.offset, device_offset, len: extent.len };
            if let Some(first) = *one {
                if many.is_empty() {
                    many.push(first);
                }
                many.push(run);
            } else {
                *one = Some(run);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Writes streamed contents. Returns the end of the last bytes written.
    fn stream(
        &mut self,
        ino: Ino,
        content: &import::Content,
        source: &mut dyn Source,
    ) -> Result<u64, BuildError> {
        self.buffer.resize(STREAM_BYTES, 0);
        let blocks = BlockGrid { unit: self.copier.block_size(), size: content.size() };
        let mut end = 0;
        for run in content.runs() {
            let mut done = 0;
            while done < run.len {
                let offset = run.offset + done;
                // Pieces end at block boundaries.
                let room = STREAM_BYTES as u64 - offset % blocks.unit;
                let want = (run.len - done).min(room) as usize;
                let bytes = &mut self.buffer[..want];
                read_all(source, bytes)?;
                let term = identity::contents_term(offset, bytes);
                self.contents = self.contents.wrapping_add(term);
                let parts = if self.policy.is_sparse {
                    blocks.data(offset, bytes)
                } else {
                    std::iter::once(0..want).collect()
                };
                for part in parts {
                    end = offset + part.end as u64;
                    self.fs.write(ino, offset + part.start as u64, &bytes[part], None)?;
                }
                done += want as u64;
            }
        }
        Ok(end)
    }

    /// Returns the parent directory and name of an entry. Unlisted parent directories are created.
    fn parent_of<'p>(&mut self, path: &'p [u8]) -> Result<(Ino, &'p [u8]), BuildError> {
        let Some(slash) = path.iter().rposition(|&b| b == b'/') else {
            return Ok((self.fs.root(), path));
        };
        let (parent, name) = (&path[..slash], &path[slash + 1..]);
        if self.parent.0 != parent {
            let ino = self.make_directories(parent)?;
            self.parent.0.clear();
            self.parent.0.extend_from_slice(parent);
            self.parent.1 = ino;
        }
        Ok((self.parent.1, name))
    }

    fn make_directories(&mut self, path: &[u8]) -> Result<Ino, BuildError> {
        let mut dir = self.fs.root();
        for name in path.split(|&b| b == b'/') {
            self.note_name(dir, name)?;
            dir = match self.fs.lookup(dir, name) {
                Ok(ino) => ino,
                Err(vfs::Error::NotFound) => {
                    let new = NewInode {
                        permissions: IMPLIED_DIRECTORY_PERMISSIONS,
                        uid: self.policy.owner.map_or(0, |o| o.uid),
                        gid: self.policy.owner.map_or(0, |o| o.gid),
                        time: self.policy.time,
                        parent_time: None,
                    };
                    let ino = self.fs.mkdir(dir, name, &new)?;
                    self.directories.push((ino, Times::all(self.policy.time).change()));
                    ino
                }
                Err(e) => return Err(e.into()),
            };
        }
        Ok(dir)
    }

    fn resolve(&self, path: &[u8]) -> Result<Option<Ino>, BuildError> {
        let mut ino = self.fs.root();
        for name in path.split(|&b| b == b'/') {
            ino = match self.fs.lookup(ino, name) {
                Ok(ino) => ino,
                Err(vfs::Error::NotFound | vfs::Error::NotADirectory) => return Ok(None),
                Err(e) => return Err(e.into()),
            };
        }
        Ok(Some(ino))
    }

    fn new_inode(&self, metadata: &Metadata, time: Timestamp) -> NewInode {
        let owner = self.policy.owner_of(metadata);
        NewInode {
            permissions: metadata.permissions,
            uid: owner.uid,
            gid: owner.gid,
            time,
            // The times of directories are set at the end.
            parent_time: None,
        }
    }

    /// Missing times are set to the modification time, so that reading a source does not change the image built from
    /// it.
    fn times(&self, metadata: &Metadata, inode: Option<&InodeDetails>) -> Times {
        let clamp = |time: Time| self.policy.clamped(time);
        let mtime = clamp(metadata.mtime);
        if self.policy.mtime_only {
            let accessed = metadata.atime.filter(|_| self.policy.access_times);
            return Times { atime: accessed.map_or(mtime, clamp), ..Times::all(mtime) };
        }
        Times {
            atime: metadata.atime.map_or(mtime, clamp),
            mtime,
            ctime: metadata.ctime.map_or(mtime, clamp),
            crtime: inode.and_then(|details| details.crtime).map(clamp),
        }
    }

    /// Waits for the copying threads and sets the times of directories. Returns the totals, the checksum of all
    /// contents, and the losses.
    pub(super) fn finish(mut self) -> Result<(CreatedTotals, u64, LeftOut), BuildError> {
        self.made.shared = self.known.take().map_or(Ok(0), KnownContents::finish)?;
        let copied = self.copier.finish()?;
        make_holes(self.fs, copied.zeros)?;
        for (ino, change) in &self.directories {
            self.fs.set_attributes(*ino, change)?;
            if change.crtime.is_some() {
                self.details.check_times(*ino, change)?;
            }
        }
        let left_out = self.details.finish()?;
        Ok((self.made, self.contents.wrapping_add(copied.sum), left_out))
    }
}

/// Frees the space of zeros.
fn make_holes(fs: &dyn FileSystem, zeros: Vec<sparse::Zeros>) -> vfs::Result<()> {
    let zeros = sparse::joined(zeros);
    zeros
        .iter()
        .try_for_each(|run| fs.allocate(run.ino, run.offset, run.len, AllocateMode::PunchHole))
}

/// Fills a buffer from a streamed file.
fn read_all(source: &mut dyn Source, buffer: &mut [u8]) -> Result<(), BuildError> {
    let mut filled = 0;
    while filled < buffer.len() {
        let n = source.read(&mut buffer[filled..])?;
        if n == 0 {
            return Err(BuildError::ShortContent);
        }
        filled += n;
    }
    Ok(())
}

/// Archives with appended entries may contain a name twice.
fn once<T>(made: vfs::Result<T>) -> Result<T, BuildError> {
    match made {
        Err(vfs::Error::Exists) => Err(BuildError::Repeated),
        other => Ok(other?),
    }
}

/// Times of an inode.
#[derive(Clone, Copy, Debug)]
struct Times {
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    /// Creation time, if known. The default is the modification time.
    crtime: Option<Timestamp>,
}

impl Times {
    fn all(time: Timestamp) -> Self {
        Self { atime: time, mtime: time, ctime: time, crtime: None }
    }

    /// Returns whether all times are equal, as in a new inode.
    fn are_one(self) -> bool {
        let crtime = self.crtime.unwrap_or(self.mtime);
        [self.atime, self.ctime, crtime].iter().all(|time| *time == self.mtime)
    }

    fn change(self) -> SetAttributes {
        SetAttributes {
            atime: Some(self.atime),
            mtime: Some(self.mtime),
            ctime: Some(self.ctime),
            crtime: self.crtime,
            ..Default::default()
        }
    }
}
