//! Extraction to a tar archive.

use std::collections::HashMap;
use std::io::{self, Write};

use import::archive::{self, Member, Times, sparse_map};
use vfs::path::{Order, Visit, WalkSteps};
use vfs::{Attributes, FileType, Ino, Paths};

use super::contents::Copying;
use super::{ExtractOptions, ExtractReport, Extraction, Job, Observer};
use crate::{Error, Result, scout};

/// Extracts to a tar archive in PAX format, as read by GNU tar. It contains times in nanoseconds, extended attributes
/// (`SCHILY.xattr`), ACLs (`SCHILY.acl`), hard links, devices, holes (GNU sparse format 1.0) and names of arbitrary
/// bytes. The same image gives the same archive. Sockets are omitted, because archives do not support them.
///
/// # Errors
/// If the image cannot be read (the error names the file), or the output cannot be written.
pub fn extract_to_tar(
    paths: Paths<'_>,
    out: &mut dyn Write,
    options: &ExtractOptions,
    observer: &mut dyn Observer,
) -> Result<ExtractReport> {
    let mut tar = TarStream::new(paths, options)?;
    scout::ahead_of_contents(paths.file_system(), tar.extraction.top_ino, |scouts| {
        while tar.step(paths, out, observer)? {
            if tar.copying.is_none() {
                scouts.pass();
            }
        }
        Ok::<_, Error>(())
    })?;
    out.flush().map_err(Error::Output)?;
    Ok(tar.report())
}

/// Archive of [`extract_to_tar`] that is written in steps. Between them, the image may be used otherwise.
pub struct TarStream {
    extraction: Extraction,
    walk: WalkSteps,
    /// First path of each file with several names.
    links: HashMap<Ino, Vec<u8>>,
    /// File whose data is being copied, with the size of its member.
    copying: Option<(Copying, u64)>,
    has_ended: bool,
    buffer: Vec<u8>,
}

impl TarStream {
    /// Starts an archive.
    ///
    /// # Errors
    /// If the file or directory does not exist.
    pub fn new(paths: Paths<'_>, options: &ExtractOptions) -> Result<Self> {
        let extraction = Extraction::new(paths, options)?;
        let walk = WalkSteps::new(extraction.top_ino, Order::Sorted);
        let (links, buffer) = (HashMap::new(), Vec::new());
        Ok(Self { extraction, walk, links, copying: None, has_ended: false, buffer })
    }

    /// Writes the next part: the header of a file, at most 1 MiB of its contents, or the end of the archive. Returns
    /// false if the archive is complete.
    ///
    /// # Errors
    /// Same as [`extract_to_tar`].
    pub fn step(
        &mut self,
        paths: Paths<'_>,
        out: &mut dyn Write,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        let Self { extraction, walk, links, copying, has_ended, buffer } = self;
        let job = Job { paths, observer, extraction };
        let mut archiver = Archiver { job, out, links, copying, buffer };
        if archiver.copying.is_some() {
            archiver.copy()?;
        } else if let Some(visit) = walk.advance(paths.file_system()) {
            match visit {
                Ok(visit) => archiver.add(&visit, walk.path())?,
                Err(error) => archiver.job.unreadable(walk.path(), error)?,
            }
        } else {
            archive::end(archiver.out).map_err(Error::Output)?;
            *has_ended = true;
        }
        Ok(!*has_ended)
    }

    /// Returns the result so far.
    pub fn report(&self) -> ExtractReport {
        self.extraction.report.clone()
    }
}

struct Archiver<'a> {
    job: Job<'a>,
    out: &'a mut dyn Write,
    links: &'a mut HashMap<Ino, Vec<u8>>,
    copying: &'a mut Option<(Copying, u64)>,
    buffer: &'a mut Vec<u8>,
}

impl Archiver<'_> {
    fn add(&mut self, visit: &Visit, walked: &[u8]) -> Result<()> {
        self.job.begin_file(walked)?;
        self.job.extraction.report.files += 1;
        let attributes = &visit.attributes;
        let is_directory = attributes.file_type == FileType::Directory;
        let mut path = match visit.depth {
            0 if is_directory => b".".to_vec(),
            0 => self.job.extraction.top_name.clone(),
            _ => walked.to_vec(),
        };
        if is_directory {
            path.push(b'/');
        }
        let times =
            Times { atime: attributes.atime, mtime: attributes.mtime, ctime: attributes.ctime };
        let mut member = Member {
            path: &path,
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
            times,
            ..Member::default()
        };
        let first = self.links.get(&attributes.ino).cloned();
        if let Some(first) = first.filter(|_| attributes.links > 1) {
            member.typeflag = b'1';
            member.link = &first;
            return member.write(self.out).map_err(Error::Output);
        }
        let xattrs = self.job.xattrs(walked, attributes.ino)?;
        member.xattrs = &xattrs;
        if !self.member(walked, attributes, member)? {
            return Ok(());
        }
        if attributes.links > 1 && !is_directory {
            self.links.insert(attributes.ino, path);
        }
        Ok(())
    }

    /// Writes a file under its first name. Returns whether archives support its type.
    fn member(&mut self, path: &[u8], attributes: &Attributes, member: Member<'_>) -> Result<bool> {
        let target;
        // `target` must outlive the modified member.
        let mut member = member;
        member.typeflag = match attributes.file_type {
            FileType::Regular => return self.regular(path, attributes, member).map(|()| true),
            FileType::Directory => b'5',
            FileType::Symlink => {
                let read = self.job.target(path, attributes.ino)?;
                let Some(read) = read else { return Ok(false) };
                target = read;
                member.link = &target;
                b'2'
            }
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Fifo => b'6',
            FileType::Socket => {
                self.job.left_out(path, "a tar archive cannot contain a socket");
                return Ok(false);
            }
        };
        if matches!(member.typeflag, b'3' | b'4') {
            member.device = attributes.device;
        }
        member.write(self.out).map_err(Error::Output)?;
        Ok(true)
    }

    fn regular(
        &mut self,
        path: &[u8],
        attributes: &Attributes,
        mut member: Member<'_>,
    ) -> Result<()> {
        let &Attributes { ino, size, .. } = attributes;
        let runs = self.job.data_runs(path, ino, size)?;
        let data_bytes: u64 = runs.iter().map(|run| run.len).sum();
        let map = (data_bytes < size).then(|| sparse_map(&runs, size));
        member.typeflag = b'0';
        member.stored_bytes = data_bytes + map.as_ref().map_or(0, |map| map.len() as u64);
        member.sparse_size = map.as_ref().map(|_| size);
        let written: io::Result<()> = member.write(self.out);
        let written = written.and_then(|()| self.out.write_all(&map.unwrap_or_default()));
        written.map_err(Error::Output)?;
        *self.copying = Some((Copying::new(path, ino, runs), member.stored_bytes));
        self.copy()
    }

    /// Copies the next piece of the current file, and pads its member at the end.
    fn copy(&mut self) -> Result<()> {
        let Some((copying, stored_bytes)) = self.copying else { return Ok(()) };
        let out = &mut *self.out;
        let has_more = self.job.copy_piece(copying, self.buffer, &mut |_, bytes| {
            out.write_all(bytes).map_err(Error::Output)
        })?;
        if !has_more {
            archive::pad(self.out, *stored_bytes).map_err(Error::Output)?;
            *self.copying = None;
        }
        Ok(())
    }
}
