//! What the items of a transaction have in common: each is a list of regions, of which the first says
//! what it is (`*_log_format`). Items are in the byte order of the machine that wrote them; only
//! little-endian ones are read and written.

/// Types of items (`XFS_LI_*`), the first 16 bits of their first region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are the format document's")]
pub enum ItemType {
    Efi = 0x1236,
    Efd = 0x1237,
    Iunlink = 0x1238,
    Inode = 0x123b,
    Buf = 0x123c,
    Dquot = 0x123d,
    QuotaOff = 0x123e,
    Icreate = 0x123f,
    Rui = 0x1240,
    Rud = 0x1241,
    Cui = 0x1242,
    Cud = 0x1243,
    Bui = 0x1244,
    Bud = 0x1245,
    Attri = 0x1246,
    Attrd = 0x1247,
    Xmi = 0x1248,
    Xmd = 0x1249,
}

impl ItemType {
    /// The type of that number; `None` for those of realtime devices and unknown ones.
    pub fn from_raw(raw: u16) -> Option<Self> {
        use ItemType::*;
        const ALL: [ItemType; 18] = [
            Efi, Efd, Iunlink, Inode, Buf, Dquot, QuotaOff, Icreate, Rui, Rud, Cui, Cud, Bui, Bud,
            Attri, Attrd, Xmi, Xmd,
        ];
        ALL.into_iter().find(|item| *item as u16 == raw)
    }
}
