//! Calls on a host directory and on an image, with comparable results.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use diskwright::fs::{File, FileTimes, Image, OpenOptions};

/// Options for opening a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) mode: u32,
}

/// Call on a file system.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Write(String, Vec<u8>),
    Read(String),
    Metadata(String),
    SymlinkMetadata(String),
    Exists(String),
    CreateDir(String),
    CreateDirAll(String),
    RemoveFile(String),
    RemoveDir(String),
    RemoveDirAll(String),
    Rename(String, String),
    HardLink(String, String),
    Symlink(String, String),
    ReadLink(String),
    SetPermissions(String, u32),
    SetModified(String, u64),
    ReadDir(String),
    Canonicalize(String),
    Copy(String, String),
    /// Opens a file into a slot.
    Open(usize, String, Opening),
    OnFile(usize, FileCall),
    Drop(usize),
}

/// Call on an open file.
#[derive(Clone, Debug)]
pub(crate) enum FileCall {
    Read(usize),
    Write(Vec<u8>),
    Seek(SeekFrom),
    ReadAt(usize, u64),
    WriteAt(Vec<u8>, u64),
    SetLen(u64),
    SyncAll,
    SyncData,
    Len,
}

/// Common interface of open files.
pub(crate) trait OpenFile: Read + Write + Seek + FileExt {
    fn set_len(&self, size: u64) -> io::Result<()>;
    fn sync(&self, data_only: bool) -> io::Result<()>;
    /// Returns the size and number of names of a regular file.
    fn size(&self) -> io::Result<Option<(u64, u64)>>;
}

impl OpenFile for fs::File {
    fn set_len(&self, size: u64) -> io::Result<()> {
        Self::set_len(self, size)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only { self.sync_data() } else { self.sync_all() }
    }

    fn size(&self) -> io::Result<Option<(u64, u64)>> {
        let metadata = self.metadata()?;
        Ok(metadata.is_file().then(|| (metadata.len(), metadata.nlink())))
    }
}

impl OpenFile for File {
    fn set_len(&self, size: u64) -> io::Result<()> {
        Ok(Self::set_len(self, size)?)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        Ok(if data_only { self.sync_data() } else { self.sync_all() }?)
    }

    fn size(&self) -> io::Result<Option<(u64, u64)>> {
        let metadata = self.metadata()?;
        Ok(metadata.is_file().then(|| (metadata.len(), metadata.nlink())))
    }
}

fn on_file<F: OpenFile>(file: &mut F, call: &FileCall) -> io::Result<String> {
    let read = |count: usize, bytes: &[u8]| format!("{:?}", &bytes[..count]);
    Ok(match call {
        FileCall::Len => format!("{:?}", file.size()?),
        FileCall::SyncAll => format!("{:?}", file.sync(false)?),
        FileCall::SyncData => format!("{:?}", file.sync(true)?),
        FileCall::SetLen(size) => format!("{:?}", OpenFile::set_len(file, *size)?),
        FileCall::Read(len) => {
            let mut bytes = vec![0; *len];
            read(file.read(&mut bytes)?, &bytes)
        }
        FileCall::ReadAt(len, offset) => {
            let mut bytes = vec![0; *len];
            read(FileExt::read_at(file, &mut bytes, *offset)?, &bytes)
        }
        FileCall::Write(bytes) => {
            let count = file.write(bytes)?;
            format!("{count}, then at {}", file.stream_position()?)
        }
        FileCall::WriteAt(bytes, offset) => {
            let count = FileExt::write_at(file, bytes, *offset)?;
            format!("{count}, still at {}", file.stream_position()?)
        }
        // Directory sizes depend on the format.
        FileCall::Seek(SeekFrom::End(_)) if file.size()?.is_none() => String::new(),
        FileCall::Seek(to) => file.seek(*to)?.to_string(),
    })
}

/// Host directory.
pub(crate) struct Host {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<Option<fs::File>>,
}

/// Image.
pub(crate) struct Guest {
    pub(crate) image: Image,
    pub(crate) files: Vec<Option<File>>,
}

fn metadata_text(is_dir: bool, mode: u32, len: u64, links: u64) -> String {
    // Directory sizes and link counts depend on the format.
    let (len, links) = if is_dir { (0, 0) } else { (len, links) };
    format!("{mode:o}, {len} bytes, {links} names")
}

impl Host {
    fn at(&self, path: &str) -> PathBuf {
        match path {
            "" => PathBuf::new(),
            // `join` would change the meaning of leading and trailing slashes.
            _ => PathBuf::from(format!("{}/{path}", self.root.display())),
        }
    }

    /// Runs a call and returns its result as text.
    pub(crate) fn run(&mut self, call: &Call) -> io::Result<String> {
        let about = |m: fs::Metadata| metadata_text(m.is_dir(), m.mode(), m.len(), m.nlink());
        let done = |()| String::new();
        Ok(match call {
            Call::Write(path, bytes) => fs::write(self.at(path), bytes).map(done)?,
            Call::Read(path) => format!("{:?}", fs::read(self.at(path))?),
            Call::Metadata(path) => about(fs::metadata(self.at(path))?),
            Call::SymlinkMetadata(path) => about(fs::symlink_metadata(self.at(path))?),
            Call::Exists(path) => fs::exists(self.at(path))?.to_string(),
            Call::CreateDir(path) => fs::create_dir(self.at(path)).map(done)?,
            Call::CreateDirAll(path) => fs::create_dir_all(self.at(path)).map(done)?,
            Call::RemoveFile(path) => fs::remove_file(self.at(path)).map(done)?,
            Call::RemoveDir(path) => fs::remove_dir(self.at(path)).map(done)?,
            Call::RemoveDirAll(path) => fs::remove_dir_all(self.at(path)).map(done)?,
            Call::Rename(from, to) => fs::rename(self.at(from), self.at(to)).map(done)?,
            Call::HardLink(from, to) => fs::hard_link(self.at(from), self.at(to)).map(done)?,
            Call::Symlink(target, link) => {
                std::os::unix::fs::symlink(target, self.at(link)).map(done)?
            }
            Call::ReadLink(path) => fs::read_link(self.at(path))?.display().to_string(),
            Call::SetPermissions(path, mode) => {
                fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode)).map(done)?
            }
            Call::SetModified(path, seconds) => {
                let path = self.at(path);
                let time = UNIX_EPOCH + Duration::from_secs(*seconds);
                fs::File::open(&path)?.set_modified(time)?;
                fs::metadata(&path)?.mtime().to_string()
            }
            Call::ReadDir(path) => {
                let mut found = Vec::new();
                for entry in fs::read_dir(self.at(path))? {
                    let (entry, root) = (entry?, self.root.display());
                    let path = entry.path().display().to_string();
                    let path = path.strip_prefix(&format!("{root}/")).unwrap().to_owned();
                    let what = about(entry.metadata()?);
                    found.push(format!("{path:?} {} {what}", entry.file_type()?.is_dir()));
                }
                found.sort();
                found.join("; ")
            }
            Call::Canonicalize(path) => {
                let found = fs::canonicalize(self.at(path))?;
                let below = found.strip_prefix(self.root.canonicalize()?).unwrap();
                Path::new("/").join(below).display().to_string()
            }
            Call::Copy(from, to) => fs::copy(self.at(from), self.at(to))?.to_string(),
            Call::Open(slot, path, how) => {
                let mut options = fs::OpenOptions::new();
                options.read(how.read).write(how.write).append(how.append).mode(how.mode);
                options.truncate(how.truncate).create(how.create).create_new(how.create_new);
                self.files[*slot] = Some(options.open(self.at(path))?);
                String::new()
            }
            Call::OnFile(slot, call) => match &mut self.files[*slot] {
                Some(file) => on_file(file, call)?,
                None => String::new(),
            },
            Call::Drop(slot) => {
                self.files[*slot] = None;
                String::new()
            }
        })
    }
}

impl Guest {
    /// Runs a call and returns its result as text.
    pub(crate) fn run(&mut self, call: &Call) -> io::Result<String> {
        let image = &self.image;
        let about =
            |m: diskwright::fs::Metadata| metadata_text(m.is_dir(), m.mode(), m.len(), m.nlink());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let done = |()| String::new();
        Ok(match call {
            Call::Write(path, bytes) => image.write(path, bytes).map(done)?,
            Call::Read(path) => format!("{:?}", image.read(path)?),
            Call::Metadata(path) => about(image.metadata(path)?),
            Call::SymlinkMetadata(path) => about(image.symlink_metadata(path)?),
            Call::Exists(path) => image.exists(path)?.to_string(),
            Call::CreateDir(path) => image.create_dir(path).map(done)?,
            Call::CreateDirAll(path) => image.create_dir_all(path).map(done)?,
            Call::RemoveFile(path) => image.remove_file(path).map(done)?,
            Call::RemoveDir(path) => image.remove_dir(path).map(done)?,
            Call::RemoveDirAll(path) => image.remove_dir_all(path).map(done)?,
            Call::Rename(from, to) => image.rename(from, to).map(done)?,
            Call::HardLink(from, to) => image.hard_link(from, to).map(done)?,
            Call::Symlink(target, link) => image.symlink(target, link).map(done)?,
            Call::ReadLink(path) => text(image.read_link(path)?),
            Call::SetPermissions(path, mode) => image.set_permissions(path, *mode).map(done)?,
            Call::SetModified(path, seconds) => {
                let time = UNIX_EPOCH + Duration::from_secs(*seconds);
                File::open(image, path)?.set_times(FileTimes::new().set_modified(time))?;
                image.metadata(path)?.mtime().sec.to_string()
            }
            Call::ReadDir(path) => {
                let mut found = Vec::new();
                for entry in image.read_dir(path)? {
                    let entry = entry?;
                    let path = text(entry.path());
                    let what = about(entry.metadata()?);
                    found.push(format!("{path:?} {} {what}", entry.file_type()?.is_dir()));
                }
                found.sort();
                found.join("; ")
            }
            Call::Canonicalize(path) => text(image.canonicalize(path)?),
            Call::Copy(from, to) => image.copy(from, to)?.to_string(),
            Call::Open(slot, path, how) => {
                let options = OpenOptions::new().read(how.read).write(how.write);
                let options = options.append(how.append).truncate(how.truncate).mode(how.mode);
                let options = options.create(how.create).create_new(how.create_new);
                self.files[*slot] = Some(options.open(image, path)?);
                String::new()
            }
            Call::OnFile(slot, call) => match &mut self.files[*slot] {
                Some(file) => on_file(file, call)?,
                None => String::new(),
            },
            Call::Drop(slot) => {
                self.files[*slot] = None;
                String::new()
            }
        })
    }
}
