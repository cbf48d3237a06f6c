//! UUIDs derived from the contents of an image, so that the same source gives the same image.

use ext4::mkfs::Tuning;
use import::{Entry, EntryKind};
use xxhash_rust::xxh3::Xxh3;

use super::policy::Policy;
use super::{BuildOptions, Format};

/// Domain separator; changes with the version of the hash.
const DOMAIN: u64 = 0x6469_736b_7772_6774;

/// Running hash of all contents of an image.
pub(super) struct Identity {
    hash: Xxh3,
}

impl Identity {
    pub(super) fn new(options: &BuildOptions) -> Self {
        let mut hash = Xxh3::with_seed(DOMAIN);
        hash.update(options.label.as_deref().unwrap_or_default());
        for value in [options.size, options.inodes, options.bytes_per_inode] {
            hash.update(&value.map_or(u64::MAX, |v| v).to_le_bytes());
        }
        for feature in &options.features {
            hash.update(feature.name.as_bytes());
            hash.update(&[u8::from(feature.is_on)]);
        }
        if let Some(place) = &options.last_mounted {
            hash.update(b"last mounted");
            hash.update(place);
        }
        if options.format == Format::Xfs {
            hash.update(b"xfs");
        }
        let mut identity = Self { hash };
        identity.add_geometry(options);
        identity.add_tuning(&options.tuning);
        identity.add_protection(&options.output.fs_verity);
        identity
    }

    /// Adds the other layout options. Images of one source with different layouts are different file systems; kernels
    /// refuse to mount two with the same UUID.
    fn add_geometry(&mut self, options: &BuildOptions) {
        let choices = [
            ("block size", options.block_size.map(u64::from)),
            ("inode size", options.inode_size.map(u64::from)),
            ("directory block size", options.dir_block_size.map(u64::from)),
            ("groups", options.ag_count.map(u64::from)),
            ("group size", options.ag_bytes),
            ("log size", options.log_bytes),
            ("log group", options.log_group.map(u64::from)),
            ("log device", options.log_device.as_ref().map(|_| 1)),
            ("realtime device", options.realtime_device.as_ref().map(|_| 1)),
            ("realtime size", options.realtime_bytes),
            ("realtime extent", options.realtime_extent_bytes.map(u64::from)),
            ("realtime group size", options.realtime_group_bytes),
            ("realtime groups", options.realtime_group_count.map(u64::from)),
            ("log stripe", options.log_stripe_bytes.map(u64::from)),
            ("stripe unit", options.xfs_stripe.map(|stripe| stripe.unit_bytes.into())),
            ("stripe width", options.xfs_stripe.map(|stripe| stripe.units.into())),
            ("atomic writes", options.xfs_atomic_write_bytes),
            ("quotas", Some(options.xfs_quota_flags).filter(|flags| *flags != 0).map(u64::from)),
            ("autofsck", options.xfs_autofsck.map(|value| value as u64)),
            ("journal size", options.journal_bytes),
            ("sector size", options.sector_size.map(u64::from)),
            ("reserved", options.reserved_percent.map(f64::to_bits)),
            ("inode space", options.inodes_percent.map(u64::from)),
            ("minimum size", Some(options.size_min).filter(|bytes| *bytes > 0)),
            ("free space", Some(options.free).filter(|bytes| *bytes > 0)),
            ("no journal", options.no_journal.then_some(1)),
            ("dm-verity", options.output.verity.as_ref().map(|_| 1)),
            ("dedupe", options.dedupe.map(|unit| unit as u64)),
            ("sparse", options.sparse.then_some(1)),
            ("offset", Some(options.offset).filter(|bytes| *bytes > 0)),
        ];
        for (name, value) in choices {
            if let Some(value) = value {
                self.field(name.as_bytes());
                self.hash.update(&value.to_le_bytes());
            }
        }
    }

    /// Adds settings that differ from the default.
    fn add_tuning(&mut self, tuning: &Tuning) {
        if *tuning != Tuning::default() {
            self.field(format!("{tuning:?}").as_bytes());
        }
    }

    /// Adds the patterns of fs-verity files.
    fn add_protection(&mut self, patterns: &[String]) {
        for pattern in patterns {
            self.field(b"fs-verity");
            self.field(pattern.as_bytes());
        }
    }

    /// Adds the size of the target device.
    pub(super) fn add_device(&mut self, bytes: u64) {
        self.field(b"device");
        self.hash.update(&bytes.to_le_bytes());
    }

    /// Adds an entry as changed by `policy`, without file contents. Values replaced by the policy are not in the image
    /// and therefore not in the hash.
    pub(super) fn add(&mut self, entry: &Entry, policy: &Policy) {
        let metadata = &entry.metadata;
        let owner = policy.owner_of(metadata);
        let mtime = policy.clamped(metadata.mtime);
        self.field(&entry.path);
        self.hash.update(&metadata.permissions.to_le_bytes());
        self.hash.update(&owner.uid.to_le_bytes());
        self.hash.update(&owner.gid.to_le_bytes());
        self.hash.update(&mtime.sec.to_le_bytes());
        self.hash.update(&mtime.nsec.to_le_bytes());
        match &entry.kind {
            EntryKind::Directory => self.hash.update(b"d"),
            EntryKind::File(content) => {
                self.hash.update(b"f");
                self.hash.update(&content.size().to_le_bytes());
            }
            EntryKind::Symlink(target) => {
                self.hash.update(b"l");
                self.field(target);
            }
            EntryKind::Hardlink(target) => {
                self.hash.update(b"h");
                self.field(target);
            }
            EntryKind::CharDevice { major, minor } => self.device(b"c", *major, *minor),
            EntryKind::BlockDevice { major, minor } => self.device(b"b", *major, *minor),
            EntryKind::Fifo => self.hash.update(b"p"),
            EntryKind::Socket => self.hash.update(b"s"),
        }
        for xattr in &entry.xattrs {
            self.field(&xattr.name);
            self.field(&xattr.value);
        }
        if let Some(inode) = &entry.inode {
            let attributes = &inode.attributes;
            self.hash.update(&attributes.flags.bits().to_le_bytes());
            let hints = [attributes.extent_size_bytes, attributes.cow_extent_size_bytes];
            for value in [[attributes.project_id, 0], hints].concat() {
                self.hash.update(&value.to_le_bytes());
            }
        }
    }

    /// Adds the checksum of all file contents.
    pub(super) fn add_contents(&mut self, sum: u64) {
        self.hash.update(&sum.to_le_bytes());
    }

    fn field(&mut self, bytes: &[u8]) {
        self.hash.update(&(bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn device(&mut self, kind: &[u8], major: u32, minor: u32) {
        self.hash.update(kind);
        self.hash.update(&major.to_le_bytes());
        self.hash.update(&minor.to_le_bytes());
    }

    /// Returns a UUID (version 8, RFC 9562) of everything added.
    pub(super) fn uuid(&self) -> [u8; 16] {
        to_uuid(self.hash.digest128())
    }
}

/// Unit of content hashing, in bytes. Copied and streamed contents are split at different offsets, but always at
/// multiples of this unit if the file consists of whole pages.
pub(super) const GRANULE_BYTES: u64 = 4096;

/// Returns the contribution of a file's bytes to the image hash. Contributions are added up in any order. Zeros at the
/// ends of a granule are excluded, because a hole inside a block may be read as zeros or skipped.
pub(super) fn contents_term(file_offset: u64, bytes: &[u8]) -> u64 {
    let (mut sum, mut at, mut rest) = (0_u64, file_offset, bytes);
    while !rest.is_empty() {
        let len = (GRANULE_BYTES - at % GRANULE_BYTES).min(rest.len() as u64);
        let (granule, more) = rest.split_at(len as usize);
        if let Some(first) = granule.iter().position(|byte| *byte != 0) {
            let last = granule.iter().rposition(|byte| *byte != 0).unwrap_or(first);
            let seed = DOMAIN ^ (at + first as u64);
            let term = xxhash_rust::xxh3::xxh3_64_with_seed(&granule[first..=last], seed);
            sum = sum.wrapping_add(term);
        }
        (at, rest) = (at + len, more);
    }
    sum
}

/// Returns an initial UUID and hash seed derived from the options.
pub(super) fn from_options(options: &BuildOptions) -> ([u8; 16], [u8; 16]) {
    let identity = Identity::new(options);
    let mut seed = identity.hash.clone();
    seed.update(b"hash seed");
    (identity.uuid(), to_uuid(seed.digest128()))
}

fn to_uuid(hash: u128) -> [u8; 16] {
    uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::contents_term;

    #[test]
    fn contents_count_the_same_however_they_are_cut() {
        let mut bytes: Vec<u8> = (0..50_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        bytes[10_000..20_000].fill(0);
        let whole = contents_term(8192, &bytes);
        let cut = |at: usize| {
            contents_term(8192, &bytes[..at])
                .wrapping_add(contents_term(8192 + at as u64, &bytes[at..]))
        };
        assert_eq!([4096, 8192, 40_960].map(cut), [whole; 3]);
        // Skipping the hole.
        let around = contents_term(8192, &bytes[..10_000])
            .wrapping_add(contents_term(8192 + 20_000, &bytes[20_000..]));
        assert_eq!(around, whole);
        assert_ne!(contents_term(4096, &bytes), whole);
        bytes[0] ^= 1;
        assert_ne!(contents_term(8192, &bytes), whole);
    }
}
