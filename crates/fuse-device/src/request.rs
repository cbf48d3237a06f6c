//! A request, taken apart.

use std::fmt;

use zerocopy::FromBytes;

use crate::abi::{
    self, CopyFileRangeIn, CreateIn, FallocateIn, ForgetOne, FsyncIn, GetattrIn, InHeader, InitIn,
    IoctlIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, SetattrIn, SetxattrIn, StatxIn,
    WriteIn,
};

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who asks, and of which node.
    pub header: InHeader,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is asked of the node of the header. Names have neither NUL nor `/`; they may be longer than a
/// file system allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<'a> {
    /// INIT.
    Init(InitIn),
    /// DESTROY: the last request, from mounts of block devices only.
    Destroy,
    /// INTERRUPT of another request; not answered.
    Interrupt,
    /// LOOKUP.
    Lookup { name: &'a [u8] },
    /// FORGET; not answered.
    Forget { nlookup: u64 },
    /// BATCH_FORGET; not answered.
    BatchForget { nodes: &'a [ForgetOne] },
    /// GETATTR.
    Getattr(GetattrIn),
    /// STATX.
    Statx(StatxIn),
    /// SETATTR.
    Setattr(SetattrIn),
    /// ACCESS.
    Access { mask: u32 },
    /// READLINK.
    Readlink,
    /// SYMLINK.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// MKNOD.
    Mknod { args: MknodIn, name: &'a [u8] },
    /// MKDIR.
    Mkdir { args: MkdirIn, name: &'a [u8] },
    /// UNLINK.
    Unlink { name: &'a [u8] },
    /// RMDIR.
    Rmdir { name: &'a [u8] },
    /// RENAME, or RENAME2 with the `flags` of renameat2(2).
    Rename { newdir: u64, flags: u32, name: &'a [u8], newname: &'a [u8] },
    /// LINK: a new name in this node for another one.
    Link { oldnodeid: u64, name: &'a [u8] },
    /// OPEN.
    Open(OpenIn),
    /// CREATE.
    Create { args: CreateIn, name: &'a [u8] },
    /// TMPFILE: a file without a name, in this directory's file system.
    Tmpfile { args: CreateIn },
    /// READ.
    Read(ReadIn),
    /// WRITE.
    Write { args: WriteIn, data: &'a [u8] },
    /// FLUSH: a descriptor was closed.
    Flush,
    /// RELEASE: the last descriptor was closed.
    Release(ReleaseIn),
    /// FSYNC.
    Fsync(FsyncIn),
    /// FALLOCATE.
    Fallocate(FallocateIn),
    /// LSEEK.
    Lseek(LseekIn),
    /// COPY_FILE_RANGE; `wide` if it is COPY_FILE_RANGE_64.
    CopyFileRange { args: CopyFileRangeIn, wide: bool },
    /// OPENDIR.
    Opendir(OpenIn),
    /// READDIR.
    Readdir(ReadIn),
    /// READDIRPLUS.
    Readdirplus(ReadIn),
    /// RELEASEDIR.
    Releasedir(ReleaseIn),
    /// FSYNCDIR.
    Fsyncdir(FsyncIn),
    /// STATFS.
    Statfs,
    /// SYNCFS.
    Syncfs,
    /// SETXATTR.
    Setxattr { args: SetxattrIn, name: &'a [u8], value: &'a [u8] },
    /// GETXATTR; `size` 0 asks for the length.
    Getxattr { size: u32, name: &'a [u8] },
    /// LISTXATTR; `size` 0 asks for the length.
    Listxattr { size: u32 },
    /// REMOVEXATTR.
    Removexattr { name: &'a [u8] },
    /// IOCTL.
    Ioctl { args: IoctlIn, data: &'a [u8] },
    /// A request that is not described here.
    Other { opcode: u32 },
}

/// A request that is not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed FUSE request (opcode {opcode}): {what}")]
pub struct Malformed {
    /// Its number, if it has one.
    pub opcode: u32,
    /// What is wrong.
    pub what: &'static str,
}

impl<'a> Request<'a> {
    /// Takes a message apart as it is read from the device.
    ///
    /// # Errors
    /// If it is not what the protocol says.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed { opcode: 0, what: "shorter than its header" };
        let (header, body) = InHeader::read_from_prefix(message).map_err(|_| short)?;
        let _ = (header, body);
        todo!()
    }
}
