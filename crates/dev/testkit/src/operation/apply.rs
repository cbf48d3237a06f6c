//! Execution of steps on a file system.

use std::mem::discriminant;

use vfs::{Error, FileSystem, FileType, Ino, NewInode, Result, SetAttributes, Timestamp};

use super::{FileTarget, NumberedOperation, Operation, Path, SLOTS};

/// Time of the first step, in seconds since the epoch.
const TIME_FIRST: i64 = 1_700_000_000;

/// Names of extended attributes. `user.` attributes are only for regular files and directories.
const XATTR_NAMES: [&[u8]; 5] =
    [b"user.a", b"user.a longer name than the others have", b"trusted.a", b"security.x", b"user.b"];
const XATTR_NAME_ANYWHERE: &[u8] = b"trusted.user";

/// State of a file system's user between steps: the open files.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Start of paths, if it is not the root.
    top: Option<Ino>,
    slots: [Option<Ino>; SLOTS],
}

impl Session {
    /// Creates a session without open files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a session whose paths start at a directory.
    pub fn below(top: Ino) -> Self {
        Self { top: Some(top), ..Self::default() }
    }

    /// Returns the open inode of each slot.
    pub fn slots(&self) -> &[Option<Ino>; SLOTS] {
        &self.slots
    }

    /// Sets the root of a new file system to the same attributes for all file systems, without extended attributes.
    ///
    /// # Errors
    /// Returns the errors of `set_attributes` and `remove_xattr`.
    pub fn prepare(fs: &dyn FileSystem) -> Result<()> {
        Self::prepare_directory(fs, fs.root())
    }

    /// Does the same for another directory.
    ///
    /// # Errors
    /// Returns the errors of `set_attributes` and `remove_xattr`.
    pub fn prepare_directory(fs: &dyn FileSystem, dir: Ino) -> Result<()> {
        let mut names = Vec::new();
        fs.list_xattrs(dir, &mut |name| names.push(name.to_vec()))?;
        names.iter().try_for_each(|name| fs.remove_xattr(dir, name))?;
        let time = Some(Timestamp { sec: TIME_FIRST, nsec: 0 });
        let change = SetAttributes {
            permissions: Some(0o755),
            uid: Some(0),
            gid: Some(0),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            ..SetAttributes::default()
        };
        fs.set_attributes(dir, &change)
    }

    /// Executes a step. An empty name or an unsuitable slot is an error without a call.
    ///
    /// # Errors
    /// Returns the errors of the file system's method.
    pub fn apply(&mut self, fs: &dyn FileSystem, step: &NumberedOperation) -> Result<()> {
        match &step.operation {
            Operation::CreateUnlinked { dir, slot } => {
                self.check_free(*slot)?;
                let dir = self.find(fs, dir)?;
                self.slots[*slot] = Some(fs.create_unlinked(dir, &step.new_inode())?);
                Ok(())
            }
            Operation::Open { path, slot } => {
                self.check_free(*slot)?;
                let ino = self.find(fs, path)?;
                fs.open(ino)?;
                self.slots[*slot] = Some(ino);
                Ok(())
            }
            Operation::Close { slot } => {
                fs.close(self.target(fs, &FileTarget::Slot(*slot))?)?;
                self.slots[*slot] = None;
                Ok(())
            }
            Operation::Sync => fs.sync(),
            Operation::Trim => fs.trim(0..u64::MAX, 0).map(drop),
            _ => self.apply_to_names(fs, step),
        }
    }

    /// Closes everything.
    ///
    /// # Errors
    /// The first error of `close`. All slots are free even then.
    pub fn close_all(&mut self, fs: &dyn FileSystem) -> Result<()> {
        let mut outcome = Ok(());
        for ino in std::mem::take(&mut self.slots).into_iter().flatten() {
            outcome = outcome.and(fs.close(ino));
        }
        outcome
    }

    /// Returns the inode of a target.
    ///
    /// # Errors
    /// Returns the errors of `lookup`; `Invalid` for an empty slot.
    pub fn target(&self, fs: &dyn FileSystem, target: &FileTarget) -> Result<Ino> {
        match target {
            FileTarget::Path(path) => self.find(fs, path),
            FileTarget::Slot(slot) => {
                self.slots[*slot].ok_or(Error::Invalid("nothing is open there"))
            }
        }
    }

    /// Returns the inode of a path.
    fn find(&self, fs: &dyn FileSystem, path: &Path) -> Result<Ino> {
        let names = path.0.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let top = self.top.unwrap_or(fs.root());
        names.into_iter().try_fold(top, |dir, name| fs.lookup(dir, name))
    }

    /// Returns the directory of a path, and its last name.
    fn find_parent<'p>(&self, fs: &dyn FileSystem, path: &'p Path) -> Result<(Ino, &'p [u8])> {
        let path = &path.0[..];
        let split = path.iter().rposition(|&byte| byte == b'/');
        let (dir, name) = split.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        let dir = self.find(fs, &Path(dir.to_vec()))?;
        if fs.attributes(dir)?.file_type != FileType::Directory {
            return Err(Error::NotADirectory);
        }
        Ok((dir, name))
    }

    fn check_free(&self, slot: usize) -> Result<()> {
        match self.slots[slot] {
            Some(_) => Err(Error::Invalid("the slot is taken")),
            None => Ok(()),
        }
    }

    fn apply_to_names(&self, fs: &dyn FileSystem, step: &NumberedOperation) -> Result<()> {
        let (new, time) = (step.new_inode(), step.time());
        match &step.operation {
            Operation::Create { path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.create(dir, name, &new).map(drop)
            }
            Operation::Mkdir { path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.mkdir(dir, name, &new).map(drop)
            }
            Operation::Mknod { path, file } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.mknod(dir, name, *file, &new).map(drop)
            }
            Operation::Symlink { path, target_len } => {
                let (dir, name) = self.find_parent(fs, path)?;
                // Links always have all permissions.
                let new = NewInode { permissions: 0o777, ..new };
                fs.symlink(dir, name, &step.link_target(*target_len), &new).map(drop)
            }
            Operation::Link { target, path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.link(self.target(fs, target)?, dir, name, time)
            }
            Operation::LinkOver { target, path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.link_over(self.target(fs, target)?, dir, name, time)
            }
            Operation::Unlink { path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.unlink(dir, name, time)
            }
            Operation::Rmdir { path } => {
                let (dir, name) = self.find_parent(fs, path)?;
                fs.rmdir(dir, name, time)
            }
            Operation::Rename { from, to, mode } => {
                let (from, to) = (self.find_parent(fs, from)?, self.find_parent(fs, to)?);
                fs.rename(from, to, *mode, time)
            }
            Operation::RenameWithWhiteout { from, to, mode } => {
                let (from, to) = (self.find_parent(fs, from)?, self.find_parent(fs, to)?);
                fs.rename_with_whiteout(from, to, *mode, &new, time)
            }
            _ => self.apply_to_inode(fs, step),
        }
    }

    fn apply_to_inode(&self, fs: &dyn FileSystem, step: &NumberedOperation) -> Result<()> {
        let target = |target| self.target(fs, target);
        match &step.operation {
            Operation::Write { target: file, offset, len } => {
                fs.write(target(file)?, *offset, &step.bytes(*len), None)
            }
            Operation::Allocate { target: file, offset, len, mode } => {
                fs.allocate(target(file)?, *offset, *len, *mode)
            }
            Operation::Truncate { target: file, size } => fs.truncate(target(file)?, *size, None),
            Operation::Clone { from, from_offset, to, to_offset, len } => {
                let (from, to) = ((target(from)?, *from_offset), (target(to)?, *to_offset));
                fs.clone_range(from, to, *len, step.time())
            }
            Operation::Exchange { one, one_offset, two, two_offset, len } => {
                let (one, two) = ((target(one)?, *one_offset), (target(two)?, *two_offset));
                fs.exchange_range(one, two, *len, step.time())
            }
            Operation::SetAttributes { target: file, owner, times } => {
                fs.set_attributes(target(file)?, &step.change(*owner, *times))
            }
            Operation::SetXattr { target: file, name, len } => {
                let ino = target(file)?;
                fs.set_xattr(ino, xattr_name(fs, ino, *name)?, &step.bytes(*len))
            }
            Operation::RemoveXattr { target: file, name } => {
                let ino = target(file)?;
                fs.remove_xattr(ino, xattr_name(fs, ino, *name)?)
            }
            Operation::Fsync { target: file } => fs.fsync(target(file)?),
            other => unreachable!("{other:?} was done before"),
        }
    }
}

impl NumberedOperation {
    fn time(&self) -> Option<Timestamp> {
        // Some callers do not set times.
        (self.number % 8 != 7).then(|| self.timestamp())
    }

    fn timestamp(&self) -> Timestamp {
        let nsec = (self.number * 1_000_003 % 1_000_000_000) as u32;
        Timestamp { sec: TIME_FIRST + self.number as i64, nsec }
    }

    fn new_inode(&self) -> NewInode {
        NewInode {
            permissions: (self.number * 0o123 % 0o10_000) as u16,
            uid: (self.number % 5) as u32 * 40_000,
            gid: (self.number % 3) as u32 * 70_000,
            time: self.timestamp(),
            parent_time: self.time(),
        }
    }

    fn change(&self, owner: bool, times: bool) -> SetAttributes {
        let new = self.new_inode();
        let time = times.then_some(new.time);
        SetAttributes {
            permissions: (!times).then_some(new.permissions),
            uid: owner.then_some(new.uid),
            gid: owner.then_some(new.gid),
            atime: time,
            mtime: time,
            ctime: Some(new.time),
            ..SetAttributes::default()
        }
    }

    fn link_target(&self, len: usize) -> Vec<u8> {
        self.bytes(len).iter().map(|byte| b'a' + byte % 26).collect()
    }
}

/// The kernel permits `user.` attributes on regular files and directories only.
fn xattr_name(fs: &dyn FileSystem, ino: Ino, number: usize) -> Result<&'static [u8]> {
    let name = XATTR_NAMES[number % XATTR_NAMES.len()];
    let file_type = fs.attributes(ino)?.file_type;
    let takes_any = matches!(file_type, FileType::Regular | FileType::Directory);
    Ok(if name.starts_with(b"user.") && !takes_any { XATTR_NAME_ANYWHERE } else { name })
}

/// Returns whether two file systems returned the same result. If several reasons forbid a rename, any of them is
/// accepted.
pub fn same_outcome(step: &NumberedOperation, expected: &Result<()>, found: &Result<()>) -> bool {
    let is_choice = |error: &Error| {
        let is_rename = matches!(
            step.operation,
            Operation::Rename { .. } | Operation::RenameWithWhiteout { .. }
        );
        let refused = matches!(
            error,
            Error::NotEmpty
                | Error::IsADirectory
                | Error::NotADirectory
                | Error::Invalid(_)
                | Error::Exists
        );
        is_rename && refused
    };
    match (expected, found) {
        (Ok(()), Ok(())) => true,
        (Err(a), Err(b)) => discriminant(a) == discriminant(b) || (is_choice(a) && is_choice(b)),
        _ => false,
    }
}
