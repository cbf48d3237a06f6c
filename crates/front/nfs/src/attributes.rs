//! Attributes in replies and requests.

use vfs::{Attributes, DeviceNumber, FileType, Timestamp};

use crate::NfsStatus;
use crate::xdr::{Garbage, XdrReader, XdrWriter};

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// Numbers of file types (`ftype3`).
pub(crate) const NF3REG: u32 = 1;
pub(crate) const NF3DIR: u32 = 2;
pub(crate) const NF3BLK: u32 = 3;
pub(crate) const NF3CHR: u32 = 4;
pub(crate) const NF3LNK: u32 = 5;
pub(crate) const NF3SOCK: u32 = 6;
pub(crate) const NF3FIFO: u32 = 7;

/// Size of attributes in a reply (`fattr3`), in bytes.
pub(crate) const ATTRIBUTES_BYTES: usize = 84;

/// Attributes before and after a change (`wcc_data`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wcc {
    pub(crate) before: Option<Attributes>,
    pub(crate) after: Option<Attributes>,
}

/// Parts of attributes in replies that all inodes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedAttributes {
    pub(crate) fsid: u64,
    /// Shown user and group. `None` shows those of the inode.
    pub(crate) owner: Option<(u32, u32)>,
}

/// Appends attributes.
pub(crate) fn put_attributes(
    reply: &mut XdrWriter,
    attributes: &Attributes,
    shared: SharedAttributes,
) {
    let DeviceNumber { major, minor } = attributes.device;
    let (uid, gid) = shared.owner.unwrap_or((attributes.uid, attributes.gid));
    for word in [
        file_type_number(attributes.file_type),
        attributes.permissions.into(),
        attributes.links,
        uid,
        gid,
    ] {
        reply.u32(word);
    }
    reply.u64(attributes.size);
    reply.u64(attributes.blocks_512.saturating_mul(512));
    reply.u32(major);
    reply.u32(minor);
    reply.u64(shared.fsid);
    reply.u64(attributes.ino.0);
    for time in [attributes.atime, attributes.mtime, attributes.ctime] {
        put_time(reply, time);
    }
}

/// Appends optional attributes (`post_op_attr`).
pub(crate) fn put_post_op(
    reply: &mut XdrWriter,
    attributes: Option<&Attributes>,
    shared: SharedAttributes,
) {
    reply.bool(attributes.is_some());
    if let Some(attributes) = attributes {
        put_attributes(reply, attributes, shared);
    }
}

/// Appends attributes before and after a change.
pub(crate) fn put_wcc(reply: &mut XdrWriter, wcc: &Wcc, shared: SharedAttributes) {
    reply.bool(wcc.before.is_some());
    if let Some(before) = &wcc.before {
        reply.u64(before.size);
        put_time(reply, before.mtime);
        put_time(reply, before.ctime);
    }
    put_post_op(reply, wcc.after.as_ref(), shared);
}

fn file_type_number(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => NF3REG,
        FileType::Directory => NF3DIR,
        FileType::BlockDevice => NF3BLK,
        FileType::CharDevice => NF3CHR,
        FileType::Symlink => NF3LNK,
        FileType::Socket => NF3SOCK,
        FileType::Fifo => NF3FIFO,
    }
}

/// Returns a time as the protocol has it: times before 1970 and after 2106 become the nearest one.
pub(crate) fn time_words(time: Timestamp) -> [u32; 2] {
    match u32::try_from(time.sec) {
        Ok(sec) => [sec, time.nsec],
        Err(_) if time.sec < 0 => [0, 0],
        Err(_) => [u32::MAX, NSEC_PER_SEC - 1],
    }
}

fn put_time(reply: &mut XdrWriter, time: Timestamp) {
    for word in time_words(time) {
        reply.u32(word);
    }
}

/// New value of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NewTime {
    #[default]
    Unchanged,
    /// The time of the change.
    Now,
    /// A time of the client.
    At(Timestamp),
}

impl NewTime {
    fn parse(reader: &mut XdrReader<'_>) -> Result<Self, Garbage> {
        match reader.u32()? {
            0 => Ok(Self::Unchanged),
            1 => Ok(Self::Now),
            2 => parse_time(reader).map(Self::At),
            _ => Err(Garbage),
        }
    }

    /// Returns the value for a change at `now`.
    ///
    /// # Errors
    /// `Inval` for a time of the client with too many nanoseconds.
    pub(crate) fn value(self, now: Timestamp) -> Result<Option<Timestamp>, NfsStatus> {
        match self {
            Self::Unchanged => Ok(None),
            Self::Now => Ok(Some(now)),
            Self::At(time) if time.nsec >= NSEC_PER_SEC => Err(NfsStatus::Inval),
            Self::At(time) => Ok(Some(time)),
        }
    }
}

pub(crate) fn parse_time(reader: &mut XdrReader<'_>) -> Result<Timestamp, Garbage> {
    Ok(Timestamp { sec: reader.u32()?.into(), nsec: reader.u32()? })
}

/// Requested attributes (`sattr3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: NewTime,
    pub(crate) mtime: NewTime,
}

impl NewAttributes {
    /// Parses attributes. The shown owner is not a change: clients that copy attributes send it.
    pub(crate) fn parse(
        reader: &mut XdrReader<'_>,
        shown_owner: Option<(u32, u32)>,
    ) -> Result<Self, Garbage> {
        let (shown_uid, shown_gid) = shown_owner.unzip();
        Ok(Self {
            mode: reader.option(XdrReader::u32)?,
            uid: reader.option(XdrReader::u32)?.filter(|uid| Some(*uid) != shown_uid),
            gid: reader.option(XdrReader::u32)?.filter(|gid| Some(*gid) != shown_gid),
            size: reader.option(XdrReader::u64)?,
            atime: NewTime::parse(reader)?,
            mtime: NewTime::parse(reader)?,
        })
    }

    /// Returns the requested permission bits.
    pub(crate) fn permissions(&self) -> Option<u16> {
        self.mode.map(|mode| (mode & 0o7777) as u16)
    }
}
