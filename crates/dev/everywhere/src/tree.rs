//! A host directory as a source, with the attributes that all hosts with files support.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use import::{Body, DirectorySource, EntryKind, Options, Source};

use crate::digest::Digest;

const FILES: u32 = 40;

/// Creates a tree in a new directory, reads it as a source, and returns the digest of its contents.
pub(crate) fn read(directory: &Path) -> Result<u32, Box<dyn Error>> {
    make(directory)?;
    let mut source = DirectorySource::open(directory, &Options::default())?;
    let mut digest = Digest::default();
    while let Some(entry) = source.next_entry()? {
        digest.add(&entry.path);
        match &entry.kind {
            EntryKind::Directory => digest.add(b"directory"),
            EntryKind::Hardlink(target) => digest.add(target),
            EntryKind::File(content) => {
                let mut bytes = vec![0; usize::try_from(content.size())?];
                if let Body::Detached(detached) = content.body() {
                    let opened = detached.open()?;
                    opened.read_at(0, &mut bytes)?;
                    opened.finish()?;
                }
                digest.add(&bytes);
                digest.add(format!("{:?}", entry.metadata.mtime).as_bytes());
                digest.add(&[u8::from(entry.metadata.permissions & 0o200 == 0)]);
            }
            other => return Err(format!("{:?} is {other:?}", entry.path).into()),
        }
    }
    Ok(digest.finish())
}

fn make(directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir(directory)?;
    let mut first = None;
    for number in 0..FILES {
        let below =
            directory.join(format!("d{}", number % 3)).join(format!("{number}\u{e4}.\u{20ac}"));
        fs::create_dir_all(&below)?;
        let path = below.join("file");
        fs::write(&path, vec![number as u8; number as usize * 700])?;
        let time =
            SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000 - u64::from(number), 100 * number);
        File::options().write(true).open(&path)?.set_modified(time)?;
        if number % 7 == 3 {
            let mut permissions = fs::metadata(&path)?.permissions();
            permissions.set_readonly(true);
            fs::set_permissions(&path, permissions)?;
        }
        match &first {
            None => first = Some(path),
            Some(first) => fs::hard_link(first, below.join("other"))?,
        }
    }
    Ok(())
}
