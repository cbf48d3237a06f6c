//! Extraction to a directory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use disk::FileAt;
use vfs::path::{LastLink, Order, Visit};
use vfs::{Attributes, FileType, Ino, Paths};

use super::host::{self, CreatedFile, HostTree};
use super::names::HostNames;
use super::{ExtractOptions, ExtractReport, Extraction, Job, Observer};
use crate::host::path_to_show;
use crate::windows_names::Problem;
use crate::{Error, Result, scout};

/// Extracts to a directory, which is created if missing.
///
/// Restores types, permissions, times in nanoseconds, hard links, holes, extended attributes and, as root, owners.
/// Otherwise files belong to the user and lose the set-user-ID and set-group-ID bits, with one warning. No path in the
/// image can lead outside the directory.
///
/// On Windows, unsupported names (unless mapped with [`ExtractOptions::map_names`]), file types and attributes are
/// omitted.
///
/// # Errors
/// If the image cannot be read or the destination cannot be written. The error names the file.
pub fn extract_to_directory(
    paths: Paths<'_>,
    destination: &Path,
    options: &ExtractOptions,
    observer: &mut dyn Observer,
) -> Result<ExtractReport> {
    let mut extraction = Extraction::new(paths, options)?;
    let job = Job { paths, observer, extraction: &mut extraction };
    let tree = HostTree::open(destination, options.force)
        .map_err(|e| Error::host("extract to", destination, e))?;
    let top = job.extraction.top_ino;
    let mut extractor = Extractor {
        job,
        tree,
        destination: destination.to_owned(),
        names: HostNames::new(options.map_names),
        directories: Vec::new(),
        links: HashMap::new(),
        user: host::user(),
        umask: if options.plain { host::umask() } else { 0 },
        has_told_owners: false,
        buffer: Vec::new(),
    };
    scout::ahead_of_contents(paths.file_system(), top, |scouts| {
        let mut walk = paths.walk(top, Order::Sorted);
        while let Some(visit) = walk.advance() {
            scouts.pass();
            match visit {
                Ok(visit) => {
                    let is_taken = extractor.add(&visit, walk.path(), walk.name())?;
                    if !is_taken {
                        walk.skip_children();
                    }
                }
                Err(error) => extractor.job.unreadable(walk.path(), error)?,
            }
        }
        Ok::<_, Error>(())
    })?;
    extractor.leave_to(0)?;
    Ok(extraction.report)
}

struct Extractor<'a> {
    job: Job<'a>,
    tree: HostTree,
    destination: PathBuf,
    names: HostNames,
    /// Attributes to set on leaving the current directory and its ancestors, outermost first.
    directories: Vec<Attributes>,
    /// Host path of the first name of each file with several names.
    links: HashMap<Ino, Vec<u8>>,
    /// User and group of new files, if the host has them.
    user: Option<(u32, u32)>,
    /// Permission bits to clear in new files with default permissions.
    umask: u16,
    has_told_owners: bool,
    buffer: Vec<u8>,
}

impl Extractor<'_> {
    /// Creates the visited file. Returns false if it is omitted together with its children.
    fn add(&mut self, visit: &Visit, path: &[u8], name: &[u8]) -> Result<bool> {
        self.leave_to(visit.depth)?;
        let attributes = visit.attributes;
        let is_directory = attributes.file_type == FileType::Directory;
        // A file that is extracted alone has no name below the top.
        let alone = self.job.extraction.top_name.clone();
        let (path, name) = if visit.depth > 0 { (path, name) } else { (&alone[..], &alone[..]) };
        self.job.begin_file(path)?;
        let name = match self.names.name(name) {
            // This name was chosen by the user.
            _ if visit.depth == 0
                && (is_directory || self.job.extraction.options.name.is_some()) =>
            {
                name.into()
            }
            Ok(name) => name,
            Err(problem) => {
                self.refuse(path, problem, is_directory);
                return Ok(false);
            }
        };
        self.job.extraction.report.files += 1;
        if !is_directory {
            return self.file(path, &name, attributes).map(|()| true);
        }
        if visit.depth > 0 {
            self.tree.enter(&name).map_err(|e| self.at("make", path, e))?;
        }
        self.names.enter(self.job.fs(), attributes.ino);
        self.directories.push(attributes);
        Ok(true)
    }

    /// Omits a file whose name the host does not support.
    fn refuse(&mut self, path: &[u8], problem: Problem, is_directory: bool) {
        let all = if is_directory { ", and its contents are left out" } else { "" };
        let what = format!(
            "Windows does not support this name, because {problem}{all}; use --map-names to rename \
             it"
        );
        self.job.left_out(path, &what);
    }

    /// Creates any file except a directory.
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
            let path_here = crate::list::join(self.tree.path(), name);
            self.links.insert(attributes.ino, path_here);
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
        self.job.copy_runs(path, ino, runs, &mut buffer, &mut |offset, bytes| {
            file.write_all_at(bytes, offset).map_err(write_error)
        })?;
        self.buffer = buffer;
        file.set_len(size).map_err(write_error)?;
        self.finish(path, CreatedFile::file(&file), attributes)?;
        Ok(true)
    }

    fn symlink(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<bool> {
        let Some(target) = self.job.target(path, attributes.ino)? else { return Ok(false) };
        let here = match self.names.target(&target) {
            Ok(here) => here,
            Err(problem) => {
                let what = format!(
                    "Windows does not support a name in the target of this link: {problem}; use \
                     --map-names to rename it"
                );
                self.job.left_out(path, &what);
                return Ok(false);
            }
        };
        let is_directory = host::LINKS_HAVE_TYPES && self.leads_to_directory(path);
        match self.tree.symlink(name, &here, is_directory) {
            Ok(()) => {}
            Err(e) if host::is_refusal_of_links(&e) => {
                self.job.left_out(path, &format!("cannot create this link here: {e}"));
                return Ok(false);
            }
            Err(e) => return Err(self.at("make", path, e)),
        }
        self.finish_named(path, name, attributes)?;
        Ok(true)
    }

    /// Returns whether a link leads to a directory of the image.
    fn leads_to_directory(&self, path: &[u8]) -> bool {
        let image_path = self.job.image_path(path);
        let found = self.job.paths.resolve(&image_path, LastLink::Follow);
        let found = found.and_then(|ino| self.job.fs().attributes(ino));
        found.is_ok_and(|found| found.file_type == FileType::Directory)
    }

    fn special(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<bool> {
        let word = match attributes.file_type {
            FileType::CharDevice | FileType::BlockDevice => "device",
            FileType::Socket => "socket",
            _ => "fifo",
        };
        match self.tree.special(name, attributes.file_type, attributes.device) {
            Ok(()) => {}
            Err(e) if host::is_refusal(&e) => {
                self.job.left_out(path, &format!("cannot create this {word} here: {e}"));
                return Ok(false);
            }
            Err(e) => return Err(self.at("make", path, e)),
        }
        self.finish_named(path, name, attributes)?;
        Ok(true)
    }

    /// Finishes all directories deeper than `depth`.
    fn leave_to(&mut self, depth: usize) -> Result<()> {
        while self.directories.len() > depth {
            let Some(attributes) = self.directories.pop() else { break };
            let path = self.tree.path().to_vec();
            self.tree.hold_parent().map_err(|e| self.at("leave", &path, e))?;
            let handle = self.tree.handle().map_err(|e| self.at("finish", &path, e))?;
            self.finish(&path, CreatedFile::directory(&handle), &attributes)?;
            if !self.directories.is_empty() {
                self.tree.leave().map_err(|e| self.at("leave", &path, e))?;
            }
        }
        self.names.leave_to(depth);
        Ok(())
    }

    fn finish_named(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<()> {
        let dir = self.tree.handle().map_err(|e| self.at("finish", path, e))?;
        self.finish(path, CreatedFile::named(&dir, name), attributes)
    }

    /// Sets the attributes of a file in the required order: a change of owner clears capabilities and the set-user-ID
    /// bit, and a read-only file accepts no attributes.
    fn finish(
        &mut self,
        path: &[u8],
        made: CreatedFile<'_>,
        attributes: &Attributes,
    ) -> Result<()> {
        if self.job.extraction.options.plain {
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
                if !host::is_refusal(&e) && !host::is_too_large(&e) {
                    return Err(self.at("set an attribute of", path, e));
                }
                let name = crate::text::escaped(&name).to_string();
                self.job.left_out(path, &format!("cannot set attribute {name} here: {e}"));
            }
        }
        if attributes.file_type != FileType::Symlink {
            let kept = if keeps_owner { 0o7777 } else { 0o1777 };
            let set = made.set_permissions(attributes.permissions & kept);
            set.map_err(|e| self.at("set the permissions of", path, e))?;
        }
        match made.set_times(attributes.atime, attributes.mtime) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                self.job.left_out(path, &format!("cannot set its times here: {e}"));
                Ok(())
            }
            set => set.map_err(|e| self.at("set the times of", path, e)),
        }
    }

    /// Sets the owner if possible. Returns whether the file has the correct owner.
    fn set_owner(
        &mut self,
        path: &[u8],
        made: CreatedFile<'_>,
        attributes: &Attributes,
    ) -> Result<bool> {
        let (uid, gid) = (attributes.uid, attributes.gid);
        if self.user.is_some_and(|(user, _)| user == 0) {
            if uid == u32::MAX || gid == u32::MAX {
                self.job.left_out(path, "cannot set the owner 4294967295");
                return Ok(false);
            }
            made.set_owner(uid, gid).map_err(|e| self.at("set the owner of", path, e))?;
            return Ok(true);
        }
        let keeps_owner = self.user == Some((uid, gid));
        if !keeps_owner && !self.has_told_owners {
            self.has_told_owners = true;
            self.job.observer.warning(host::OWNERS_ARE_LOST);
        }
        Ok(keeps_owner)
    }

    fn at(&self, operation: &'static str, path: &[u8], error: io::Error) -> Error {
        Error::host(operation, below(&self.destination, path), error)
    }
}

/// Returns the host path of a file, for messages.
fn below(destination: &Path, path: &[u8]) -> PathBuf {
    destination.join(path_to_show(path))
}
