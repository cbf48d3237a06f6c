//! Items as stored in the log: each is a list of regions. The first region describes the item (`*_log_format`). Items
//! are in the byte order of the machine that wrote them; only little-endian ones are supported.

use engine::Corruption;

/// Types of items (`XFS_LI_*`), the first 16 bits of their first region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs, reason = "names as in the format documentation")]
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
    RtEfi = 0x124a,
    RtEfd = 0x124b,
    RtRui = 0x124c,
    RtRud = 0x124d,
    RtCui = 0x124e,
    RtCud = 0x124f,
}

impl ItemType {
    /// Returns the type with this number; `None` for unknown ones.
    pub(crate) fn from_raw(raw: u16) -> Option<Self> {
        use ItemType::*;
        const ALL: [ItemType; 24] = [
            Efi, Efd, Iunlink, Inode, Buf, Dquot, QuotaOff, Icreate, Rui, Rud, Cui, Cud, Bui, Bud,
            Attri, Attrd, Xmi, Xmd, RtEfi, RtEfd, RtRui, RtRud, RtCui, RtCud,
        ];
        ALL.into_iter().find(|item| *item as u16 == raw)
    }

    /// Returns the type of intent that a done item completes; `None` for other types.
    pub(crate) const fn done(self) -> Option<Self> {
        Some(match self {
            Self::Efd => Self::Efi,
            Self::Rud => Self::Rui,
            Self::Cud => Self::Cui,
            Self::Bud => Self::Bui,
            Self::Attrd => Self::Attri,
            Self::Xmd => Self::Xmi,
            Self::RtEfd => Self::RtEfi,
            Self::RtRud => Self::RtRui,
            Self::RtCud => Self::RtCui,
            _ => return None,
        })
    }
}

/// A logged item: one or more regions.
#[derive(Clone, Copy, Debug)]
pub struct RawItem<'t> {
    data: &'t [u8],
    start: usize,
    ends: &'t [usize],
}

impl<'t> RawItem<'t> {
    /// Returns the item whose regions end at `ends` in `data`. The first region starts at `start`.
    pub(super) const fn new(data: &'t [u8], start: usize, ends: &'t [usize]) -> Self {
        Self { data, start, ends }
    }

    /// Returns the number of regions.
    pub(crate) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a region.
    pub(crate) fn region(&self, at: usize) -> Option<&'t [u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(self.start, |before| self.ends[before]);
        self.data.get(start..end)
    }

    /// Returns all regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &'t [u8]> + use<'t> {
        let this = *self;
        (0..this.ends.len()).filter_map(move |at| this.region(at))
    }

    /// Returns the number of its type.
    pub(crate) fn raw_type(&self) -> u16 {
        self.region(0).and_then(|format| le16(format, 0)).unwrap_or(0)
    }

    /// Returns the first region, which must have at least `len` bytes.
    pub(super) fn format(&self, structure: &'static str, len: usize) -> Parsed<&'t [u8]> {
        let format = self.region(0).unwrap_or_default();
        if format.len() < len {
            let damage = Corruption::new(structure, "its format structure is truncated");
            return Err(damage.mismatch(format_args!("at least {len} bytes"), format.len()));
        }
        Ok(format)
    }
}

/// Result of parsing an item.
pub(super) type Parsed<T> = std::result::Result<T, Corruption>;

/// Reads the little-endian number at `at`.
pub(super) fn le16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

/// Reads the little-endian number at `at`.
pub(super) fn le32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// Reads the little-endian number at `at`.
pub(super) fn le64(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}
