//! Parsing and counting without files.

use disk::{BlockDevice, MemoryDevice};

use super::clusters::{Clusters, PAGE_CLUSTERS, Verdict, refcount};
use super::header::{ClusterMapping, HEADER_BYTES, l1_entry, l2_entry};
use super::{Qcow2Error, Qcow2Header, verify};

fn header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(b"QFI\xfb");
    for (at, value) in [(4, 3_u32), (20, 9), (36, 1), (56, 1), (96, 4), (100, 104)] {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    for (at, value) in [(24, 65536_u64), (40, 512), (48, 1024)] {
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

#[test]
fn refcounts_of_all_widths_are_read() {
    let bytes = [0b1010_0110, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0];
    assert_eq!(
        (0..8).map(|i| refcount(&bytes, 0, i)).collect::<Vec<_>>(),
        [0, 1, 1, 0, 0, 1, 0, 1]
    );
    assert_eq!((0..4).map(|i| refcount(&bytes, 1, i)).collect::<Vec<_>>(), [2, 1, 2, 2]);
    assert_eq!((refcount(&bytes, 2, 0), refcount(&bytes, 2, 1)), (6, 10));
    assert_eq!((refcount(&bytes, 3, 1), refcount(&bytes[1..], 4, 1)), (0x12, 0x5678));
    assert_eq!(refcount(&bytes[1..], 6, 0), 0x1234_5678_9abc_def0);
    assert_eq!(refcount(&bytes, 6, 1), 0);
}

#[test]
fn entries_are_distinguished() {
    let header = Qcow2Header::parse(&header()).unwrap();
    assert_eq!(l1_entry(0), ClusterMapping::None);
    assert_eq!(
        l1_entry(1 << 63 | 512),
        ClusterMapping::Cluster { offset: 512, is_exclusive: true }
    );
    assert_eq!(l1_entry(3), ClusterMapping::Reserved(3));
    assert_eq!(l2_entry(1, &header), ClusterMapping::None);
    assert_eq!(
        l2_entry(1024 | 1, &header),
        ClusterMapping::Cluster { offset: 1024, is_exclusive: false }
    );
    // With clusters of 512 bytes, the number of further sectors is one bit.
    assert_eq!(
        l2_entry(1 << 62 | 700, &header),
        ClusterMapping::Compressed { offset: 700, bytes: 324 }
    );
    assert_eq!(
        l2_entry(3 << 61 | 700, &header),
        ClusterMapping::Compressed { offset: 700, bytes: 836 }
    );
    assert_eq!(l2_entry(3 << 62, &header), ClusterMapping::Reserved(1 << 63));
}

#[test]
fn a_use_is_compared_with_the_refcount() {
    let mut clusters = Clusters::default();
    clusters.add_page(1, [0, 1, 2, 1, 1].into_iter());
    let at = PAGE_CLUSTERS;
    assert_eq!(clusters.claim(0, false), Verdict::Uncounted);
    assert_eq!(clusters.claim(at, false), Verdict::Uncounted);
    assert_eq!(clusters.claim(at + 1, false), Verdict::Fine);
    assert_eq!(clusters.claim(at + 1, false), Verdict::Metadata);
    assert_eq!(clusters.refer(at + 1, 1, false), Verdict::Metadata);
    assert_eq!(clusters.refer(at + 2, 1, true), Verdict::CountedAgain);
    assert_eq!(clusters.refer(at + 3, 1, true), Verdict::Fine);
    assert_eq!(clusters.refer(at + 3, 2, false), Verdict::Fine);
    assert_eq!(clusters.refer(at + 4, 1, false), Verdict::Fine);
    assert_eq!(clusters.shared().collect::<Vec<_>>(), [(at + 3, 3)]);
}

#[test]
fn all_short_and_mangled_headers_are_refused() {
    assert!(matches!(verify(&MemoryDevice::new(0)), Err(Qcow2Error::Magic { .. })));
    let sound = header();
    assert!(Qcow2Header::parse(&sound).is_ok());
    for at in 0..HEADER_BYTES {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = sound;
            bytes[at] = value;
            let device = MemoryDevice::new(HEADER_BYTES as u64);
            device.write_at(0, &bytes).unwrap();
            // The file ends after its header, so nothing else can be valid.
            assert!(verify(&device).is_err(), "byte {at} as {value}");
        }
    }
}
