//! Requests that copy contents out of the image and into it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ext4::Ext4;
use ext4::format::address::FileBlock;
use ext4::format::inode::Inode;
use vfs::{Attributes, Error, FileSystem, FileType, Ino};

use super::phrases::words;
use super::request::{Request, host_path, shown};
use super::session::DebugSession;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say;

/// Copy buffer size in bytes.
const PIECE: usize = 1 << 20;

/// Reason why a copy ended early.
enum Stopped {
    Image(Error),
    Host(io::Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl Stopped {
    fn words(&self) -> String {
        match self {
            Self::Image(error) => words(error),
            Self::Host(error) => error.to_string(),
        }
    }
}

/// Copies the contents of an inode of any type, whether or not it is in use.
fn copy(fs: &Ext4, ino: Ino, out: &mut dyn Write) -> Result<(), Stopped> {
    let inode = Inode::from_slot(&fs.inode_slot(ino)?);
    match inode.file_type() {
        None => Err(Error::NotFound.into()),
        Some(FileType::Regular) if inode.links_count() > 0 => copy_file(fs, ino, inode.size(), out),
        Some(FileType::Symlink) if inode.links_count() > 0 => {
            Ok(out.write_all(&fs.readlink(ino)?)?)
        }
        Some(FileType::Regular | FileType::Directory | FileType::Symlink) => {
            copy_blocks(fs, ino, inode.size(), out)
        }
        _ => Ok(()),
    }
}

fn copy_file(fs: &Ext4, ino: Ino, size: u64, out: &mut dyn Write) -> Result<(), Stopped> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE)).max(1)];
    let mut at = 0;
    while at < size {
        let len = fs.read(ino, at, &mut buffer)?;
        if len == 0 {
            break;
        }
        out.write_all(&buffer[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Copies the mapped blocks. Holes are copied as zeros.
fn copy_blocks(fs: &Ext4, ino: Ino, size: u64, out: &mut dyn Write) -> Result<(), Stopped> {
    let geometry = fs.geometry();
    let block_size = u64::from(geometry.block_size());
    let mut block = vec![0; block_size as usize];
    let mut at = 0;
    while at < size {
        let file = u32::try_from(at / block_size).map_err(|_| Error::FileTooLarge)?;
        let run = fs.block_run(ino, FileBlock(file))?;
        for step in 0..run.len {
            if at >= size {
                break;
            }
            match run.start.filter(|_| !run.unwritten) {
                Some(start) => {
                    let place = geometry.byte_of(start.plus(step));
                    fs.device().read_at(place, &mut block).map_err(Error::Device)?;
                }
                None => block.fill(0),
            }
            let len = block_size.min(size - at);
            out.write_all(&block[..len as usize])?;
            at += block_size;
        }
    }
    Ok(())
}

/// `cat FILE`.
pub(super) fn cat(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let copied = copy(session.fs()?, ino, &mut io::stdout().lock());
    copied.map_err(|e| request.failed(e.words()))
}

/// `dump [-p] FILE HOSTFILE`. `-p` preserves owner, permissions and times.
pub(super) fn dump(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("p", "")?;
    let &[path, to] = &*rest else { return Err(request.wrong_words()) };
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let (to, shown_to) = (host_path(to), shown(to));
    let failed = |e: Stopped| request.failed(format_args!("{shown_to}: {}", e.words()));
    let mut file = File::create(&to).map_err(|e| failed(e.into()))?;
    copy(fs, ino, &mut file).map_err(failed)?;
    if !options.is_empty() {
        let attributes = fs.attributes(ino).map_err(|e| failed(e.into()))?;
        keep(&to, &attributes).map_err(|e| failed(e.into()))?;
    }
    Ok(())
}

/// `rdump FILE… HOSTDIR`.
pub(super) fn dump_trees(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let Some((to, trees)) = request.words.split_last().filter(|(_, trees)| !trees.is_empty())
    else {
        return Err(request.wrong_words());
    };
    let to = host_path(to);
    for tree in trees {
        let ino = session.ino(tree)?;
        let name = tree.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty() && *name != b".");
        let to = name.map_or_else(|| to.clone(), |name| to.join(host_path(name)));
        fs::create_dir_all(to.parent().unwrap_or(&to))
            .map_err(|e| request.failed(format_args!("{}: {e}", to.display())))?;
        dump_tree(session.fs()?, ino, &to).map_err(|(at, e)| {
            STATUSES.failed(format_args!("{}: {at}: {}", request.name, e.words()))
        })?;
    }
    Ok(())
}

/// Copies a tree. Names are copied as bytes. Errors contain the host path.
fn dump_tree(fs: &Ext4, top: Ino, to: &Path) -> Result<(), (String, Stopped)> {
    let mut waiting = vec![(top, to.to_owned())];
    // A directory in a cycle of a damaged image is copied once.
    let mut seen = std::collections::HashSet::new();
    // Set the times of directories last, because creating files changes them.
    let mut directories = Vec::new();
    while let Some((ino, to)) = waiting.pop() {
        let at = |e: Stopped| (to.display().to_string(), e);
        let attributes = fs.attributes(ino).map_err(|e| at(e.into()))?;
        match attributes.file_type {
            FileType::Directory if seen.insert(ino) => {
                make_directory(&to).map_err(|e| at(e.into()))?;
                let entries = vfs::Paths::new(fs).read_dir_inode(ino).map_err(|e| at(e.into()))?;
                let sound = entries.iter().filter(|entry| is_sound(&entry.name));
                waiting.extend(sound.map(|entry| (entry.ino, to.join(host_path(&entry.name)))));
                directories.push((to, attributes));
            }
            FileType::Symlink => {
                let target = fs.readlink(ino).map_err(|e| at(e.into()))?;
                make_symlink(&host_path(&target), &to).map_err(|e| at(e.into()))?;
            }
            FileType::Regular => {
                let written = open_new(&to)
                    .map_err(Stopped::from)
                    .and_then(|mut file| copy_file(fs, ino, attributes.size, &mut file));
                written.map_err(at)?;
                keep(&to, &attributes).map_err(|e| at(e.into()))?;
            }
            _ => {}
        }
    }
    let kept = |(to, attributes): &(PathBuf, Attributes)| {
        keep(to, attributes).map_err(|e| (to.display().to_string(), e.into()))
    };
    directories.iter().rev().try_for_each(kept)
}

/// Returns whether a name is a single path component on the host.
fn is_sound(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Creates a directory or accepts an existing one. Symbolic links are not followed.
fn make_directory(to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(found) if found.is_dir() => Ok(()),
        _ => fs::create_dir(to),
    }
}

/// Creates or truncates a file. Symbolic links are not followed.
fn open_new(to: &Path) -> io::Result<File> {
    match fs::symlink_metadata(to) {
        Ok(found) if !found.is_file() => Err(io::ErrorKind::AlreadyExists.into()),
        _ => File::create(to),
    }
}

#[cfg(unix)]
fn make_symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn make_symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets permissions, times and, if permitted, the owner of a host file from an inode.
#[cfg(unix)]
fn keep(file: &Path, attributes: &Attributes) -> io::Result<()> {
    use std::os::unix::fs::{PermissionsExt, chown};
    // Only root may change the owner.
    let _ = chown(file, Some(attributes.uid), Some(attributes.gid));
    fs::set_permissions(file, fs::Permissions::from_mode(attributes.permissions.into()))?;
    let times = (attributes.atime.to_system_time(), attributes.mtime.to_system_time());
    if let (Some(accessed), Some(modified)) = times {
        let times = fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
        // Files without read permission cannot be opened, and keep the times of the copy.
        let _ = File::open(file).and_then(|file| file.set_times(times));
    }
    Ok(())
}

#[cfg(not(unix))]
fn keep(_: &Path, _: &Attributes) -> io::Result<()> {
    Ok(())
}

/// `write HOSTFILE FILE`: creates a file owned by root with the permissions of the host file. Blocks of zeros become
/// holes. If the contents do not fit, the file is removed.
pub(super) fn write(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [from, to] = request.exactly()?;
    let at = |e: io::Error| request.failed(format_args!("{}: {e}", shown(from)));
    let mut source = File::open(host_path(from)).map_err(at)?;
    let permissions = permissions(&source.metadata().map_err(at)?);
    let (dir, name) = session.parent(to)?;
    let new = session.new_inode(permissions);
    let fs = session.fs()?;
    let ino = fs.create(dir, name, &new).map_err(|e| request.failed(words(&e)))?;
    if let Err(stopped) = fill(fs, ino, &mut source) {
        let _ = fs.unlink(dir, name, None);
        return Err(request.failed(stopped.words()));
    }
    say(format_args!("Allocated inode: {ino}"));
    Ok(())
}

fn fill(fs: &Ext4, ino: Ino, source: &mut File) -> Result<(), Stopped> {
    let block_size = fs.geometry().block_size() as usize;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let len = read_full(source, &mut piece)?;
        let mut blocks = piece[..len].chunks(block_size).peekable();
        let mut offset = 0;
        while let Some(block) = blocks.next() {
            let mut run = block.len();
            if block.iter().any(|&byte| byte != 0) {
                while let Some(next) = blocks.next_if(|next| next.iter().any(|&byte| byte != 0)) {
                    run += next.len();
                }
                fs.write(ino, at + offset as u64, &piece[offset..offset + run], None)?;
            }
            offset += run;
        }
        at += len as u64;
        if len < PIECE {
            break;
        }
    }
    if fs.attributes(ino)?.size < at {
        fs.truncate(ino, at, None)?;
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn read_full(source: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match source.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(len)
}

#[cfg(unix)]
fn permissions(metadata: &fs::Metadata) -> u16 {
    use std::os::unix::fs::PermissionsExt;
    (metadata.permissions().mode() & 0o7777) as u16
}

#[cfg(not(unix))]
fn permissions(_: &fs::Metadata) -> u16 {
    0o644
}
