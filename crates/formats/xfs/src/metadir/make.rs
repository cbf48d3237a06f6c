//! Making files and directories of the tree.

use operations::Outcome;
use operations::names::Entry;
use vfs::{FileType, NewInode, Timestamp};

use crate::format::inode::Time;
use crate::format::metafile::MetafileType;
use crate::inode::Handle;
use crate::op::Op;
use crate::xattr::parent::NamedLink;

impl Op<'_> {
    /// Makes an empty file or directory of the metadata directory tree in `parent`. The caller stages both.
    pub(crate) fn make_metafile(
        &mut self,
        parent: &mut Handle,
        name: &[u8],
        metafile_type: MetafileType,
        time: Timestamp,
    ) -> Outcome<Handle> {
        let is_dir = metafile_type == MetafileType::Directory;
        let file_type = if is_dir { FileType::Directory } else { FileType::Regular };
        let mut handle = self.allocate_inode(parent, is_dir)?;
        let new = NewInode { time, ..NewInode::default() };
        self.fs.set_new(&mut handle.inode, file_type, &new);
        handle.inode.set_metadata(metafile_type);
        if is_dir {
            self.init_dir(&mut handle, parent.ino())?;
        }
        let generation = parent.inode.generation();
        let dir = parent.ino();
        self.add_parent(&mut handle, NamedLink { dir, generation, name })?;
        self.add_entry(parent, Entry { name, ino: handle.ino(), file_type })?;
        for which in [Time::Modify, Time::Change] {
            parent.inode.set_time(which, time);
        }
        Ok(handle)
    }
}
