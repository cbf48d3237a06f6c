//! Extraction to a directory.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType as HostType;
use rustix::io::Errno;
use vfs::path::{Order, Visit};
use vfs::{Attributes, FileType, Ino, Paths};

use super::host::{HostTree, Made};
use super::{ExtractOptions, ExtractReport, Job, Observer};
use crate::{Error, Result};

/// Extracts to a directory, which is made if it is not there.
///
/// Everything is restored exactly: types, permissions, times to the nanosecond, hard links, holes,
/// extended attributes and, for root, owners. Without root, owners stay the user's and the
/// set-user-id and set-group-id bits are dropped, which is said once. No path leads out of the
/// directory, whatever the image holds.
///
/// # Errors
/// If the image cannot be read, or the destination not written; each error names the file.
pub fn extract_to_directory(
    paths: Paths<'_>,
    destination: &Path,
    options: &ExtractOptions,
    observer: &mut dyn Observer,
) -> Result<ExtractReport> {
    let job = Job::new(paths, options, observer)?;
    let tree = HostTree::open(destination, options.force)
        .map_err(|e| Error::host("extract to", destination, e))?;
    let top = job.top_ino;
    let mut extractor = Extractor {
        job,
        tree,
        destination: destination.to_owned(),
        directories: Vec::new(),
        links: HashMap::new(),
        user: rustix::process::geteuid().as_raw(),
        umask: if options.plain { umask() } else { 0 },
        has_told_owners: false,
        buffer: Vec::new(),
    };
    let mut walk = paths.walk(top, Order::Sorted);
    while let Some(visit) = walk.advance() {
        match visit {
            Ok(visit) => extractor.add(&visit, walk.path(), walk.name())?,
            Err(error) => extractor.job.unreadable(walk.path(), error)?,
        }
    }
    extractor.leave_to(0)?;
    Ok(extractor.job.report)
}

struct Extractor<'a> {
    job: Job<'a>,
    tree: HostTree,
    destination: PathBuf,
    /// What the current directory and those above it get when they are left, the top's first.
    directories: Vec<Attributes>,
    /// First path of each file with several.
    links: HashMap<Ino, Vec<u8>>,
    user: u32,
    /// Permission bits that new files do not get, if they get nothing else of their own.
    umask: u16,
    has_told_owners: bool,
    buffer: Vec<u8>,
}

impl Extractor<'_> {
    fn add(&mut self, visit: &Visit, path: &[u8], name: &[u8]) -> Result<()> {
        self.leave_to(visit.depth)?;
        self.job.observer.file(path);
        self.job.report.files += 1;
        let attributes = visit.attributes;
        if attributes.file_type == FileType::Directory {
            if visit.depth > 0 {
                self.tree.enter(name).map_err(|e| self.at("make", path, e))?;
            }
            self.directories.push(attributes);
            return Ok(());
        }
        if visit.depth > 0 {
            return self.file(path, name, attributes);
        }
        // Only a file that is extracted alone has no name below the top.
        let name = self.job.top_name.clone();
        self.file(&name, &name, attributes)
    }

    /// Makes anything but a directory.
    fn file(&mut self, path: &[u8], name: &[u8], attributes: Attributes) -> Result<()> {
        if attributes.links > 1
            && let Some(first) = self.links.get(&attributes.ino)
        {
            let linked = self.tree.link(first, name);
            return linked.map_err(|e| self.at("link", path, e));
        }
        let is_made = match attributes.file_type {
            FileType::Regular => self.regular(path, name, &attributes)?,
            FileType::Symlink => self.symlink(path, name, &attributes)?,
            _ => self.special(path, name, &attributes)?,
        };
        if is_made && attributes.links > 1 {
            self.links.insert(attributes.ino, path.to_vec());
        }
        Ok(())
    }

    fn regular(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<bool> {
        let (ino, size) = (attributes.ino, attributes.size);
        let file = self.tree.file(name).map_err(|e| self.at("make", path, e))?;
        let destination = self.destination.clone();
        let write_error = |e| Error::host("write", below(&destination, path), e);
        let runs = self.job.data_runs(path, ino, size)?;
        let runs = self.job.share_runs(ino, runs, &file);
        let mut buffer = std::mem::take(&mut self.buffer);
        self.job.copy_runs(path, ino, &runs, &mut buffer, &mut |offset, bytes| {
            file.write_all_at(bytes, offset).map_err(write_error)
        })?;
        self.buffer = buffer;
        file.set_len(size).map_err(write_error)?;
        self.finish(path, Made::Open(file.as_fd()), attributes)?;
        Ok(true)
    }

    fn symlink(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<bool> {
        let Some(target) = self.job.target(path, attributes.ino)? else { return Ok(false) };
        self.tree.symlink(name, &target).map_err(|e| self.at("make", path, e))?;
        self.finish_named(path, name, attributes)?;
        Ok(true)
    }

    fn special(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<bool> {
        let (file_type, word) = match attributes.file_type {
            FileType::CharDevice => (HostType::CharacterDevice, "device"),
            FileType::BlockDevice => (HostType::BlockDevice, "device"),
            FileType::Socket => (HostType::Socket, "socket"),
            _ => (HostType::Fifo, "fifo"),
        };
        match self.tree.special(name, file_type, attributes.device) {
            Ok(()) => {}
            Err(e) if is_refusal(&e) => {
                self.job.left_out(path, &format!("this {word} cannot be made here: {e}"));
                return Ok(false);
            }
            Err(e) => return Err(self.at("make", path, e)),
        }
        self.finish_named(path, name, attributes)?;
        Ok(true)
    }

    /// Finishes the directories that are deeper than those above `depth`.
    fn leave_to(&mut self, depth: usize) -> Result<()> {
        while self.directories.len() > depth {
            let Some(attributes) = self.directories.pop() else { break };
            let path = self.tree.path().to_vec();
            self.tree.hold_parent().map_err(|e| self.at("leave", &path, e))?;
            let fd = self.tree.current().try_clone_to_owned();
            let fd = fd.map_err(|e| self.at("finish", &path, e))?;
            self.finish(&path, Made::Open(fd.as_fd()), &attributes)?;
            if !self.directories.is_empty() {
                self.tree.leave().map_err(|e| self.at("leave", &path, e))?;
            }
        }
        Ok(())
    }

    fn finish_named(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<()> {
        let dir = self.tree.current().try_clone_to_owned();
        let dir = dir.map_err(|e| self.at("finish", path, e))?;
        self.finish(path, Made::Named(dir.as_fd(), name), attributes)
    }

    /// Gives a file its attributes, in the order in which none undoes another: a new owner clears
    /// capabilities and the set-user-id bit, and a read-only file takes no attributes.
    fn finish(&mut self, path: &[u8], made: Made<'_>, attributes: &Attributes) -> Result<()> {
        if self.job.options.plain {
            if attributes.file_type == FileType::Symlink {
                return Ok(());
            }
            let kept = 0o777 & !self.umask;
            let set = made.set_permissions(attributes.permissions & kept);
            return set.map_err(|e| self.at("set the permissions of", path, e));
        }
        let keeps_owner = self.set_owner(path, made, attributes)?;
        for (name, value) in self.job.xattrs(path, attributes.ino)? {
            if let Err(e) = made.set_xattr(&name, &value) {
                if !is_refusal(&e) && !is_too_large(&e) {
                    return Err(self.at("set an attribute of", path, e));
                }
                let name = crate::text::escaped(&name).to_string();
                self.job.left_out(path, &format!("attribute {name} cannot be set here: {e}"));
            }
        }
        if attributes.file_type != FileType::Symlink {
            let kept = if keeps_owner { 0o7777 } else { 0o1777 };
            let set = made.set_permissions(attributes.permissions & kept);
            set.map_err(|e| self.at("set the permissions of", path, e))?;
        }
        let set = made.set_times(attributes.atime, attributes.mtime);
        set.map_err(|e| self.at("set the times of", path, e))
    }

    /// Sets the owner if that is possible; returns whether it is what it should be.
    fn set_owner(&mut self, path: &[u8], made: Made<'_>, attributes: &Attributes) -> Result<bool> {
        let (uid, gid) = (attributes.uid, attributes.gid);
        if self.user == 0 {
            if uid == u32::MAX || gid == u32::MAX {
                self.job.left_out(path, "an owner of 4294967295 cannot be set");
                return Ok(false);
            }
            made.set_owner(uid, gid).map_err(|e| self.at("set the owner of", path, e))?;
            return Ok(true);
        }
        let group = rustix::process::getegid().as_raw();
        let keeps_owner = uid == self.user && gid == group;
        if !keeps_owner && !self.has_told_owners {
            self.has_told_owners = true;
            self.job.observer.warning(
                "owners are not restored, as only root can do that; set-user-id and set-group-id \
                 bits are dropped",
            );
        }
        Ok(keeps_owner)
    }

    fn at(&self, operation: &'static str, path: &[u8], error: io::Error) -> Error {
        Error::host(operation, below(&self.destination, path), error)
    }
}

/// Where on the host a path of the tree is.
fn below(destination: &Path, path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    destination.join(std::ffi::OsStr::from_bytes(path))
}

/// Whether the host says that it does not allow or know something, rather than that it failed.
fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::PERM, Errno::ACCESS, Errno::NOTSUP, Errno::INVAL, Errno::NOSYS].contains(&errno)
    })
}

/// Whether a file system cannot hold so large an attribute. Linux's ext4 calls that no space; if
/// there really is none, the next file will say so.
fn is_too_large(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::TOOBIG, Errno::RANGE, Errno::NOSPC].contains(&errno))
}

/// The bits that the user's new files do not get: what Linux says of this process, or the usual.
fn umask() -> u16 {
    const USUAL: u16 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    said.and_then(|digits| u16::from_str_radix(digits.trim(), 8).ok()).unwrap_or(USUAL)
}
