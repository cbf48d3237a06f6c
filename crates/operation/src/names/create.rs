//! Making files, directories, links and special files.

use vfs::names::check_name;
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, Result, SpecialFile};

use super::{Directories, Entry, Links, find_named, taken_first};
use crate::Outcome;
use crate::inode::{InodeHandle, Inodes, load_dir};

/// How a format makes inodes.
pub trait MakeInodes: Inodes {
    /// Longest target of a symbolic link in bytes.
    fn symlink_len_max(&self) -> usize;

    /// Whether a directory takes a new inode, as far as the format has rules of its own; and prepares what
    /// an operation cannot.
    ///
    /// # Errors
    /// Why it does not.
    fn admit_new(&self, dir: &Self::Inode, file_type: FileType, new: &NewInode) -> Result<()>;

    /// Takes a free inode for something in `parent`: with what its maker asks for, and what it inherits.
    /// It has one link, or two if it is a directory, and no contents.
    ///
    /// # Errors
    /// `NoInodes`, `NoSpace`; what reading brings.
    fn new_inode(
        op: &mut Self::Op<'_>,
        parent: &Self::Inode,
        file_type: FileType,
        new: &NewInode,
    ) -> Outcome<Self::Inode>;

    /// As [`MakeInodes::new_inode`], for a whiteout: the character device 0:0.
    ///
    /// # Errors
    /// As [`MakeInodes::new_inode`].
    fn new_whiteout(
        op: &mut Self::Op<'_>,
        dir: &Self::Inode,
        new: &NewInode,
    ) -> Outcome<Self::Inode>;

    /// Sets the number of a device; 0:0 for what is none.
    ///
    /// # Errors
    /// `Invalid` if the format cannot store it.
    fn set_device(inode: &mut Self::Inode, device: DeviceNumber) -> Result<()>;

    /// Makes a new inode an empty regular file.
    fn init_file(op: &mut Self::Op<'_>, file: &mut Self::Inode);

    /// Makes a new inode an empty directory in `parent`.
    ///
    /// # Errors
    /// `NoSpace`; what allocating brings.
    fn init_dir(op: &mut Self::Op<'_>, dir: &mut Self::Inode, parent: Ino) -> Outcome<()>;

    /// Makes a new inode a symbolic link to `target`, 1 to [`MakeInodes::symlink_len_max`] bytes.
    ///
    /// # Errors
    /// `NoSpace`; what allocating brings.
    fn init_symlink(op: &mut Self::Op<'_>, link: &mut Self::Inode, target: &[u8]) -> Outcome<()>;

    /// Writes a new inode when the operation commits.
    fn stage_new(op: &mut Self::Op<'_>, inode: Self::Inode);
}

/// Makes an empty regular file, as [`vfs::FileSystem::create`] says.
///
/// # Errors
/// What that method returns.
pub fn create<F>(fs: &F, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + Links,
{
    create_with(fs, (dir, name), FileType::Regular, new, |op, file| {
        F::init_file(op, file);
        Ok(())
    })
}

/// Makes an empty directory, as [`vfs::FileSystem::mkdir`] says.
///
/// # Errors
/// What that method returns.
pub fn mkdir<F>(fs: &F, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + Links,
{
    let fill = |op: &mut F::Op<'_>, child: &mut F::Inode| F::init_dir(op, child, dir);
    create_with(fs, (dir, name), FileType::Directory, new, fill)
}

/// Makes a device, fifo or socket, as [`vfs::FileSystem::mknod`] says.
///
/// # Errors
/// What that method returns.
pub fn mknod<F>(fs: &F, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + Links,
{
    let (file_type, device) = match file {
        SpecialFile::CharDevice(device) => (FileType::CharDevice, device),
        SpecialFile::BlockDevice(device) => (FileType::BlockDevice, device),
        SpecialFile::Fifo => (FileType::Fifo, DeviceNumber::default()),
        SpecialFile::Socket => (FileType::Socket, DeviceNumber::default()),
    };
    create_with(fs, (dir, name), file_type, new, |_, child| Ok(F::set_device(child, device)?))
}

/// Makes a symbolic link, as [`vfs::FileSystem::symlink`] says.
///
/// # Errors
/// What that method returns.
pub fn symlink<F>(fs: &F, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino>
where
    F: Directories + MakeInodes + Links,
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

/// Makes a regular file without a name near `dir`, open once, as [`vfs::FileSystem::create_unlinked`]
/// says.
///
/// # Errors
/// What that method returns.
pub fn create_unlinked<F>(fs: &F, dir: Ino, new: &NewInode) -> Result<Ino>
where
    F: MakeInodes + Links,
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

/// Makes an inode, lets `fill` give it its contents, and enters it into a directory.
fn create_with<F>(
    fs: &F,
    (dir, name): (Ino, &[u8]),
    file_type: FileType,
    new: &NewInode,
    fill: impl Fn(&mut F::Op<'_>, &mut F::Inode) -> Outcome<()>,
) -> Result<Ino>
where
    F: Directories + MakeInodes + Links,
{
    fs.mode().check_writable()?;
    check_name(name)?;
    let _lock = fs.locks().exclusive(&[dir]);
    let before = load_dir(fs, dir)?;
    // Directories are often there already (`mkdir -p`). Files mostly are new, and entering the name finds
    // out if one is not.
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
