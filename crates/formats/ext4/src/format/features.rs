//! Feature bits of the superblock, with the names that mke2fs and dumpe2fs use.
//!
//! A file system with an unknown incompatible feature must not be opened. With an unknown read-only-compatible feature
//! it must not be written.

use bitflags::bitflags;

bitflags! {
    /// `s_feature_compat`: features that may be ignored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// Inodes for the AFS server.
        const IMAGIC_INODES = 0x2;
        /// A journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Blocks reserved for growth of the group descriptor table, owned by inode 7.
        const RESIZE_INODE = 0x10;
        /// Hashed directories.
        const DIR_INDEX = 0x20;
        /// Block groups whose bitmaps need not be initialised in order.
        const LAZY_BG = 0x40;
        /// An inode that lists files excluded from snapshots.
        const EXCLUDE_INODE = 0x80;
        /// A bitmap of blocks excluded from snapshots.
        const EXCLUDE_BITMAP = 0x100;
        /// Superblock backups in at most two groups.
        const SPARSE_SUPER2 = 0x200;
        /// Fast commits in the journal.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and uuid are used in keys and must not change.
        const STABLE_INODES = 0x800;
        /// Orphans are recorded in a file.
        const ORPHAN_FILE = 0x1000;
    }
}

bitflags! {
    /// `s_feature_incompat`: features that must be known for reading.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Compressed files.
        const COMPRESSION = 0x1;
        /// File types in directory entries.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// The device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Group descriptors distributed over the groups they describe.
        const META_BG = 0x10;
        /// Extent trees.
        const EXTENTS = 0x40;
        /// 64-bit block numbers and group descriptors above 32 bytes.
        const BIT64 = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables of several groups stored together.
        const FLEX_BG = 0x200;
        /// Attribute values in separate inodes.
        const EA_INODE = 0x400;
        /// Data in directory entries.
        const DIRDATA = 0x1000;
        /// The checksum seed is in the superblock.
        const CSUM_SEED = 0x2000;
        /// Three-level and larger directories.
        const LARGEDIR = 0x4000;
        /// Small files and directories in the inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Case-insensitive directories.
        const CASEFOLD = 0x2_0000;
    }
}

bitflags! {
    /// `s_feature_ro_compat`: features that must be known for writing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Superblock backups only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more.
        const LARGE_FILE = 0x2;
        /// Directories as B-trees (never used).
        const BTREE_DIR = 0x4;
        /// File sizes counted in file-system blocks.
        const HUGE_FILE = 0x8;
        /// Group descriptors with CRC-16 checksums, and uninitialised groups.
        const GDT_CSUM = 0x10;
        /// Directories with more than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes with space reserved for more fields.
        const EXTRA_ISIZE = 0x40;
        /// Snapshots (never merged).
        const HAS_SNAPSHOT = 0x80;
        /// Quota files as hidden metadata.
        const QUOTA = 0x100;
        /// Allocation in clusters of blocks.
        const BIGALLOC = 0x200;
        /// CRC-32C checksums of all metadata.
        const METADATA_CSUM = 0x400;
        /// Copies of metadata (never merged).
        const REPLICA = 0x800;
        /// The image is read-only.
        const READONLY = 0x1000;
        /// Project quotas.
        const PROJECT = 0x2000;
        /// Blocks shared by several files.
        const SHARED_BLOCKS = 0x4000;
        /// Verity files.
        const VERITY = 0x8000;
        /// The orphan file may contain orphans.
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

/// Names of the compatible features.
const COMPAT_NAMES: [(Compat, &str); 13] = [
    (Compat::DIR_PREALLOC, "dir_prealloc"),
    (Compat::IMAGIC_INODES, "imagic_inodes"),
    (Compat::HAS_JOURNAL, "has_journal"),
    (Compat::EXT_ATTR, "ext_attr"),
    (Compat::RESIZE_INODE, "resize_inode"),
    (Compat::DIR_INDEX, "dir_index"),
    (Compat::LAZY_BG, "lazy_bg"),
    (Compat::EXCLUDE_INODE, "snapshot_inode"),
    (Compat::EXCLUDE_BITMAP, "snapshot_bitmap"),
    (Compat::SPARSE_SUPER2, "sparse_super2"),
    (Compat::FAST_COMMIT, "fast_commit"),
    (Compat::STABLE_INODES, "stable_inodes"),
    (Compat::ORPHAN_FILE, "orphan_file"),
];

/// Names of the incompatible features.
const INCOMPAT_NAMES: [(Incompat, &str); 16] = [
    (Incompat::COMPRESSION, "compression"),
    (Incompat::FILETYPE, "filetype"),
    (Incompat::RECOVER, "needs_recovery"),
    (Incompat::JOURNAL_DEV, "journal_dev"),
    (Incompat::META_BG, "meta_bg"),
    (Incompat::EXTENTS, "extent"),
    (Incompat::BIT64, "64bit"),
    (Incompat::MMP, "mmp"),
    (Incompat::FLEX_BG, "flex_bg"),
    (Incompat::EA_INODE, "ea_inode"),
    (Incompat::DIRDATA, "dirdata"),
    (Incompat::CSUM_SEED, "metadata_csum_seed"),
    (Incompat::LARGEDIR, "large_dir"),
    (Incompat::INLINE_DATA, "inline_data"),
    (Incompat::ENCRYPT, "encrypt"),
    (Incompat::CASEFOLD, "casefold"),
];

/// Names of the read-only-compatible features.
const RO_COMPAT_NAMES: [(RoCompat, &str); 17] = [
    (RoCompat::SPARSE_SUPER, "sparse_super"),
    (RoCompat::LARGE_FILE, "large_file"),
    (RoCompat::BTREE_DIR, "btree_dir"),
    (RoCompat::HUGE_FILE, "huge_file"),
    (RoCompat::GDT_CSUM, "uninit_bg"),
    (RoCompat::DIR_NLINK, "dir_nlink"),
    (RoCompat::EXTRA_ISIZE, "extra_isize"),
    (RoCompat::HAS_SNAPSHOT, "snapshot"),
    (RoCompat::QUOTA, "quota"),
    (RoCompat::BIGALLOC, "bigalloc"),
    (RoCompat::METADATA_CSUM, "metadata_csum"),
    (RoCompat::REPLICA, "replica"),
    (RoCompat::READONLY, "read-only"),
    (RoCompat::PROJECT, "project"),
    (RoCompat::SHARED_BLOCKS, "shared_blocks"),
    (RoCompat::VERITY, "verity"),
    (RoCompat::ORPHAN_PRESENT, "orphan_present"),
];

/// Further names that mke2fs accepts.
const ALIASES: [(&str, &str); 2] = [("uninit_groups", "uninit_bg"), ("extents", "extent")];

/// Incompatible features that can be read.
pub(crate) const INCOMPAT_SUPPORTED: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// Read-only-compatible features that are maintained on writing.
pub(crate) const RO_COMPAT_SUPPORTED: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// One feature of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A compatible feature.
    Compat(Compat),
    /// An incompatible feature.
    Incompat(Incompat),
    /// A read-only-compatible feature.
    RoCompat(RoCompat),
}

impl Feature {
    /// Returns the feature with the mke2fs name `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
        let compat = || find(&COMPAT_NAMES, name).map(Self::Compat);
        let incompat = || find(&INCOMPAT_NAMES, name).map(Self::Incompat);
        let ro_compat = || find(&RO_COMPAT_NAMES, name).map(Self::RoCompat);
        compat().or_else(incompat).or_else(ro_compat)
    }

    /// Returns the names of all features, by kind.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let compat = COMPAT_NAMES.iter().map(|(_, name)| *name);
        let incompat = INCOMPAT_NAMES.iter().map(|(_, name)| *name);
        compat.chain(incompat).chain(RO_COMPAT_NAMES.iter().map(|(_, name)| *name))
    }
}

fn find<F: Copy>(names: &[(F, &str)], name: &str) -> Option<F> {
    names.iter().find(|(_, n)| *n == name).map(|(feature, _)| *feature)
}

/// The three feature sets of a superblock. Unnamed bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

impl Features {
    /// Returns true if any feature is set.
    pub(crate) fn has_any(&self) -> bool {
        !self.compat.is_empty() || !self.incompat.is_empty() || !self.ro_compat.is_empty()
    }

    /// Turns one feature on or off.
    pub(crate) fn set(&mut self, feature: Feature, on: bool) {
        match feature {
            Feature::Compat(f) => self.compat.set(f, on),
            Feature::Incompat(f) => self.incompat.set(f, on),
            Feature::RoCompat(f) => self.ro_compat.set(f, on),
        }
    }

    /// Returns whether a compatible feature is set.
    #[must_use]
    pub const fn compat(&self, feature: Compat) -> bool {
        self.compat.contains(feature)
    }

    /// Returns whether an incompatible feature is set.
    #[must_use]
    pub const fn incompat(&self, feature: Incompat) -> bool {
        self.incompat.contains(feature)
    }

    /// Returns whether a read-only-compatible feature is set.
    #[must_use]
    pub const fn ro_compat(&self, feature: RoCompat) -> bool {
        self.ro_compat.contains(feature)
    }

    /// Returns whether all metadata has CRC-32C checksums.
    #[must_use]
    pub const fn metadata_csum(&self) -> bool {
        self.ro_compat(RoCompat::METADATA_CSUM)
    }

    /// Returns whether group descriptors have a checksum of either kind. Only then may parts of a group be
    /// uninitialised.
    #[must_use]
    pub const fn group_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM.union(RoCompat::GDT_CSUM))
    }

    /// Returns the names of all features that are set, in dumpe2fs's order. Bits without a name are `FEATURE_C31` and
    /// so on (C compatible, I incompatible, R read-only compatible; bit number).
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&COMPAT_NAMES, self.compat.bits(), 'C', &mut names);
        collect(&INCOMPAT_NAMES, self.incompat.bits(), 'I', &mut names);
        collect(&RO_COMPAT_NAMES, self.ro_compat.bits(), 'R', &mut names);
        names
    }

    /// Returns the names of the features that prevent reading.
    pub fn unreadable(&self) -> Vec<String> {
        let mut names = Vec::new();
        let bits = self.incompat.bits() & !INCOMPAT_SUPPORTED.bits();
        collect(&INCOMPAT_NAMES, bits, 'I', &mut names);
        names
    }

    /// Returns the names of the features that prevent writing.
    pub fn unwritable(&self) -> Vec<String> {
        let mut names = Vec::new();
        let bits = self.ro_compat.bits() & !RO_COMPAT_SUPPORTED.bits();
        collect(&RO_COMPAT_NAMES, bits, 'R', &mut names);
        names
    }
}

/// Appends the names of `bits`, lowest bit first.
fn collect<F: bitflags::Flags<Bits = u32>>(
    table: &[(F, &str)],
    bits: u32,
    kind: char,
    names: &mut Vec<String>,
) {
    for number in (0..u32::BITS).filter(|n| bits >> n & 1 == 1) {
        let name = table.iter().find(|(feature, _)| feature.bits() == 1 << number);
        names
            .push(name.map_or_else(|| format!("FEATURE_{kind}{number}"), |(_, n)| (*n).to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_feature() {
        for (feature, name) in INCOMPAT_NAMES {
            assert_eq!(Feature::from_name(name), Some(Feature::Incompat(feature)));
        }
        for (feature, name) in COMPAT_NAMES {
            assert_eq!(Feature::from_name(name), Some(Feature::Compat(feature)));
        }
        for (feature, name) in RO_COMPAT_NAMES {
            assert_eq!(Feature::from_name(name), Some(Feature::RoCompat(feature)));
        }
        assert_eq!(Feature::from_name("extents"), Feature::from_name("extent"));
        assert_eq!(Feature::from_name("no_such"), None);
    }

    #[test]
    fn unknown_bits_are_named_and_kept() {
        let features = Features {
            incompat: Incompat::from_bits_retain(0x8000_0042),
            ro_compat: RoCompat::from_bits_retain(0x2000_4001),
            ..Features::default()
        };
        assert_eq!(features.unreadable(), ["FEATURE_I31"]);
        assert_eq!(features.unwritable(), ["shared_blocks", "FEATURE_R29"]);
        assert_eq!(features.names()[..2], ["filetype", "extent"]);
    }
}
