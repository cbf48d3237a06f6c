//! Requests that only look.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use diskwright::fs::{FileType, Image, Metadata};
use vfs::Timestamp;

use super::Session;
use super::phrases::failed;
use super::request::Request;
use crate::dumpe2fs;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say;

impl Session {
    /// Whether the request is one of these.
    pub(super) fn look(&mut self, request: &Request) -> Result<bool, Failure> {
        let words = |e: String| STATUSES.failed(e);
        match &*request.name {
            "ls" | "l" => self.list(request)?,
            "stat" | "show_inode_info" => {
                let [path] = request.exactly().map_err(words)?;
                self.stat(path)?;
            }
            "cat" => {
                let [path] = request.exactly().map_err(words)?;
                let contents = self.read(path)?;
                io::stdout().write_all(&contents).map_err(|e| STATUSES.failed(e))?;
            }
            "dump" | "dump_inode" => self.dump(request)?,
            "rdump" => self.dump_trees(request)?,
            "ea_list" => {
                let [path] = request.exactly().map_err(words)?;
                self.list_xattrs(path)?;
            }
            "ea_get" => self.get_xattr(request)?,
            "cd" | "chroot" => {
                let [path] = request.exactly().map_err(words)?;
                self.change_directory(path)?;
            }
            "pwd" => say(format_args!("[pwd]   INODE:      2  PATH: /{}", self.shown_directory())),
            "show_super_stats" | "stats" => dumpe2fs::show(&dumpe2fs::superblock(&self.path)?),
            "features" | "feature" => {
                let features = dumpe2fs::superblock(&self.path)?.features;
                say(format_args!("Filesystem features: {}", features.names().join(" ")));
            }
            "testi" | "exists" => {
                let [path] = request.exactly().map_err(words)?;
                self.metadata(path)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn shown_directory(&self) -> String {
        diskwright::text::escaped(self.directory.strip_prefix(b"/").unwrap_or(&self.directory))
            .to_string()
    }

    fn change_directory(&mut self, path: &str) -> Result<(), Failure> {
        let path = self.path_of(path)?;
        let path = self.image()?.canonicalize(&*path).map_err(failed)?;
        let metadata = self.image()?.metadata(&*path).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(STATUSES.failed("Ext2 inode is not a directory"));
        }
        self.directory = path;
        Ok(())
    }

    fn metadata(&mut self, path: &str) -> Result<Metadata, Failure> {
        let path = self.path_of(path)?;
        self.image()?.symlink_metadata(&*path).map_err(failed)
    }

    fn read(&mut self, path: &str) -> Result<Vec<u8>, Failure> {
        let path = self.path_of(path)?;
        self.image()?.read(&*path).map_err(failed)
    }

    fn list(&mut self, request: &Request) -> Result<(), Failure> {
        let (options, paths): (Vec<_>, Vec<_>) =
            request.words.iter().partition(|word| word.starts_with('-'));
        let mut style = ' ';
        for letter in options.iter().flat_map(|word| word.chars().skip(1)) {
            match letter {
                'l' | 'p' => style = letter,
                _ => return Err(STATUSES.refused(format_args!("ls -{letter}"), "ls has -l and -p")),
            }
        }
        let path = self.path_of(paths.first().map_or("", |path| path))?;
        let image = self.image()?;
        let root = image.metadata(&*path).map_err(failed)?;
        if !root.is_dir() {
            return Err(STATUSES.failed("Ext2 inode is not a directory"));
        }
        line(style, b".", &root);
        let parent = image.metadata([&*path, b"/.."].concat().as_slice()).map_err(failed)?;
        line(style, b"..", &parent);
        for entry in image.read_dir(&*path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            line(style, entry.file_name(), &entry.metadata().map_err(failed)?);
        }
        if style != ' ' {
            say(format_args!(""));
        }
        Ok(())
    }

    fn stat(&mut self, path: &str) -> Result<(), Failure> {
        let found = self.metadata(path)?;
        say(format_args!(
            "Inode: {}   Type: {}    Mode:  {:04o}",
            found.ino().0,
            kind(found.file_type()),
            found.permissions() & 0o7777
        ));
        say(format_args!(
            "User: {:5}   Group: {:5}   Size: {}",
            found.uid(),
            found.gid(),
            found.len()
        ));
        say(format_args!("Links: {}   Blockcount: {}", found.nlink(), found.blocks()));
        time("ctime", found.ctime());
        time("atime", found.atime());
        time("mtime", found.mtime());
        if let Some(made) = found.crtime() {
            time("crtime", made);
        }
        if found.is_symlink() {
            let path = self.path_of(path)?;
            let target = self.image()?.read_link(&*path).map_err(failed)?;
            say(format_args!("Fast link dest: \"{}\"", diskwright::text::escaped(&target)));
        }
        Ok(())
    }

    /// `dump [-p] FILE HOSTFILE`.
    fn dump(&mut self, request: &Request) -> Result<(), Failure> {
        let words = request.words.iter().filter(|word| *word != "-p").collect::<Vec<_>>();
        let &[from, to] = &*words else {
            return Err(
                STATUSES.failed("dump [-p] has a file of the image and one of the host after it")
            );
        };
        let contents = self.read(from)?;
        let failed = |e: io::Error| STATUSES.failed(format_args!("{to}: {e}"));
        fs::write(to, contents).map_err(failed)?;
        if words.len() < request.words.len() {
            let metadata = self.metadata(from)?;
            keep_permissions(Path::new(to), &metadata).map_err(failed)?;
        }
        Ok(())
    }

    /// `rdump DIRECTORY… HOSTDIRECTORY`.
    fn dump_trees(&mut self, request: &Request) -> Result<(), Failure> {
        let Some((to, trees)) = request.words.split_last().filter(|(_, trees)| !trees.is_empty())
        else {
            return Err(
                STATUSES.failed("rdump has directories of the image and one of the host after it")
            );
        };
        for tree in trees {
            let path = self.path_of(tree)?;
            let image = self.image()?;
            let name = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
            let to = match name {
                Some(name) => Path::new(to).join(host_name(name)?),
                None => Path::new(to).to_owned(),
            };
            dump_tree(image, &path, &to)?;
        }
        Ok(())
    }

    fn list_xattrs(&mut self, path: &str) -> Result<(), Failure> {
        let path = self.path_of(path)?;
        let image = self.image()?;
        for name in image.list_xattrs(&*path).map_err(failed)? {
            let value = image.get_xattr(&*path, &name).map_err(failed)?.unwrap_or_default();
            say(format_args!(
                "  {} ({}) = \"{}\"",
                diskwright::text::escaped(&name),
                value.len(),
                diskwright::text::escaped(&value)
            ));
        }
        Ok(())
    }

    /// `ea_get [-f HOSTFILE] [-V] FILE NAME`.
    fn get_xattr(&mut self, request: &Request) -> Result<(), Failure> {
        let mut words = request.words.iter();
        let (mut to, mut is_bare, mut rest) = (None, false, Vec::new());
        while let Some(word) = words.next() {
            match &**word {
                "-f" => to = words.next(),
                "-V" => is_bare = true,
                "-r" | "-x" | "-C" => return Err(STATUSES.refused(word, "ea_get has -f and -V")),
                _ => rest.push(word),
            }
        }
        let &[path, name] = &*rest else {
            return Err(STATUSES.failed("ea_get has a file and the name of an attribute after it"));
        };
        let path = self.path_of(path)?;
        let value = self.image()?.get_xattr(&*path, name).map_err(failed)?;
        let value =
            value.ok_or_else(|| STATUSES.failed(format_args!("there is no attribute {name}")))?;
        match (to, is_bare) {
            (Some(to), _) => {
                fs::write(to, value).map_err(|e| STATUSES.failed(format_args!("{to}: {e}")))
            }
            (None, true) => io::stdout().write_all(&value).map_err(|e| STATUSES.failed(e)),
            (None, false) => {
                say(format_args!(
                    "{name} ({}) = \"{}\"",
                    value.len(),
                    diskwright::text::escaped(&value)
                ));
                Ok(())
            }
        }
    }
}

fn host_name(name: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(name)
        .map_err(|_| STATUSES.failed("a name is no text: diskwright extract takes it"))
}

fn dump_tree(image: &Image, path: &[u8], to: &Path) -> Result<(), Failure> {
    let at = |path: &Path, e: io::Error| STATUSES.failed(format_args!("{}: {e}", path.display()));
    // What is below a directory comes after it.
    let mut below = vec![(path.to_vec(), to.to_owned())];
    while let Some((path, to)) = below.pop() {
        let metadata = image.symlink_metadata(&*path).map_err(failed)?;
        if metadata.is_dir() {
            fs::create_dir_all(&to).map_err(|e| at(&to, e))?;
            for entry in image.read_dir(&*path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                below.push((entry.path(), to.join(host_name(entry.file_name())?)));
            }
        } else if metadata.is_symlink() {
            let target = image.read_link(&*path).map_err(failed)?;
            make_symlink(host_name(&target)?, &to).map_err(|e| at(&to, e))?;
        } else if metadata.is_file() {
            fs::write(&to, image.read(&*path).map_err(failed)?).map_err(|e| at(&to, e))?;
            keep_permissions(&to, &metadata).map_err(|e| at(&to, e))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn make_symlink(target: &str, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn make_symlink(_: &str, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
fn keep_permissions(file: &Path, metadata: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(metadata.permissions() & 0o7777))
}

#[cfg(not(unix))]
fn keep_permissions(_: &Path, _: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Prints a line of a listing.
fn line(style: char, name: &[u8], metadata: &Metadata) {
    let (ino, mode) = (metadata.ino().0, metadata.mode());
    let (uid, gid, len) = (metadata.uid(), metadata.gid(), metadata.len());
    match style {
        'p' => {
            // Only files have a size there. Control characters would end the line for who reads it.
            let len = if metadata.is_dir() { String::new() } else { len.to_string() };
            let name = diskwright::text::escaped(name);
            say(format_args!("/{ino}/{mode:06o}/{uid}/{gid}/{name}/{len}/"));
        }
        'l' => say(format_args!(
            "{ino:7}  {mode:6o} ({}) {uid:6} {gid:6} {} {} {}",
            type_number(metadata.file_type()),
            // The original's column has seven digits and widens by two for more than six.
            if len < 1_000_000 { format!("{len:7}") } else { format!("  {len}") },
            dumpe2fs::local(metadata.mtime().sec, "%e-%b-%Y %H:%M"),
            printable(name)
        )),
        _ => say(format_args!("{ino:7}  {}", printable(name))),
    }
}

/// Returns a name with each byte outside of printable ASCII as `\xNN`.
fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b' '..=b'~' => text.push(byte.into()),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// `file_type` of a directory's entries.
fn type_number(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular",
        FileType::Directory => "directory",
        FileType::CharDevice => "character special",
        FileType::BlockDevice => "block special",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::Symlink => "symlink",
    }
}

fn time(name: &str, time: Timestamp) {
    let shown = diskwright::text::rfc3339(time);
    say(format_args!("{name:>6}: 0x{:08x}:{:08x} -- {shown}", time.sec as u32, time.nsec << 2));
}
