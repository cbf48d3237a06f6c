//! Writes everything in an image to a tar archive: `cargo run --example backup -- disk.img > disk.tar`

use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diskwright::fs::{File, FileType, Image, WalkEntry};
use tar::{Builder, EntryType, Header};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args_os().nth(1) else {
        return Err("usage: backup IMAGE > ARCHIVE".into());
    };
    back_up(&Image::open(path)?, io::stdout().lock())
}

/// Writes everything in an image, in the order of names, so that the same image gives the same archive.
pub(crate) fn back_up(image: &Image, out: impl Write) -> Result<(), Box<dyn Error>> {
    let mut archive = Builder::new(out);
    let mut first_names = HashMap::new();
    for entry in image.walk("/").sorted() {
        let entry = entry?;
        let metadata = entry.metadata();
        // Files with several names are in the archive once. Later names are links to the first.
        let known = match metadata.nlink() > 1 && !metadata.is_dir() {
            true => first_names.get(&metadata.ino()).cloned(),
            false => None,
        };
        if known.is_none() {
            first_names.insert(metadata.ino(), entry.path().to_vec());
        }
        add(&mut archive, image, &entry, known.as_deref())?;
    }
    archive.finish()?;
    Ok(())
}

fn add(
    archive: &mut Builder<impl Write>,
    image: &Image,
    entry: &WalkEntry,
    first_name: Option<&[u8]>,
) -> Result<(), Box<dyn Error>> {
    let (path, metadata) = (entry.path(), entry.metadata());
    let mut header = Header::new_gnu();
    header.set_mode(metadata.permissions());
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(metadata.mtime().sec.try_into().unwrap_or(0));
    header.set_size(0);
    if let Some(first_name) = first_name {
        header.set_entry_type(EntryType::Link);
        return Ok(archive.append_link(&mut header, relative(path), relative(first_name))?);
    }
    add_attributes(archive, image, path)?;
    match metadata.file_type() {
        FileType::Regular => {
            header.set_entry_type(EntryType::Regular);
            header.set_size(metadata.len());
            let file = File::open(image, path)?;
            archive.append_data(&mut header, relative(path), &file)?;
            return Ok(());
        }
        FileType::Symlink => {
            header.set_entry_type(EntryType::Symlink);
            let target = image.read_link(path)?;
            let target = Path::new(OsStr::from_bytes(&target));
            return Ok(archive.append_link(&mut header, relative(path), target)?);
        }
        FileType::Directory => header.set_entry_type(EntryType::Directory),
        FileType::CharDevice => header.set_entry_type(EntryType::Char),
        FileType::BlockDevice => header.set_entry_type(EntryType::Block),
        FileType::Fifo => header.set_entry_type(EntryType::Fifo),
        // Archives have no sockets, which are of no use without the program that made them.
        FileType::Socket => return Ok(()),
    }
    header.set_device_major(metadata.rdev().major)?;
    header.set_device_minor(metadata.rdev().minor)?;
    archive.append_data(&mut header, relative(path), io::empty())?;
    Ok(())
}

/// Puts extended attributes before the file, as tar(1) has them.
fn add_attributes(
    archive: &mut Builder<impl Write>,
    image: &Image,
    path: &[u8],
) -> Result<(), Box<dyn Error>> {
    let mut attributes = Vec::new();
    for name in image.list_xattrs(path)? {
        let value = image.get_xattr(path, &name)?.unwrap_or_default();
        attributes.push((format!("SCHILY.xattr.{}", String::from_utf8(name)?), value));
    }
    let attributes = attributes.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    Ok(archive.append_pax_extensions(attributes)?)
}

/// The path as archives have it: below where they are unpacked.
fn relative(path: &[u8]) -> &Path {
    match path {
        b"/" => Path::new("."),
        _ => Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path))),
    }
}
