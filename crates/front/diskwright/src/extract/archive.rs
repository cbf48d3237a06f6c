//! Extraction to a tar archive.

use std::collections::HashMap;
use std::io::{self, Write};

use import::archive::{self, Member, Times, sparse_map};
use vfs::path::{Order, Walked};
use vfs::{FileType, Ino, Paths};

use super::{ExtractOptions, ExtractReport, Job, Observer};
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
    let job = Job::new(paths, options, observer)?;
    let top = job.top_ino;
    let mut archiver = Archiver { job, out, links: HashMap::new(), buffer: Vec::new() };
    scout::ahead_of(paths.file_system(), top, |scouts| {
        for walked in paths.walk(top, Order::Sorted) {
            scouts.pass();
            match walked {
                Ok(walked) => archiver.add(&walked)?,
                Err(e) => archiver.job.unreadable(&e.path, e.error)?,
            }
        }
        Ok::<_, Error>(())
    })?;
    archive::end(archiver.out).and_then(|()| archiver.out.flush()).map_err(Error::Output)?;
    Ok(archiver.job.report)
}

struct Archiver<'a> {
    job: Job<'a>,
    out: &'a mut dyn Write,
    /// First path of each file with several names.
    links: HashMap<Ino, Vec<u8>>,
    buffer: Vec<u8>,
}

impl Archiver<'_> {
    fn add(&mut self, walked: &Walked) -> Result<()> {
        self.job.begin_file(&walked.path)?;
        self.job.report.files += 1;
        let attributes = &walked.attributes;
        let is_directory = attributes.file_type == FileType::Directory;
        let mut path = match walked.depth {
            0 if is_directory => b".".to_vec(),
            0 => self.job.top_name.clone(),
            _ => walked.path.clone(),
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
        let xattrs = self.job.xattrs(&walked.path, attributes.ino)?;
        member.xattrs = &xattrs;
        if !self.member(walked, member)? {
            return Ok(());
        }
        if attributes.links > 1 && !is_directory {
            self.links.insert(attributes.ino, path);
        }
        Ok(())
    }

    /// Writes a file under its first name. Returns whether archives support its type.
    fn member(&mut self, walked: &Walked, member: Member<'_>) -> Result<bool> {
        let attributes = &walked.attributes;
        let target;
        // `target` must outlive the modified member.
        let mut member = member;
        member.typeflag = match attributes.file_type {
            FileType::Regular => return self.regular(walked, member).map(|()| true),
            FileType::Directory => b'5',
            FileType::Symlink => {
                let read = self.job.target(&walked.path, attributes.ino)?;
                let Some(read) = read else { return Ok(false) };
                target = read;
                member.link = &target;
                b'2'
            }
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Fifo => b'6',
            FileType::Socket => {
                self.job.left_out(&walked.path, "a tar archive cannot contain a socket");
                return Ok(false);
            }
        };
        if matches!(member.typeflag, b'3' | b'4') {
            member.device = attributes.device;
        }
        member.write(self.out).map_err(Error::Output)?;
        Ok(true)
    }

    fn regular(&mut self, walked: &Walked, mut member: Member<'_>) -> Result<()> {
        let (path, ino, size) = (&walked.path, walked.attributes.ino, walked.attributes.size);
        let runs = self.job.data_runs(path, ino, size)?;
        let data_bytes: u64 = runs.iter().map(|run| run.len).sum();
        let map = (data_bytes < size).then(|| sparse_map(&runs, size));
        member.typeflag = b'0';
        member.stored_bytes = data_bytes + map.as_ref().map_or(0, |map| map.len() as u64);
        member.sparse_size = map.as_ref().map(|_| size);
        let written: io::Result<()> = member.write(self.out);
        let written = written.and_then(|()| self.out.write_all(&map.unwrap_or_default()));
        written.map_err(Error::Output)?;
        let (job, out, buffer) = (&mut self.job, &mut *self.out, &mut self.buffer);
        job.copy_runs(path, ino, &runs, buffer, &mut |_, bytes| {
            out.write_all(bytes).map_err(Error::Output)
        })?;
        archive::pad(self.out, member.stored_bytes).map_err(Error::Output)
    }
}
