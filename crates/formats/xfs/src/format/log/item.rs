//! The items of a transaction.

use engine::Corruption;
use vfs::Result;

use super::buffer_item::BufferItem;
use super::dquot::{DquotItem, QuotaOff};
use super::icreate::Icreate;
use super::inode::InodeItem;
use super::raw_item::le64;

pub use super::raw_item::{ItemType, RawItem};

/// A parsed item.
#[derive(Clone, Debug)]
pub(crate) enum Item<'t> {
    /// Contents of a buffer, or its cancel.
    Buffer(BufferItem<'t>),
    /// An inode.
    Inode(InodeItem<'t>),
    /// A quota.
    Dquot(DquotItem<'t>),
    /// Quotas of some kinds are turned off.
    QuotaOff(QuotaOff),
    /// A run of new inodes.
    Icreate(Icreate),
    /// The intent of a change.
    Intent(ItemType, u64),
    /// The done item of an intent.
    Done(ItemType, u64),
}

impl<'t> Item<'t> {
    /// Parses an item.
    ///
    /// # Errors
    /// `Corrupt` for an invalid item.
    pub(crate) fn parse(raw: &RawItem<'t>) -> Result<Self> {
        let number = raw.raw_type();
        let unknown = || {
            let damage = Corruption::new("log item", "unknown type");
            damage.mismatch("0x1236 to 0x124f", format_args!("{number:#06x}"))
        };
        let item = ItemType::from_raw(number).ok_or_else(unknown)?;
        Ok(match item {
            ItemType::Buf => Self::Buffer(BufferItem::parse(raw)?),
            ItemType::Inode => Self::Inode(InodeItem::parse(raw)?),
            ItemType::Dquot => Self::Dquot(DquotItem::parse(raw)?),
            ItemType::QuotaOff => Self::QuotaOff(QuotaOff::parse(raw)?),
            ItemType::Icreate => Self::Icreate(Icreate::parse(raw)?),
            ItemType::Iunlink => return Err(unknown().into()),
            intent => {
                let format = raw.format("log item", 16)?;
                let id = le64(format, 8).unwrap_or(0);
                match intent.done() {
                    Some(intent) => Self::Done(intent, id),
                    None => Self::Intent(intent, id),
                }
            }
        })
    }
}
