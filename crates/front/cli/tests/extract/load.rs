//! Filling the reference model from sources.

use diskwright::extract::Observer;
use import::{Body, Entry, EntryKind, Source, Time};
use testkit::model::Model;
use vfs::path::{LastLink, split_last};
use vfs::{DeviceNumber, FileSystem, Ino, NewInode, Paths, SetAttributes, SpecialFile, Timestamp};

fn timestamp(time: Time) -> Timestamp {
    Timestamp { sec: time.sec, nsec: time.nsec }
}

/// Loads all entries of a source into a model.
pub(crate) fn load(source: &mut dyn Source) -> Model {
    let fs = Model::new();
    let mut times = Vec::new();
    while let Some(entry) = source.next_entry().unwrap() {
        let Some(ino) = add(&fs, &entry, source) else { continue };
        let change = |time: Option<Time>| time.map(timestamp);
        let m = entry.metadata;
        let change = SetAttributes {
            permissions: Some(m.permissions),
            uid: Some(m.uid),
            gid: Some(m.gid),
            atime: change(m.atime),
            mtime: change(Some(m.mtime)),
            ctime: change(m.ctime),
            ..SetAttributes::default()
        };
        times.push((ino, change));
        for xattr in &entry.xattrs {
            fs.set_xattr(ino, &xattr.name, &xattr.value).unwrap();
        }
    }
    // Set times last, because creating files changes the times of directories.
    for (ino, change) in times {
        fs.set_attributes(ino, &change).unwrap();
    }
    fs
}

/// Creates one entry. Returns `None` for another name of a file.
fn add(fs: &Model, entry: &Entry, source: &mut dyn Source) -> Option<Ino> {
    if entry.path.is_empty() {
        return Some(fs.root());
    }
    let paths = Paths::new(fs);
    let (parent, name) = split_last(&entry.path).unwrap();
    let dir = paths.resolve(parent, LastLink::Keep).unwrap();
    let new = NewInode::default();
    let special = |file| fs.mknod(dir, name, file, &new);
    let made = match &entry.kind {
        EntryKind::Directory => fs.mkdir(dir, name, &new),
        EntryKind::File(_) => fs.create(dir, name, &new),
        EntryKind::Symlink(target) => fs.symlink(dir, name, target, &new),
        EntryKind::Hardlink(target) => {
            fs.link(paths.resolve(target, LastLink::Keep).unwrap(), dir, name, None).unwrap();
            return None;
        }
        &EntryKind::CharDevice { major, minor } => {
            special(SpecialFile::CharDevice(DeviceNumber { major, minor }))
        }
        &EntryKind::BlockDevice { major, minor } => {
            special(SpecialFile::BlockDevice(DeviceNumber { major, minor }))
        }
        EntryKind::Fifo => special(SpecialFile::Fifo),
        EntryKind::Socket => special(SpecialFile::Socket),
    };
    let ino = made.unwrap();
    if let EntryKind::File(content) = &entry.kind {
        fs.truncate(ino, content.size(), None).unwrap();
        for run in content.runs() {
            let mut bytes = vec![0; run.len as usize];
            match content.body() {
                Body::Empty => {}
                Body::Detached(body) => {
                    body.open().unwrap().read_at(run.offset, &mut bytes).unwrap();
                }
                Body::Stream => {
                    let mut done = 0;
                    while done < bytes.len() {
                        done += source.read(&mut bytes[done..]).unwrap();
                    }
                }
            }
            fs.write(ino, run.offset, &bytes, None).unwrap();
        }
    }
    Some(ino)
}

/// Collects warnings.
#[derive(Default)]
pub(crate) struct Warnings(pub(crate) Vec<String>);

impl Observer for Warnings {
    fn file(&mut self, _: &[u8]) {}

    fn copied(&mut self, _: u64) {}

    fn warning(&mut self, message: &str) {
        self.0.push(message.into());
    }
}
