//! Parsing of requests.
//!
//! A request is a header, a structure that depends on the opcode, and names that end in NUL, or
//! data. Nothing is trusted before it is checked: all lengths are consistent, every name ends, and
//! no bytes are left over.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::opcode as op;
use crate::abi::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn,
    ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InHeader, InitIn, InterruptIn, IoctlIn, LinkIn,
    LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn,
    SetxattrIn, StatxIn, SyncfsIn, WriteIn,
};

/// Size in bytes of INIT's structure before protocol 7.36.
const INIT_IN_LEN_MIN: usize = 16;
/// Unit of [`InHeader::total_extlen`] in bytes.
const EXTENSION_UNIT: usize = 8;

/// A request from the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Header with caller and node.
    pub header: InHeader,
    /// Requested operation.
    pub operation: Operation<'a>,
}

/// An operation on the node in the header. Names are not empty and contain no NUL. File names
/// contain no `/`, but may be longer than a file system allows.
// The fields would only repeat their names.
#[allow(missing_docs)]
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
    /// LINK: a new name in this directory for the node `oldnodeid`.
    Link { oldnodeid: u64, name: &'a [u8] },
    /// OPEN.
    Open(OpenIn),
    /// CREATE.
    Create { args: CreateIn, name: &'a [u8] },
    /// TMPFILE: an unnamed file in this directory's file system.
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
    /// COPY_FILE_RANGE; `wide` for COPY_FILE_RANGE_64.
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
    /// GETXATTR; `size` 0 requests only the length.
    Getxattr { size: u32, name: &'a [u8] },
    /// LISTXATTR; `size` 0 requests only the length.
    Listxattr { size: u32 },
    /// REMOVEXATTR.
    Removexattr { name: &'a [u8] },
    /// IOCTL.
    Ioctl { args: IoctlIn, data: &'a [u8] },
    /// BMAP: returns the device block of a file's block. The kernel sends it only for mounts of
    /// block devices.
    Bmap(BmapIn),
    /// An operation that this enum does not describe.
    Other { opcode: u32 },
}

/// A request that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed FUSE request (opcode {opcode}): {what}")]
pub struct Malformed {
    /// Request number, or 0 if there is none.
    pub opcode: u32,
    /// Description of the violation.
    pub what: &'static str,
}

impl<'a> Request<'a> {
    /// Parses a message as read from the device. It must be 8-byte aligned for
    /// [`Operation::BatchForget`].
    ///
    /// # Errors
    /// If the message violates the protocol.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed { opcode: 0, what: "shorter than its header" };
        let (header, body) = InHeader::read_from_prefix(message).map_err(|_| short)?;
        if header.len as usize != message.len() {
            return Err(Malformed { opcode: header.opcode, what: "its length field is wrong" });
        }
        let (args, payload) = body.split_at(argument_len(header.opcode).min(body.len()));
        Self::from_parts(header, args, payload)
    }

    /// Parses a request whose structure is stored separately from what follows it. `args` may be
    /// longer than the structure; `payload` must have the exact length. The length in the header is
    /// ignored.
    ///
    /// # Errors
    /// If the request violates the protocol.
    pub fn from_parts(header: InHeader, args: &[u8], payload: &'a [u8]) -> Result<Self, Malformed> {
        let extensions_len = usize::from(header.total_extlen) * EXTENSION_UNIT;
        let parsed = match payload.len().checked_sub(extensions_len) {
            Some(len) => operation(header.opcode, Parts { args, payload: &payload[..len] }),
            None => Err("shorter than its extensions"),
        };
        match parsed {
            Ok(operation) => Ok(Self { header, operation }),
            Err(what) => Err(Malformed { opcode: header.opcode, what }),
        }
    }
}

/// Returns the size in bytes of the structure after the header for this request number; 0 if there
/// is none. The structure of INIT may be shorter.
pub(crate) fn argument_len(opcode: u32) -> usize {
    match opcode {
        op::FORGET => size_of::<ForgetIn>(),
        op::GETATTR => size_of::<GetattrIn>(),
        op::SETATTR => size_of::<SetattrIn>(),
        op::MKNOD => size_of::<MknodIn>(),
        op::MKDIR => size_of::<MkdirIn>(),
        op::RENAME => size_of::<RenameIn>(),
        op::RENAME2 => size_of::<Rename2In>(),
        op::LINK => size_of::<LinkIn>(),
        op::OPEN | op::OPENDIR => size_of::<OpenIn>(),
        op::READ | op::READDIR | op::READDIRPLUS => size_of::<ReadIn>(),
        op::WRITE => size_of::<WriteIn>(),
        op::RELEASE | op::RELEASEDIR => size_of::<ReleaseIn>(),
        op::FSYNC | op::FSYNCDIR => size_of::<FsyncIn>(),
        op::SETXATTR => size_of::<SetxattrIn>(),
        op::GETXATTR | op::LISTXATTR => size_of::<GetxattrIn>(),
        op::FLUSH => size_of::<FlushIn>(),
        op::INIT => size_of::<InitIn>(),
        op::ACCESS => size_of::<AccessIn>(),
        op::CREATE | op::TMPFILE => size_of::<CreateIn>(),
        op::INTERRUPT => size_of::<InterruptIn>(),
        op::IOCTL => size_of::<IoctlIn>(),
        op::BMAP => size_of::<BmapIn>(),
        op::BATCH_FORGET => size_of::<BatchForgetIn>(),
        op::FALLOCATE => size_of::<FallocateIn>(),
        op::LSEEK => size_of::<LseekIn>(),
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
        op::SYNCFS => size_of::<SyncfsIn>(),
        op::STATX => size_of::<StatxIn>(),
        _ => 0,
    }
}

/// Returns whether requests with this number have a reply.
pub(crate) fn is_answered(opcode: u32) -> bool {
    !matches!(opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
}

/// Description of a protocol violation.
type Violation = &'static str;

fn operation<'a>(opcode: u32, mut parts: Parts<'_, 'a>) -> Result<Operation<'a>, Violation> {
    use Operation as Op;
    let operation = match opcode {
        op::INIT => return Ok(Op::Init(parts.init()?)),
        op::DESTROY => Op::Destroy,
        op::INTERRUPT => parts.args::<InterruptIn>().map(|_| Op::Interrupt)?,
        op::LOOKUP => Op::Lookup { name: parts.file_name()? },
        op::FORGET => Op::Forget { nlookup: parts.args::<ForgetIn>()?.nlookup },
        op::BATCH_FORGET => Op::BatchForget { nodes: parts.forgotten()? },
        op::GETATTR => Op::Getattr(parts.args()?),
        op::STATX => Op::Statx(parts.args()?),
        op::SETATTR => Op::Setattr(parts.args()?),
        op::ACCESS => Op::Access { mask: parts.args::<AccessIn>()?.mask },
        op::READLINK => Op::Readlink,
        op::SYMLINK => Op::Symlink { name: parts.file_name()?, target: parts.string()? },
        op::MKNOD => Op::Mknod { args: parts.args()?, name: parts.file_name()? },
        op::MKDIR => Op::Mkdir { args: parts.args()?, name: parts.file_name()? },
        op::UNLINK => Op::Unlink { name: parts.file_name()? },
        op::RMDIR => Op::Rmdir { name: parts.file_name()? },
        op::RENAME => parts.rename(0)?,
        op::RENAME2 => parts.rename(parts.args::<Rename2In>()?.flags)?,
        op::LINK => {
            let oldnodeid = parts.args::<LinkIn>()?.oldnodeid;
            Op::Link { oldnodeid, name: parts.file_name()? }
        }
        op::OPEN => Op::Open(parts.args()?),
        op::CREATE => Op::Create { args: parts.args()?, name: parts.file_name()? },
        // Kernels send a name without meaning.
        op::TMPFILE => return Ok(Op::Tmpfile { args: parts.args()? }),
        op::READ => Op::Read(parts.args()?),
        op::WRITE => {
            let args: WriteIn = parts.args()?;
            Op::Write { args, data: parts.data(args.size)? }
        }
        op::FLUSH => parts.args::<FlushIn>().map(|_| Op::Flush)?,
        op::RELEASE => Op::Release(parts.args()?),
        op::FSYNC => Op::Fsync(parts.args()?),
        _ => return less_usual_operation(opcode, parts),
    };
    parts.expect_end()?;
    Ok(operation)
}

fn less_usual_operation<'a>(
    opcode: u32,
    mut parts: Parts<'_, 'a>,
) -> Result<Operation<'a>, Violation> {
    use Operation as Op;
    let operation = match opcode {
        op::FALLOCATE => Op::Fallocate(parts.args()?),
        op::LSEEK => Op::Lseek(parts.args()?),
        op::BMAP => Op::Bmap(parts.args()?),
        op::COPY_FILE_RANGE => Op::CopyFileRange { args: parts.args()?, wide: false },
        op::COPY_FILE_RANGE_64 => Op::CopyFileRange { args: parts.args()?, wide: true },
        op::OPENDIR => Op::Opendir(parts.args()?),
        op::READDIR => Op::Readdir(parts.args()?),
        op::READDIRPLUS => Op::Readdirplus(parts.args()?),
        op::RELEASEDIR => Op::Releasedir(parts.args()?),
        op::FSYNCDIR => Op::Fsyncdir(parts.args()?),
        op::STATFS => Op::Statfs,
        op::SYNCFS => parts.args::<SyncfsIn>().map(|_| Op::Syncfs)?,
        op::SETXATTR => {
            let args: SetxattrIn = parts.args()?;
            Op::Setxattr { args, name: parts.name()?, value: parts.data(args.size)? }
        }
        op::GETXATTR => {
            Op::Getxattr { size: parts.args::<GetxattrIn>()?.size, name: parts.name()? }
        }
        op::LISTXATTR => Op::Listxattr { size: parts.args::<GetxattrIn>()?.size },
        op::REMOVEXATTR => Op::Removexattr { name: parts.name()? },
        op::IOCTL => {
            let args: IoctlIn = parts.args()?;
            Op::Ioctl { args, data: parts.data(args.in_size)? }
        }
        _ => return Ok(Op::Other { opcode }),
    };
    parts.expect_end()?;
    Ok(operation)
}

/// Unparsed rest of a request after its header.
struct Parts<'b, 'a> {
    args: &'b [u8],
    payload: &'a [u8],
}

impl<'a> Parts<'_, 'a> {
    fn args<T: FromBytes>(&self) -> Result<T, Violation> {
        let (args, _) = T::read_from_prefix(self.args).map_err(|_| "shorter than its arguments")?;
        Ok(args)
    }

    /// Parses INIT. Fields that an old kernel does not send are zero; excess bytes of a newer
    /// kernel are ignored.
    fn init(&self) -> Result<InitIn, Violation> {
        let mut init = InitIn::default();
        let len = self.args.len().min(size_of::<InitIn>());
        if len < INIT_IN_LEN_MIN {
            return Err("shorter than its arguments");
        }
        init.as_mut_bytes()[..len].copy_from_slice(&self.args[..len]);
        Ok(init)
    }

    fn forgotten(&mut self) -> Result<&'a [ForgetOne], Violation> {
        let count = self.args::<BatchForgetIn>()?.count;
        let len = count.checked_mul(size_of::<ForgetOne>() as u32);
        let nodes = self.data(len.ok_or("the forget count is too large")?)?;
        <[ForgetOne]>::ref_from_bytes(nodes).map_err(|_| "not aligned")
    }

    fn rename(&mut self, flags: u32) -> Result<Operation<'a>, Violation> {
        // Both structures start with this field.
        let newdir = self.args::<RenameIn>()?.newdir;
        let (name, newname) = (self.file_name()?, self.file_name()?);
        Ok(Operation::Rename { newdir, flags, name, newname })
    }

    /// Returns the next string without its final NUL.
    fn string(&mut self) -> Result<&'a [u8], Violation> {
        let len =
            self.payload.iter().position(|&byte| byte == 0).ok_or("a name is not terminated")?;
        let string = &self.payload[..len];
        self.payload = &self.payload[len + 1..];
        Ok(string)
    }

    fn name(&mut self) -> Result<&'a [u8], Violation> {
        let name = self.string()?;
        if name.is_empty() { Err("empty name") } else { Ok(name) }
    }

    fn file_name(&mut self) -> Result<&'a [u8], Violation> {
        let name = self.name()?;
        if name.contains(&b'/') { Err("a name contains a slash") } else { Ok(name) }
    }

    fn data(&mut self, len: u32) -> Result<&'a [u8], Violation> {
        let (data, rest) =
            self.payload.split_at_checked(len as usize).ok_or("shorter than its data")?;
        self.payload = rest;
        Ok(data)
    }

    fn expect_end(&self) -> Result<(), Violation> {
        if self.payload.is_empty() { Ok(()) } else { Err("longer than expected") }
    }
}

#[cfg(test)]
mod tests;
