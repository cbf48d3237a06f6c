//! Creation of files, directories, links and special files.

use vfs::names::check_name;
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, Result, SpecialFile};

use super::{Directories, Entry, LinkEffects, find_named, taken_first};
use crate::Outcome;
use crate::inode::{InodeHandle, Inodes, load_dir};

/// A format's creation of inodes.
pub trait MakeInodes: Inodes {
    /// Returns the maximum length of a symbolic link's target in bytes.
    fn symlink_len_max(&self) -> usize;

    /// Checks the format's own rules for a new inode in a directory, and prepares what must be done before the
    /// operation.
    ///
    /// # Errors
    /// The reason why the inode is refused.
    fn admit_new(&self, dir: &Self::Inode, file_type: FileType, new: &NewInode) -> Result<()>;

    /// Allocates an inode for an entry of `parent`, with the requested and inherited attributes. It has one link, or
    /// two if it is a directory, and no contents.
    ///
    /// # Errors
    /// `NoInodes`, `NoSpace`; read errors.
    fn new_inode(
        op: &mut Self::Op<'_>,
        parent: &Self::Inode,
        file_type: FileType,
        new: &NewInode,
    ) -> Outcome<Self::Inode>;

    /// Like [`MakeInodes::new_inode`], for a whiteout: the character device 0:0.
    ///
    /// # Errors
    /// Returns the errors of [`MakeInodes::new_inode`].
    fn new_whiteout(
        op: &mut Self::Op<'_>,
        dir: &Self::Inode,
        new: &NewInode,
    ) -> Outcome<Self::Inode>;

    /// Sets the device number; 0:0 for inodes that are not devices.
    ///
    /// # Errors
    /// `Invalid` if the format cannot store it.
    fn set_device(inode: &mut Self::Inode, device: DeviceNumber) -> Result<()>;

    /// Initialises a new inode as an empty regular file.
    fn init_file(op: &mut Self::Op<'_>, file: &mut Self::Inode);

    /// Initialises a new inode as an empty directory in `parent`.
    ///
    /// # Errors
    /// `NoSpace`; allocation errors.
    fn init_dir(op: &mut Self::Op<'_>, dir: &mut Self::Inode, parent: Ino) -> Outcome<()>;

    /// Initialises a new inode as a symbolic link to `target`, which has 1 to [`MakeInodes::symlink_len_max`] bytes.
    ///
    /// # Errors
    /// `NoSpace`; allocation errors.
    fn init_symlink(op: &mut Self::Op<'_>, link: &mut Self::Inode, target: &[u8]) -> Outcome<()>;

    /// Stages a new inode, to be written when the operation commits.
    fn stage_new(op: &mut Self::Op<'_>, inode: Self::Inode);
}

/// Creates an empty regular file, as [`vfs::FileSystem::create`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub fn create<F>(fs: &F, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + LinkEffects,
{
    create_with(fs, (dir, name), FileType::Regular, new, |op, file| {
        F::init_file(op, file);
        Ok(())
    })
}

/// Creates an empty directory, as [`vfs::FileSystem::mkdir`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub fn mkdir<F>(fs: &F, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + LinkEffects,
{
    let fill = |op: &mut F::Op<'_>, child: &mut F::Inode| F::init_dir(op, child, dir);
    create_with(fs, (dir, name), FileType::Directory, new, fill)
}

/// Creates a device, FIFO or socket, as [`vfs::FileSystem::mknod`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn mknod<F>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    file: SpecialFile,
    new: &NewInode,
) -> Result<Ino>
where
    F: Directories + MakeInodes + LinkEffects,
{
    let (file_type, device) = match file {
        SpecialFile::CharDevice(device) => (FileType::CharDevice, device),
        SpecialFile::BlockDevice(device) => (FileType::BlockDevice, device),
        SpecialFile::Fifo => (FileType::Fifo, DeviceNumber::default()),
        SpecialFile::Socket => (FileType::Socket, DeviceNumber::default()),
    };
    create_with(fs, (dir, name), file_type, new, |_, child| Ok(F::set_device(child, device)?))
}

/// Creates a symbolic link, as [`vfs::FileSystem::symlink`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub fn symlink<F>(fs: &F, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + LinkEffects,
{
    if target.is_empty() || target.contains(&0) {
        return Err(Error::Invalid("a link's target must not be empty or contain NUL"));
    }
    if target.len() > fs.symlink_len_max() {
        return Err(Error::NameTooLong);
    }
    let new = NewInode { permissions: 0o777, ..*new };
    let fill = |op: &mut F::Op<'_>, link: &mut F::Inode| F::init_symlink(op, link, target);
    create_with(fs, (dir, name), FileType::Symlink, &new, fill)
}

/// Creates an open regular file without a name near `dir`, as [`vfs::FileSystem::create_unlinked`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn create_unlinked<F>(fs: &F, dir: Ino, new: &NewInode) -> Result<Ino>
where
    F: MakeInodes + LinkEffects,
{
    fs.mode().check_writable()?;
    let parent = {
        let _lock = fs.locks().shared(dir);
        load_dir(fs, dir)?
    };
    parent.protection().check_addition()?;
    fs.admit_new(&parent, FileType::Regular, new)?;
    let ino = fs.atomically(|op| {
        let mut file = F::new_inode(op, &parent, FileType::Regular, new)?;
        file.set_links(0);
        F::init_file(op, &mut file);
        F::add_orphan(op, &file);
        let ino = file.ino();
        F::stage_new(op, file);
        Ok(ino)
    })?;
    fs.opens().open(ino)?;
    Ok(ino)
}

/// Creates an inode, initialises it with `fill`, and adds it to a directory.
fn create_with<F>(
    fs: &F,
    (dir, name): (Ino, &[u8]),
    file_type: FileType,
    new: &NewInode,
    fill: impl Fn(&mut F::Op<'_>, &mut F::Inode) -> Outcome<()>,
) -> Result<Ino>
where
    F: Directories + MakeInodes + LinkEffects,
{
    fs.mode().check_writable()?;
    check_name(name)?;
    let _lock = fs.locks().exclusive(&[dir]);
    let before = load_dir(fs, dir)?;
    // Directories often exist already (`mkdir -p`). Files are usually new, and adding the entry detects an existing
    // name.
    if file_type == FileType::Directory && find_named(fs, &before, name)?.is_some() {
        return Err(Error::Exists);
    }
    let admitted = before.protection().check_addition();
    let made = admitted.and_then(|()| fs.admit_new(&before, file_type, new)).and_then(|()| {
        fs.atomically(|op| {
            let mut parent = before.clone();
            if file_type == FileType::Directory {
                fs.add_subdirectory(&mut parent)?;
            }
            let mut child = F::new_inode(op, &parent, file_type, new)?;
            fill(op, &mut child)?;
            F::add_entry(op, &mut parent, Entry { name, ino: child.ino(), file_type })?;
            F::add_parent(op, &mut child, (&before, name))?;
            parent.touch(new.parent_time);
            F::stage_dir(op, parent, &before)?;
            let ino = child.ino();
            F::stage_new(op, child);
            Ok(ino)
        })
    });
    taken_first(fs, (&before, name), made)
}
