//! Requests that change the image.

use std::fs;

use diskwright::OpenImage;
use diskwright::fs::{FileTimes, Image, SpecialFile};
use diskwright::tune::change_superblock;
use vfs::Timestamp;

use super::Session;
use super::phrases::failed;
use super::request::Request;
use crate::failure::{Failure, STATUSES};
use crate::fields;
use crate::invoked::say;

/// The requests.
const NAMES: [&str; 15] = [
    "write",
    "mkdir",
    "rm",
    "rmdir",
    "symlink",
    "mknod",
    "ln",
    "ea_set",
    "ea_rm",
    "set_current_time",
    "set_super_value",
    "ssv",
    "set_inode_field",
    "sif",
    "unlink",
];

fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

impl Session {
    /// Whether the request is one of these.
    pub(super) fn change(&mut self, request: &Request) -> Result<bool, Failure> {
        if !is_known(&request.name) {
            return Ok(false);
        }
        if !self.is_writable {
            return Err(STATUSES.failed("Filesystem opened read/only (-w opens it for writing)"));
        }
        let words = |e: String| STATUSES.failed(e);
        match &*request.name {
            "write" => {
                let [from, to] = request.exactly().map_err(words)?;
                self.write(from, to)?;
            }
            "set_current_time" => {
                let [time] = request.exactly().map_err(words)?;
                self.now = Some(fields::parse_time(time).map_err(words)?);
            }
            "mkdir" => {
                let [path] = request.exactly().map_err(words)?;
                self.make_directory(path)?;
            }
            "rm" | "unlink" => {
                let [path] = request.exactly().map_err(words)?;
                self.with(path, |image, path| image.remove_file(path))?;
            }
            "rmdir" => {
                let [path] = request.exactly().map_err(words)?;
                self.with(path, |image, path| image.remove_dir(path))?;
            }
            "symlink" => {
                let [path, target] = request.exactly().map_err(words)?;
                self.with(path, |image, path| image.symlink(target, path))?;
            }
            "ln" => {
                let [from, path] = request.exactly().map_err(words)?;
                let from = self.path_of(from)?;
                self.with(path, |image, path| image.hard_link(&*from, path))?;
            }
            "mknod" => self.make_node(request)?,
            "ea_set" => self.set_xattr(request)?,
            "ea_rm" => {
                let [path, name] = request.exactly().map_err(words)?;
                self.with(path, |image, path| image.remove_xattr(path, name))?;
            }
            "set_inode_field" | "sif" => {
                let [path, field, value] = request.exactly().map_err(words)?;
                self.set_field(path, field, value)?;
            }
            _ => {
                let [field, value] = request.exactly().map_err(words)?;
                self.set_superblock(field, value)?;
            }
        }
        Ok(true)
    }

    fn with(
        &mut self,
        path: &str,
        change: impl FnOnce(&Image, &[u8]) -> diskwright::Result<()>,
    ) -> Result<(), Failure> {
        let path = self.path_of(path)?;
        change(self.image()?, &path).map_err(failed)
    }

    fn make_directory(&mut self, path: &str) -> Result<(), Failure> {
        let path = self.path_of(path)?;
        self.image()?.create_dir(&*path).map_err(|error| match error {
            diskwright::Error::File { source: vfs::Error::Exists, .. } => {
                STATUSES.failed("Ext2 directory already exists")
            }
            error => failed(error),
        })
    }

    /// `write HOSTFILE FILE`: a new file, with the permissions of the host's. No file stays if its contents do not fit.
    fn write(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let at = |e: std::io::Error| STATUSES.failed(format_args!("{from}: {e}"));
        let contents = fs::read(from).map_err(at)?;
        let permissions = permissions(&fs::metadata(from).map_err(at)?);
        let path = self.path_of(to)?;
        let image = self.image()?;
        if image.symlink_metadata(&*path).is_ok() {
            return Err(STATUSES.failed("Ext2 file already exists"));
        }
        let made =
            image.write(&*path, contents).and_then(|()| image.set_permissions(&*path, permissions));
        if let Err(error) = made {
            // The write did not create it where the directory is missing or full.
            let _ = image.remove_file(&*path);
            return Err(failed(error));
        }
        self.tell_inode(&path)
    }

    /// Prints the inode number of a new file, as the original does.
    fn tell_inode(&mut self, path: &[u8]) -> Result<(), Failure> {
        let made = self.image()?.symlink_metadata(path).map_err(failed)?;
        say(format_args!("Allocated inode: {}", made.ino().0));
        Ok(())
    }

    /// `mknod NAME p`, or `mknod NAME c|b MAJOR MINOR`.
    fn make_node(&mut self, request: &Request) -> Result<(), Failure> {
        let words = request.words.iter().map(String::as_str).collect::<Vec<_>>();
        let number = |text: &str| {
            let number = fields::number(text).and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| STATUSES.failed(format_args!("{text} is no number of a device")))
        };
        let (path, special) = match &*words {
            [path, "p"] => (path, SpecialFile::Fifo),
            [path, kind @ ("c" | "b"), major, minor] => {
                let device = vfs::DeviceNumber { major: number(major)?, minor: number(minor)? };
                let is_block = *kind == "b";
                (
                    path,
                    if is_block {
                        SpecialFile::BlockDevice(device)
                    } else {
                        SpecialFile::CharDevice(device)
                    },
                )
            }
            _ => return Err(STATUSES.failed("mknod has NAME p, or NAME c|b MAJOR MINOR after it")),
        };
        self.with(path, |image, path| image.create_special(path, special, 0o644))?;
        let path = self.path_of(path)?;
        self.tell_inode(&path)
    }

    /// `ea_set [-f HOSTFILE] FILE NAME [VALUE]`.
    fn set_xattr(&mut self, request: &Request) -> Result<(), Failure> {
        let words = request.words.iter().map(String::as_str).collect::<Vec<_>>();
        let (path, name, value) = match &*words {
            ["-f", from, path, name] => {
                let value =
                    fs::read(from).map_err(|e| STATUSES.failed(format_args!("{from}: {e}")))?;
                (path, name, value)
            }
            [path, name, value] if !path.starts_with('-') => {
                (path, name, value.as_bytes().to_vec())
            }
            _ => return Err(STATUSES.failed("ea_set has [-f HOSTFILE] FILE NAME [VALUE] after it")),
        };
        self.with(path, |image, path| image.set_xattr(path, name, value))
    }

    fn set_field(&mut self, path: &str, field: &str, value: &str) -> Result<(), Failure> {
        let wrong = |why: String| STATUSES.failed(why);
        let number = || {
            let number = fields::number(value).and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| STATUSES.failed(format_args!("{field} cannot be {value:?}")))
        };
        let time = || Ok(Timestamp { sec: fields::parse_time(value).map_err(wrong)?, nsec: 0 });
        match field {
            "mode" | "i_mode" => {
                let mode = number()?;
                let kind = self.stat_mode(path)? & 0o170_000;
                if mode & 0o170_000 != 0 && mode & 0o170_000 != kind {
                    return Err(STATUSES.failed("mode: the type of a file stays as it is"));
                }
                self.with(path, |image, path| image.set_permissions(path, mode & 0o7777))
            }
            "uid" | "i_uid" => {
                let uid = number()?;
                self.with(path, |image, path| image.lchown(path, Some(uid), None))
            }
            "gid" | "i_gid" => {
                let gid = number()?;
                self.with(path, |image, path| image.lchown(path, None, Some(gid)))
            }
            "atime" | "mtime" | "crtime" | "i_atime" | "i_mtime" | "i_crtime" => {
                let time = time()?;
                let times = match field.trim_start_matches("i_") {
                    "atime" => FileTimes::new().set_accessed(time),
                    "mtime" => FileTimes::new().set_modified(time),
                    _ => FileTimes::new().set_created(time),
                };
                self.with(path, |image, path| image.set_times_nofollow(path, times))
            }
            _ => Err(STATUSES.refused(
                format_args!("the field {field}"),
                "mode, uid, gid, atime, mtime and crtime are set",
            )),
        }
    }

    fn stat_mode(&mut self, path: &str) -> Result<u32, Failure> {
        let path = self.path_of(path)?;
        let found = self.image()?.symlink_metadata(&*path).map_err(failed)?;
        Ok(found.mode())
    }

    /// The superblock is changed while the image is closed: what is open keeps it in memory.
    fn set_superblock(&mut self, field: &str, value: &str) -> Result<(), Failure> {
        self.close()?;
        let mut problem = None;
        let changed = change_superblock(&self.path, &OpenImage::default(), &mut |raw| {
            fields::set(raw, field, value).map_err(|why| {
                problem = Some(why);
                "it cannot be set so"
            })
        });
        match (changed, problem) {
            (_, Some(why)) => Err(STATUSES.failed(why)),
            (changed, None) => changed.map_err(failed),
        }
    }

    /// Writes the time that was said to be the current one as that of the last write, when all else is written.
    pub(super) fn stamp(&self) -> Result<(), Failure> {
        let Some(now) = self.now else { return Ok(()) };
        let changed = change_superblock(&self.path, &OpenImage::default(), &mut |raw| {
            fields::set_time(&mut raw.wtime, &mut raw.wtime_hi, now);
            Ok(())
        });
        changed.map_err(failed)
    }
}

#[cfg(unix)]
fn permissions(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o7777
}

#[cfg(not(unix))]
fn permissions(_: &fs::Metadata) -> u32 {
    0o644
}
