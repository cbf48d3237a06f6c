//! Images and the files in them, with an API like `std::fs`.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use diskwright::fs::{Ext4Options, File, Image, MemoryDevice};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = Image::format(Arc::new(MemoryDevice::new(64 << 20)), Ext4Options::new())?;
//! image.create_dir_all("/etc/ssh")?;
//! image.write("/etc/hostname", "box\n")?;
//! let mut file = File::create(&image, "/etc/ssh/banner")?;
//! writeln!(file, "welcome to {}", image.read_to_string("/etc/hostname")?.trim())?;
//! drop(file);
//! for entry in image.walk("/etc").sorted() {
//!     println!("{}", String::from_utf8_lossy(entry?.path()));
//! }
//! image.close()?;
//! # Ok(()) }
//! ```
//!
//! - [`Image`] is an open image: a host file ([`Image::open`], [`Image::open_writable`]), a partition or any
//!   [`BlockDevice`] ([`ImageOptions`]), or a new image ([`Image::create`], [`Image::format`]). Its methods are the
//!   functions of `std::fs`.
//! - [`File`] is an open file, [`OpenOptions`] contains the options for opening one, [`ReadDir`] lists a directory and
//!   [`Walk`] walks a tree.
//! - Paths are text, bytes or, on Unix, host paths ([`AsImagePath`]). All paths start at the root. Symbolic links are
//!   resolved inside the image and never lead outside.
//! - Errors are [`crate::Error`]s, which name the file. They convert to [`std::io::Error`]s of the kind that a host
//!   file system would return.

mod attributes;
mod contents;
mod directory;
#[cfg(feature = "build")]
mod exchange;
mod file;
mod inode;
mod making;
mod metadata;
mod names;
mod open_options;
mod path;
mod walk;

pub use crate::image::{Image, ImageOptions};
pub use disk::{BlockDevice, FileDevice, MemoryDevice, WindowDevice};
pub use vfs::{Corruption, Error as FsError};
pub use vfs::{DeviceNumber, FileType, Ino, RenameMode, SpecialFile, StatFs, Timestamp};

pub use directory::{DirEntry, DirEntryRef, ReadDir};
pub use file::File;
pub use making::{Ext4Options, FormatOptions, NewImage, OfExt4, OfXfs, XfsOptions};
pub use metadata::{FileTimes, Metadata};
pub use names::DirBuilder;
pub use open_options::OpenOptions;
pub use path::AsImagePath;
#[cfg(feature = "tar")]
pub(crate) use path::absolute;
#[cfg_attr(not(feature = "build"), allow(unused_imports))]
pub(crate) use path::join;
pub use walk::{Walk, WalkEntry};
