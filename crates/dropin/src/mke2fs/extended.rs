//! The extended options of mke2fs (`-E`).

use std::str::FromStr;

use diskwright::build::Owner;

use crate::failure::{Failure, STATUSES};
use crate::lists::Item;

/// What `-E` can ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    /// Seed of the hashes of directories.
    pub(super) hash_seed: Option<[u8; 16]>,
    /// Permissions of the root directory.
    pub(super) root_permissions: Option<u16>,
    /// A label of SELinux for the root directory.
    pub(super) root_selinux: Option<Vec<u8>>,
    /// Whether the image is written in the sparse format of Android.
    pub(super) is_android_sparse: bool,
    /// What is known of the disks below, in blocks: hints for who allocates.
    pub(super) stride: Option<u16>,
    pub(super) stripe_width: Option<u32>,
    /// Whether it is for a driver that is being developed.
    pub(super) is_test: bool,
}

impl Extended {
    /// Takes what one list says.
    pub(super) fn read<'a>(
        &mut self,
        items: impl IntoIterator<Item = Item<'a>>,
    ) -> Result<(), Failure> {
        items.into_iter().try_for_each(|item| self.item(&item))
    }

    fn item(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "hash_seed" => self.hash_seed = Some(item.by(seed)?),
            "root_perms" => self.root_permissions = Some(item.by(permissions)?),
            "root_selinux" => self.root_selinux = Some(item.text()?.as_bytes().to_vec()),
            "android_sparse" => self.is_android_sparse = true,
            // All inode tables and the journal are zero in a new image, so nobody has to make them so; and what
            // is not in use is not in the file.
            "lazy_itable_init" | "lazy_journal_init" => drop(item.switch()?),
            "nodiscard" | "discard" | "assume_storage_prezeroed" => drop(item.switch()?),
            // Hints for programs that write a file system's blocks in other places than these.
            "packed_meta_blocks" if !item.switch()? => {}
            "stride" => self.stride = Some(item.by(number)?),
            "stripe_width" | "stripe-width" => self.stripe_width = Some(item.by(number)?),
            "test_fs" => self.is_test = true,
            "no_copy_xattrs" => return Err(item.refused("the attributes of the source are copied")),
            "offset" => return Err(item.refused("make the image alone, and put it into its place")),
            "resize" | "packed_meta_blocks" | "num_backup_sb" | "orphan_file_size" => {
                return Err(item.refused("the layout follows from the size"));
            }
            "encoding" | "encoding_flags" | "quotatype" | "desc_size" | "mmp_update_interval" => {
                return Err(item.refused("the feature that it belongs to is not made"));
            }
            "revision" => {
                if item.text()? != "1" {
                    return Err(item.refused("revision 0 is not made"));
                }
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }
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

/// `UID:GID`, or nothing for the user and group that run the program.
pub(super) fn root_owner(item: &Item<'_>) -> Result<Owner, Failure> {
    let Some(text) = item.value().filter(|text| !text.is_empty()) else {
        return Ok(own());
    };
    let ids = text.split_once(':');
    let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    let wrong = || STATUSES.usage(format_args!("-E root_owner is UID:GID, not {text}"));
    ids.map(|(uid, gid)| Owner { uid, gid }).ok_or_else(wrong)
}

/// Who runs the program.
#[cfg(unix)]
fn own() -> Owner {
    Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

/// There are no such numbers.
#[cfg(not(unix))]
fn own() -> Owner {
    Owner { uid: 0, gid: 0 }
}
