//! The extended options of mke2fs (`-E`).

use std::str::FromStr;

use diskwright::build::{Encoding, Owner, Position};
use ext4::format::mmp::INTERVAL_MAX;
use ext4::format::quota::QuotaKind;

use crate::failure::{Failure, STATUSES};
use crate::lists::{self, ListItem};
use crate::size::{self, Size};

/// Options of `-E`.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    /// Hash seed of directories.
    pub(super) hash_seed: Option<[u8; 16]>,
    /// Owner of the root directory.
    pub(super) root_owner: Option<Owner>,
    /// Permissions of the root directory.
    pub(super) root_permissions: Option<u16>,
    /// SELinux label of the root directory.
    pub(super) root_selinux: Option<Vec<u8>>,
    /// True to write an Android sparse image.
    pub(super) is_android_sparse: bool,
    /// RAID stride in blocks, a hint for allocators.
    pub(super) stride: Option<u16>,
    pub(super) stripe_width: Option<u32>,
    /// True to set the flag for development drivers.
    pub(super) is_test: bool,
    /// True to omit extended attributes of files.
    pub(super) has_no_xattrs: bool,
    /// Byte offset of the file system in its file.
    pub(super) offset: u64,
    /// Maximum size for growing.
    pub(super) resize: Option<Size>,
    pub(super) is_packed: Option<bool>,
    pub(super) backups: Option<u8>,
    pub(super) orphan_file: Option<Size>,
    pub(super) encoding: Option<Encoding>,
    pub(super) is_encoding_strict: Option<bool>,
    /// Update interval of the MMP block in seconds, with the feature `mmp`.
    pub(super) mmp_interval: Option<u16>,
    /// Size of group descriptors in bytes, with the feature `64bit`.
    pub(super) descriptor_bytes: Option<u16>,
    /// Quota types to enable with the feature `quota`.
    pub(super) quotas: Vec<QuotaKind>,
}

impl Extended {
    /// Parses a list.
    pub(super) fn read(&mut self, list: &str) -> Result<(), Failure> {
        lists::items(list, 'E', STATUSES).try_for_each(|item| self.item(&item))
    }

    fn item(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "hash_seed" => self.hash_seed = Some(item.by(seed)?),
            "root_owner" => self.root_owner = Some(root_owner(item)?),
            "root_perms" => self.root_permissions = Some(item.by(permissions)?),
            "root_selinux" => self.root_selinux = Some(item.text()?.as_bytes().to_vec()),
            "android_sparse" => self.is_android_sparse = true,
            // Inode tables and journal of a new image are always zeroed, and free space is sparse.
            "lazy_itable_init" | "lazy_journal_init" => drop(item.switch()?),
            "nodiscard" | "discard" | "assume_storage_prezeroed" => drop(item.switch()?),
            "packed_meta_blocks" => self.is_packed = Some(item.switch()?),
            "stride" => self.stride = Some(item.by(number)?),
            "stripe_width" | "stripe-width" => self.stripe_width = Some(item.by(number)?),
            "test_fs" => self.is_test = item.switch()?,
            "no_copy_xattrs" => self.has_no_xattrs = true,
            "offset" => self.offset = item.by(size::bytes)?,
            "resize" => self.resize = Some(item.by(size::parse)?),
            "num_backup_sb" => self.backups = Some(item.by(backups)?),
            "orphan_file_size" => self.orphan_file = Some(item.by(size::parse)?),
            "encoding" => self.encoding = Some(item.by(encoding)?),
            "encoding_flags" => self.is_encoding_strict = Some(item.by(strictness)?),
            "quotatype" => self.quotas = item.by(quotas)?,
            "desc_size" => self.descriptor_bytes = Some(item.by(number)?).filter(|size| *size != 0),
            "mmp_update_interval" => self.mmp_interval = Some(item.by(mmp_interval)?),
            "revision" => {
                if item.text()? != "1" {
                    return Err(item.refused("revision 0 cannot be created"));
                }
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }
}

/// Parses a location given as a block or a byte offset.
pub(crate) fn place(text: &str) -> Result<Position, String> {
    Ok(match size::parse(text)? {
        Size::Units(block) | Size::Blocks(block) => Position::Block(block),
        Size::Bytes(byte) => Position::Byte(byte),
    })
}

/// Parses the size of the area for fast commits, in bytes. Numbers without a unit are KiB.
pub(crate) fn fast_commit_bytes(text: &str) -> Result<u64, String> {
    size::parse(text)?.bytes(1 << 10).ok_or_else(|| "it is too large".into())
}

/// Parses the number of backup superblocks.
pub(super) fn backups(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|count| *count <= 2).ok_or_else(|| "it must be 0, 1 or 2".into())
}

/// Parses the name of an encoding.
pub(super) fn encoding(text: &str) -> Result<Encoding, String> {
    match text {
        "utf8" | "utf8-12.1" => Ok(Encoding::Utf8),
        _ => Err("write utf8 or utf8-12.1".into()),
    }
}

/// Parses encoding flags: whether it is strict.
pub(super) fn strictness(text: &str) -> Result<bool, String> {
    match text {
        "strict" => Ok(true),
        "nostrict" => Ok(false),
        _ => Err("write strict or nostrict".into()),
    }
}

/// Parses quota types separated by colons.
fn quotas(text: &str) -> Result<Vec<QuotaKind>, String> {
    let kind = |word| match word {
        "usrquota" => Ok(QuotaKind::User),
        "grpquota" => Ok(QuotaKind::Group),
        "prjquota" => Ok(QuotaKind::Project),
        _ => Err("write usrquota, grpquota or prjquota, with colons between them".to_owned()),
    };
    text.split(':').map(kind).collect()
}

fn mmp_interval(text: &str) -> Result<u16, String> {
    let parsed = text.parse().ok().filter(|seconds| *seconds <= INTERVAL_MAX);
    parsed.ok_or_else(|| format!("write a number of seconds, at most {INTERVAL_MAX}"))
}

fn seed(text: &str) -> Result<[u8; 16], String> {
    let parsed = uuid::Uuid::try_parse(text).map(uuid::Uuid::into_bytes);
    parsed.map_err(|_| "write it as a UUID".into())
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a number of blocks".into())
}

fn permissions(text: &str) -> Result<u16, String> {
    let parsed = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
    parsed.ok_or_else(|| "write permissions in octal digits".into())
}

/// Parses `UID:GID`; the default is the user and group of the process.
fn root_owner(item: &ListItem<'_>) -> Result<Owner, Failure> {
    let Some(text) = item.value().filter(|text| !text.is_empty()) else {
        return Ok(own());
    };
    let ids = text.split_once(':');
    let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    let wrong = || STATUSES.usage(format_args!("-E root_owner must be UID:GID, not {text}"));
    ids.map(|(uid, gid)| Owner { uid, gid }).ok_or_else(wrong)
}

/// Returns the user and group of the process.
#[cfg(unix)]
fn own() -> Owner {
    Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

/// Returns root, because this host has no Unix users.
#[cfg(not(unix))]
fn own() -> Owner {
    Owner { uid: 0, gid: 0 }
}
