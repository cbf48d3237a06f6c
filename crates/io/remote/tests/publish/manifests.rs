//! Parsing of arbitrary bytes as manifests.

use proptest::prelude::*;
use remote::publish::manifest::{MAGIC, ManifestError};
use remote::publish::{Digest, Facts, Manifest};

fn manifest(stored: &[bool], order: &[u32], label: &str) -> Manifest {
    let numbers = (0_u32..).zip(stored).filter(|(_, stored)| **stored).map(|(number, _)| number);
    let chunks = numbers.map(|number| (number, Digest::of(&number.to_le_bytes())));
    let facts = Facts { label: label.into(), ..Facts::default() };
    let bytes = (stored.len() as u64 * 4096).saturating_sub(77);
    let mut manifest = Manifest::new(facts, bytes, 4096, chunks).unwrap();
    manifest.set_order(order.iter().copied());
    manifest
}

/// Returns a manifest with a changed head.
fn with_head(bytes: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let head = change(String::from_utf8(bytes[12..12 + len].to_vec()).unwrap());
    [&MAGIC[..], &(head.len() as u32).to_le_bytes(), head.as_bytes(), &bytes[12 + len..]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn written_values_can_be_read(
        stored in prop::collection::vec(any::<bool>(), 1..200),
        order in prop::collection::vec(0_u32..250, 0..50),
        label in ".{0,20}",
    ) {
        let written = manifest(&stored, &order, &label);
        let read = Manifest::parse(&written.to_bytes()).unwrap();
        prop_assert_eq!(&read, &written);
        for (number, stored) in (0_u32..).zip(&stored) {
            let digest = stored.then(|| Digest::of(&number.to_le_bytes()));
            prop_assert_eq!(read.digest_of(number), digest);
        }
        prop_assert_eq!(read.digest_of(stored.len() as u32), None);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), is_magic: bool) {
        if is_magic && bytes.len() >= MAGIC.len() {
            bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        }
        prop_assert!(Manifest::parse(&bytes).is_err());
    }

    #[test]
    fn changed_bytes_are_detected_or_valid(
        stored in prop::collection::vec(any::<bool>(), 1..50),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = manifest(&stored, &[1, 2, 3], "x").to_bytes();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(read) = Manifest::parse(&bytes) {
            prop_assert!(Manifest::parse(&read.to_bytes()).unwrap() == read);
            prop_assert!(read.digests().len() <= stored.len());
        }
    }

    #[test]
    fn a_truncated_manifest_is_invalid(stored in prop::collection::vec(any::<bool>(), 1..50), cut in any::<prop::sample::Index>()) {
        let bytes = manifest(&stored, &[0], "x").to_bytes();
        prop_assert!(Manifest::parse(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

#[test]
fn wrong_sizes_are_reported_by_name() {
    let bytes = manifest(&[true, false, true], &[0], "x").to_bytes();
    let lie = |from: &str, to: &str| {
        let lying = with_head(&bytes, |head| {
            assert!(head.contains(from), "{head}");
            head.replace(from, to)
        });
        Manifest::parse(&lying).unwrap_err()
    };
    let stored = "\"chunks_stored\":2";
    assert!(matches!(lie(stored, "\"chunks_stored\":4294967295"), ManifestError::Length { .. }));
    assert!(matches!(lie("\"runs\":2", "\"runs\":4294967295"), ManifestError::Length { .. }));
    assert!(matches!(lie("\"order\":1", "\"order\":0"), ManifestError::Length { .. }));
    assert_eq!(lie("\"version\":1", "\"version\":2"), ManifestError::Version(2));
    assert!(matches!(lie("12211", "18446744073709551615"), ManifestError::Size { .. }));
    assert!(matches!(lie("12211", "4096"), ManifestError::Run { number: 1, .. }));
    assert!(matches!(
        lie("\"chunk_bytes\":4096", "\"chunk_bytes\":4095"),
        ManifestError::Size { .. }
    ));
    assert!(matches!(lie("\"version\":1", "\"version\":x"), ManifestError::Head(_)));
}

#[test]
fn orders_of_chunks_that_are_not_stored_are_reported() {
    let mut bytes = manifest(&[true, false, true], &[0], "x").to_bytes();
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&1_u32.to_le_bytes());
    assert_eq!(Manifest::parse(&bytes), Err(ManifestError::Order(1)));
}
