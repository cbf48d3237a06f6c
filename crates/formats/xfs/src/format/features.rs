//! Features a superblock declares.

use bitflags::bitflags;

bitflags! {
    /// `sb_versionnum`: the low four bits are the version, the others are these flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Version: u16 {
        /// Extended attributes are in use.
        const ATTR = 0x0010;
        /// 32-bit link counts.
        const NLINK = 0x0020;
        /// Quotas are in use.
        const QUOTA = 0x0040;
        /// Inode chunks are aligned.
        const ALIGN = 0x0080;
        /// A stripe unit is set.
        const DALIGN = 0x0100;
        /// A reserved bit of old versions.
        const SHARED = 0x0200;
        /// Version 2 logs.
        const LOGV2 = 0x0400;
        /// Sectors larger than 512 bytes.
        const SECTOR = 0x0800;
        /// Unwritten extents.
        const EXTFLG = 0x1000;
        /// Version 2 directories.
        const DIRV2 = 0x2000;
        /// Directory names are hashed and compared case-insensitively (ASCII).
        const BORG = 0x4000;
        /// `sb_features2` is valid.
        const MOREBITS = 0x8000;
        /// Flags that all images of version 5 have.
        const OF_VERSION_5 = Self::NLINK.bits()
            | Self::ALIGN.bits()
            | Self::LOGV2.bits()
            | Self::EXTFLG.bits()
            | Self::DIRV2.bits()
            | Self::MOREBITS.bits();
    }

    /// `sb_features2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features2: u32 {
        /// Counters of the superblock are written lazily.
        const LAZYSBCOUNT = 0x0002;
        /// Version 2 attributes: variable space in the inode.
        const ATTR2 = 0x0008;
        /// Old parent pointers; never used.
        const PARENT = 0x0010;
        /// 32-bit project identifiers.
        const PROJID32 = 0x0080;
        /// Metadata checksums.
        const CRC = 0x0100;
        /// Directory entries have a type (version 4).
        const FTYPE = 0x0200;
    }

    /// `sb_features_ro_compat`: unknown ones make an image read-only.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Trees of free inodes.
        const FINOBT = 1;
        /// Reverse-map trees.
        const RMAPBT = 1 << 1;
        /// Blocks shared by files.
        const REFLINK = 1 << 2;
        /// AGIs count the blocks of inode trees.
        const INOBTCOUNT = 1 << 3;
    }

    /// `sb_features_incompat`: images with unknown ones are refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Directory entries have a type.
        const FTYPE = 1;
        /// Inode chunks may have holes.
        const SPINODES = 1 << 1;
        /// Metadata has another UUID than the superblock.
        const META_UUID = 1 << 2;
        /// Timestamps up to 2486.
        const BIGTIME = 1 << 3;
        /// The image must be repaired before it is used.
        const NEEDSREPAIR = 1 << 4;
        /// 64-bit extent counters.
        const NREXT64 = 1 << 5;
        /// Exchange-range items may be in the log.
        const EXCHRANGE = 1 << 6;
        /// Parent pointers.
        const PARENT = 1 << 7;
        /// A directory tree of metadata.
        const METADIR = 1 << 8;
        /// Zoned realtime devices.
        const ZONED = 1 << 9;
        /// Gaps between zones.
        const ZONE_GAPS = 1 << 10;
    }

    /// `sb_features_log_incompat`: logs with unknown ones must not be replayed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogIncompat: u32 {
        /// Attribute intents.
        const XATTRS = 1;
    }
}

/// All features of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// 4 or 5.
    pub version: u8,
    /// Flags of `sb_versionnum`.
    pub version_bits: Version,
    /// `sb_features2`.
    pub features2: Features2,
    /// `sb_features_compat`; none is known.
    pub compat: u32,
    /// `sb_features_ro_compat`.
    pub ro_compat: RoCompat,
    /// `sb_features_incompat`.
    pub incompat: Incompat,
    /// `sb_features_log_incompat`.
    pub log_incompat: LogIncompat,
}

impl Features {
    /// Returns whether metadata has checksums (version 5).
    pub const fn crc(&self) -> bool {
        self.version == 5
    }

    /// Returns whether directory entries have a type.
    pub const fn ftype(&self) -> bool {
        match self.version {
            5 => self.incompat.contains(Incompat::FTYPE),
            _ => self.features2.contains(Features2::FTYPE),
        }
    }

    /// Returns whether names are hashed and compared case-insensitively (ASCII).
    pub const fn ascii_ci(&self) -> bool {
        self.version_bits.contains(Version::BORG)
    }

    /// Returns whether a read-only compatible feature is enabled.
    pub const fn ro_compat(&self, feature: RoCompat) -> bool {
        self.crc() && self.ro_compat.contains(feature)
    }

    /// Returns whether an incompatible feature is enabled.
    pub const fn incompat(&self, feature: Incompat) -> bool {
        self.crc() && self.incompat.contains(feature)
    }
}

/// Names of bits. Those of mkfs.xfs options are used if they exist.
type Names = &'static [(u32, &'static str)];

const VERSION_NAMES: Names = &[
    (Version::ATTR.bits() as u32, "attr"),
    (Version::NLINK.bits() as u32, "nlink"),
    (Version::QUOTA.bits() as u32, "quota"),
    (Version::ALIGN.bits() as u32, "align"),
    (Version::DALIGN.bits() as u32, "dalign"),
    (Version::LOGV2.bits() as u32, "logv2"),
    (Version::SECTOR.bits() as u32, "sector"),
    (Version::EXTFLG.bits() as u32, "extflg"),
    (Version::DIRV2.bits() as u32, "dirv2"),
    (Version::BORG.bits() as u32, "ascii-ci"),
];
const FEATURES2_NAMES: Names = &[
    (Features2::LAZYSBCOUNT.bits(), "lazy-count"),
    (Features2::ATTR2.bits(), "attr2"),
    (Features2::PROJID32.bits(), "projid32bit"),
    (Features2::CRC.bits(), "crc"),
    (Features2::FTYPE.bits(), "ftype"),
];
const RO_COMPAT_NAMES: Names = &[
    (RoCompat::FINOBT.bits(), "finobt"),
    (RoCompat::RMAPBT.bits(), "rmapbt"),
    (RoCompat::REFLINK.bits(), "reflink"),
    (RoCompat::INOBTCOUNT.bits(), "inobtcount"),
];
const INCOMPAT_NAMES: Names = &[
    (Incompat::FTYPE.bits(), "ftype"),
    (Incompat::SPINODES.bits(), "sparse"),
    (Incompat::META_UUID.bits(), "meta-uuid"),
    (Incompat::BIGTIME.bits(), "bigtime"),
    (Incompat::NEEDSREPAIR.bits(), "needsrepair"),
    (Incompat::NREXT64.bits(), "nrext64"),
    (Incompat::EXCHRANGE.bits(), "exchange"),
    (Incompat::PARENT.bits(), "parent"),
    (Incompat::METADIR.bits(), "metadir"),
    (Incompat::ZONED.bits(), "zoned"),
    (Incompat::ZONE_GAPS.bits(), "zone-gaps"),
];
const LOG_INCOMPAT_NAMES: Names = &[(LogIncompat::XATTRS.bits(), "xattrs")];

/// Returns the names of the bits that are set; bits without a name in hexadecimal.
fn names_of(bits: u32, names: Names) -> Vec<String> {
    let known = names.iter().filter(|(bit, _)| bits & bit != 0);
    let mut list: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = names.iter().fold(bits, |bits, (bit, _)| bits & !bit);
    if unknown != 0 {
        list.push(format!("{unknown:#x}"));
    }
    list
}

impl Features {
    /// Returns the names of all features by kind: those of the version, and for version 5 the read-only compatible,
    /// incompatible and log incompatible ones. Names of mkfs.xfs options are used if they exist.
    pub fn names(&self) -> Vec<(&'static str, Vec<String>)> {
        let version_bits = self.version_bits.difference(Version::MOREBITS);
        let mut version = names_of(version_bits.bits().into(), VERSION_NAMES);
        version.extend(names_of(self.features2.bits(), FEATURES2_NAMES));
        let mut all = vec![("version", version)];
        if self.crc() {
            all.push(("incompatible", names_of(self.incompat.bits(), INCOMPAT_NAMES)));
            all.push(("read-only compatible", names_of(self.ro_compat.bits(), RO_COMPAT_NAMES)));
            all.push(("log incompatible", names_of(self.log_incompat.bits(), LOG_INCOMPAT_NAMES)));
            all.push(("compatible", names_of(self.compat, &[])));
        }
        all
    }
}
