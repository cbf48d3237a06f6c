//! The interface of the model: each method takes the lock and calls the implementation.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use vfs::{
    AllocateMode, Attributes, Cookie, DeviceNumber, DirEntry, Error, FileSystem, FileType, Ino,
    MappedExtent, NAME_LEN_MAX, NewInode, RenameMode, Result, SetAttributes, SpecialFile, StatFs,
    Timestamp,
};

use super::Model;
use super::state::{Body, COOKIE_FIRST, Comparison, FileBlocks, ModelDirectory, ModelState, ROOT};

/// Maximum number of blocks and inodes, for [`StatFs`]; not enforced.
const TOTAL: u64 = 1 << 40;

fn set<T: Copy>(value: &mut T, change: Option<T>) {
    *value = change.unwrap_or(*value);
}

impl FileSystem for Model {
    fn root(&self) -> Ino {
        ROOT
    }

    fn folds_names(&self) -> bool {
        self.state.lock().comparison != Comparison::Exact
    }

    fn folded_name<'n>(&self, dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        let state = self.state.lock();
        state.directory(dir)?;
        Ok(Cow::Owned(state.comparison.key(name)))
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = self.state.lock();
        let inodes = state.inodes.len() as u64;
        Ok(StatFs {
            block_size: state.block_bytes as u32,
            blocks: TOTAL,
            blocks_free: TOTAL,
            blocks_available: TOTAL,
            blocks_for_contents: TOTAL,
            inodes: TOTAL,
            inodes_free: TOTAL - inodes,
            name_len_max: NAME_LEN_MAX as u32,
        })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let state = self.state.lock();
        let directory = state.directory(dir)?;
        match name {
            b"." => Ok(dir),
            b".." => Ok(directory.parent),
            _ => directory.get(name).ok_or(Error::NotFound),
        }
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.state.lock().inode(ino)?.attributes)
    }

    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        let mut state = self.state.lock();
        let attributes = &mut state.inode_mut(ino)?.attributes;
        set(&mut attributes.permissions, change.permissions);
        set(&mut attributes.uid, change.uid);
        set(&mut attributes.gid, change.gid);
        set(&mut attributes.atime, change.atime);
        set(&mut attributes.mtime, change.mtime);
        set(&mut attributes.ctime, change.ctime);
        attributes.crtime = change.crtime.or(attributes.crtime);
        Ok(())
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let body = Body::Regular(FileBlocks::new());
        self.state.lock().make(dir, name, new, FileType::Regular, body)
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let state: &mut ModelState = &mut self.state.lock();
        let body = Body::Directory(ModelDirectory::new(dir, state.comparison));
        state.make(dir, name, new, FileType::Directory, body)
    }

    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino> {
        let (file_type, device) = match file {
            SpecialFile::CharDevice(device) => (FileType::CharDevice, device),
            SpecialFile::BlockDevice(device) => (FileType::BlockDevice, device),
            SpecialFile::Fifo => (FileType::Fifo, DeviceNumber::default()),
            SpecialFile::Socket => (FileType::Socket, DeviceNumber::default()),
        };
        let state: &mut ModelState = &mut self.state.lock();
        let ino = state.make(dir, name, new, file_type, Body::Special)?;
        state.inode_mut(ino)?.attributes.device = device;
        Ok(ino)
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("a symbolic link's target is not empty and has no NUL"));
        }
        let mut state = self.state.lock();
        if target.len() as u64 >= state.block_bytes {
            return Err(Error::NameTooLong);
        }
        let body = Body::Symlink(target.to_vec());
        let ino = state.make(dir, name, new, FileType::Symlink, body)?;
        state.inode_mut(ino)?.attributes.size = target.len() as u64;
        Ok(ino)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.state.lock().inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid("this is not a symbolic link")),
        }
    }

    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.state.lock().make_unlinked(dir, new)
    }

    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.state.lock().unlink(dir, name, time)
    }

    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.state.lock().rmdir(dir, name, time)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.state.lock().rename(from, to, mode, time)
    }

    fn rename_with_whiteout(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        vfs::names::check_whiteout(mode, Some(whiteout))?;
        let state: &mut ModelState = &mut self.state.lock();
        if mode == RenameMode::Replace && state.is_one_entry(from, to) {
            return Ok(());
        }
        // The whiteout takes the entry's stored spelling.
        let stored = state.stored(from.0, from.1);
        state.rename(from, to, mode, time)?;
        // If both names lead to the same inode, nothing has happened.
        if state.entry(from.0, from.1).is_ok() {
            return Ok(());
        }
        let whiteout = NewInode { parent_time: None, ..*whiteout };
        state.make(from.0, &stored?, &whiteout, FileType::CharDevice, Body::Special).map(drop)
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.state.lock().inode_mut(ino)?.open_count += 1;
        Ok(())
    }

    fn close(&self, ino: Ino) -> Result<()> {
        let mut state = self.state.lock();
        let inode = state.inode_mut(ino)?;
        if inode.open_count == 0 {
            return Err(Error::Invalid("it is not open"));
        }
        inode.open_count -= 1;
        state.drop_if_unused(ino);
        Ok(())
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        state.inode_mut(ino)?.xattrs.remove(name).map(drop).ok_or(Error::NoAttribute)
    }

    fn trim(&self, _range: Range<u64>, _len_min: u64) -> Result<u64> {
        Ok(0)
    }

    fn fsync(&self, ino: Ino) -> Result<()> {
        self.state.lock().inode(ino).map(drop)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.state.lock().link(ino, dir, name, time)
    }

    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.state.lock().link_over(ino, dir, name, time)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.state.lock().read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.state.lock().write(ino, offset, data, time)
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        self.state.lock().allocate(ino, offset, len, mode)
    }

    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()> {
        self.state.lock().truncate(ino, size, time)
    }

    fn can_clone(&self) -> bool {
        true
    }

    fn exchange_range(
        &self,
        one: (Ino, u64),
        two: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.state.lock().exchange_range(one, two, len, time)
    }

    fn clone_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.state.lock().clone_range(from, to, len, time)
    }

    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        // Collected first, so that the callback may use the file system.
        let mut runs = Vec::new();
        self.state.lock().extent_map(ino, offset, len, &mut |run| {
            runs.push(run);
            ControlFlow::Continue(())
        })?;
        let _ = runs.into_iter().try_for_each(each);
        Ok(())
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // Copied, so that the callback may use the file system.
        let (parent, entries) = {
            let state = self.state.lock();
            let directory = state.directory(dir)?;
            let rest = directory.by_cookie.range(from.0..);
            let rest = rest.filter_map(|(&cookie, name)| {
                let ino = directory.get(name)?;
                let file_type = state.inode(ino).ok().map(|inode| inode.attributes.file_type);
                Some((cookie, name.clone(), ino, file_type))
            });
            (directory.parent, rest.collect::<Vec<_>>())
        };
        let file_type = Some(FileType::Directory);
        let dots = [(1, b".".to_vec(), dir, file_type), (2, b"..".to_vec(), parent, file_type)];
        let dots = dots.into_iter().filter(|(cookie, ..)| *cookie > from.0);
        for (cookie, name, ino, file_type) in dots.chain(entries) {
            let next = Cookie(if cookie < COOKIE_FIRST { cookie } else { cookie + 1 });
            if each(DirEntry { name: &name, ino, file_type, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().inode(ino)?.xattrs.get(name).cloned().ok_or(Error::NoAttribute)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.state.lock().inode_mut(ino)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.state.lock().inode(ino)?.xattrs.keys().for_each(|name| each(name));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
