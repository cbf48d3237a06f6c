//! Values of blocks: the data itself, or a reference to a block of a bulk object.

use std::fmt;

use bytes::Bytes;

use crate::place::runtime::random_uuid;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a reference in bytes. No block has this length, because block sizes are powers of two.
pub(crate) const REFERENCE_BYTES: usize = 37;
/// First byte of a reference. Other values are reserved for later versions.
const KIND: u8 = 1;

/// A reference as a value of the database. Numbers are big-endian.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReference {
    kind: u8,
    epoch: U64,
    number: [u8; 16],
    /// Index of the block in the object.
    index: U32,
    /// XXH3 (64 bits) of the block.
    checksum: U64,
}

const _: () = assert!(size_of::<RawReference>() == REFERENCE_BYTES);

/// Name of a bulk object. A name is used for one put only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectName {
    /// Epoch of the writer.
    pub(crate) epoch: u64,
    /// Random number.
    pub(crate) number: u128,
}

impl ObjectName {
    /// Returns a name that no other put uses.
    pub(crate) fn new(epoch: u64) -> Self {
        Self { epoch, number: random_uuid().as_u128() }
    }

    /// Parses the last two parts of an object's path.
    pub(crate) fn parse(epoch: &str, number: &str) -> Option<Self> {
        let name =
            Self { epoch: epoch.parse().ok()?, number: u128::from_str_radix(number, 16).ok()? };
        // Other spellings of the same numbers are not ours.
        (name.epoch.to_string() == epoch && name.digits() == number).then_some(name)
    }

    /// Returns the random number as it is in the path.
    pub(crate) fn digits(self) -> String {
        format!("{:032x}", self.number)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bulk/{}/{}", self.epoch, self.digits())
    }
}

/// Location and checksum of a block in a bulk object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) object: ObjectName,
    /// Index of the block in the object.
    pub(crate) index: u32,
    pub(crate) checksum: u64,
}

impl Reference {
    pub(crate) fn to_value(self) -> Bytes {
        let raw = RawReference {
            kind: KIND,
            epoch: self.object.epoch.into(),
            number: self.object.number.to_be_bytes(),
            index: self.index.into(),
            checksum: self.checksum.into(),
        };
        Bytes::copy_from_slice(raw.as_bytes())
    }

    /// Returns `None` if the value is not a reference, or has an unknown kind.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let raw = RawReference::read_from_bytes(value).ok()?;
        (raw.kind == KIND).then(|| Self {
            object: ObjectName { epoch: raw.epoch.get(), number: u128::from_be_bytes(raw.number) },
            index: raw.index.get(),
            checksum: raw.checksum.get(),
        })
    }
}

/// Returns the checksum of a block for its reference.
pub(crate) fn checksum(block: &[u8]) -> u64 {
    xxh3_64(block)
}

/// Contents of a block as the database stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockValue {
    /// The data of the block.
    Data(Bytes),
    /// The data is in a bulk object.
    Bulk(Reference),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_37_bytes_and_are_read_back() {
        let object = ObjectName { epoch: 7, number: 0x4c1f << 100 };
        let reference = Reference { object, index: 4095, checksum: 0x1122_3344_5566_7788 };
        let value = reference.to_value();
        let mut expected = vec![1, 0, 0, 0, 0, 0, 0, 0, 7];
        expected.extend((0x4c1f_u128 << 100).to_be_bytes());
        expected.extend([0, 0, 15, 255, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(value, expected);
        assert_eq!(Reference::parse(&value), Some(reference));
        let mut unknown = value.to_vec();
        unknown[0] = 2;
        for other in [&unknown[..], &value[1..], &[], &[1; 38]] {
            assert_eq!(Reference::parse(other), None);
        }
    }

    #[test]
    fn names_are_parsed_in_one_spelling() {
        let name = ObjectName { epoch: 12, number: 0xab };
        assert_eq!(name.to_string(), "bulk/12/000000000000000000000000000000ab");
        assert_eq!(ObjectName::parse("12", &name.digits()), Some(name));
        for (epoch, number) in [
            ("012", name.digits()),
            ("12", "ab".into()),
            ("12", name.digits().to_uppercase()),
            ("-1", name.digits()),
            ("12", "x".repeat(32)),
        ] {
            assert_eq!(ObjectName::parse(epoch, &number), None, "{epoch}/{number}");
        }
        assert_ne!(ObjectName::new(1), ObjectName::new(1));
    }
}
