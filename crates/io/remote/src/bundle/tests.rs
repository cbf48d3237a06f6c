use zerocopy::{FromBytes, IntoBytes};

use super::format::{FRAME_BYTES, HEADER_BYTES, UNIT_BYTES};
use super::*;
use crate::digest::Digest;

fn identity() -> Identity {
    Identity::Hosted { head: Digest::of(b"x"), etag: Some("\"a\"".into()), modified: Some(7) }
}

fn unit(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..UNIT_BYTES).map(|_| random.u8(0..3)).collect()
}

/// Returns a bundle of units 3, 4, 9 (zeros), 1 and 100 to 299, and of unit 50 as data.
fn sample() -> Encoded {
    let mut writer = Writer::new(1000 * UNIT_BYTES - 7).unwrap();
    for number in [3, 4] {
        writer.add(number, &unit(number));
    }
    writer.add(9, &[0; UNIT_BYTES as usize]);
    for number in [1].into_iter().chain(100..300) {
        writer.add(number, &unit(number));
    }
    writer.end_metadata();
    writer.add(50, &unit(50));
    writer.finish(&identity()).unwrap()
}

fn parse(bytes: &[u8]) -> Result<(Head, Tables), BundleError> {
    let head = Head::parse(bytes)?;
    let rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let tables = &rest[..rest.len().min(head.tables_bytes() as usize)];
    Tables::parse(&head, tables).map(|tables| (head, tables))
}

fn stream(bytes: &[u8]) -> Result<Vec<u8>, BundleError> {
    let (_, tables) = parse(bytes)?;
    let mut stream = Vec::new();
    for number in 0..tables.frames() {
        let (start, len) = tables.frame_location(number);
        let stored = &bytes[start as usize..][..len as usize];
        stream.extend(tables.unpack(number, stored)?);
    }
    Ok(stream)
}

#[test]
fn a_bundle_has_its_units_in_order() {
    let bundle = sample();
    let (head, tables) = parse(&bundle.bytes).unwrap();
    assert_eq!(head.digest(), bundle.digest);
    assert_eq!(head.bundle_bytes, bundle.bytes.len() as u64);
    assert_eq!(tables.identity, identity());
    assert_eq!(tables.metadata_bytes(), 203 * UNIT_BYTES);
    assert_eq!((bundle.metadata_bytes, bundle.start_bytes), (203 * UNIT_BYTES, UNIT_BYTES));
    assert!(tables.frames() > 1 && tables.stream_bytes() == 204 * UNIT_BYTES);
    let stream = stream(&bundle.bytes).unwrap();
    for (range, source) in tables.index.parts(0..1000 * UNIT_BYTES - 7) {
        let is_in = |unit: u64| matches!(unit, 1 | 3 | 4 | 50 | 100..300);
        let first = range.start / UNIT_BYTES;
        match source {
            ExtentSource::Image => assert!(!is_in(first) && first != 9),
            ExtentSource::Zeros => assert_eq!(range, 9 * UNIT_BYTES..10 * UNIT_BYTES),
            ExtentSource::Stream(at) => {
                assert!(is_in(first));
                let found = &stream[at as usize..][..UNIT_BYTES as usize];
                assert!(found == unit(first), "unit {first}");
            }
        }
    }
    let end = 1000 * UNIT_BYTES - 7;
    let last = tables.index.parts(0..end).last().unwrap();
    assert_eq!(last, (300 * UNIT_BYTES..end, ExtentSource::Image));
}

#[test]
fn parts_begin_and_end_anywhere() {
    let bundle = sample();
    let index = parse(&bundle.bytes).unwrap().1.index;
    let parts: Vec<_> = index.parts(4 * UNIT_BYTES + 10..9 * UNIT_BYTES + 5).collect();
    let expected = [
        (4 * UNIT_BYTES + 10..5 * UNIT_BYTES, ExtentSource::Stream(UNIT_BYTES + 10)),
        (5 * UNIT_BYTES..9 * UNIT_BYTES, ExtentSource::Image),
        (9 * UNIT_BYTES..9 * UNIT_BYTES + 5, ExtentSource::Zeros),
    ];
    assert_eq!(parts, expected);
    assert!(index.overlaps(&(0..2 * UNIT_BYTES)) && !index.overlaps(&(0..UNIT_BYTES)));
    assert_eq!(index.parts(7..7).count(), 0);
}

/// No damage of a byte goes unnoticed, and none causes a panic.
#[test]
fn damage_is_noticed() {
    let bundle = sample();
    let expected = stream(&bundle.bytes).unwrap();
    let step = (bundle.bytes.len() / 60).max(1);
    let places =
        (0..HEADER_BYTES + 200).chain((HEADER_BYTES + 200..bundle.bytes.len()).step_by(step));
    for at in places {
        let mut damaged = bundle.bytes.clone();
        damaged[at] ^= 0x24;
        let found = stream(&damaged);
        // Bytes of a zstd frame may have no meaning.
        let is_harmless = at > HEADER_BYTES + 200 && found.as_ref() == Ok(&expected);
        assert!(found.is_err() || is_harmless, "byte {at}");
    }
    for len in [0, 7, 8, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 20] {
        assert!(parse(&bundle.bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn tables_that_contradict_each_other_are_refused() {
    let cases: [(&[u8], u32); 7] = [
        // An extent of no units.
        (&[0, 0], 1),
        // Past the end of the image.
        (&[0, 250], 1),
        // Before the start of the image.
        (&[1, 2], 1),
        // Overlapping.
        (&[0, 4, 1, 2], 2),
        // Cut short, and longer than the count.
        (&[0, 4, 0], 2),
        (&[0, 4, 0, 2], 1),
        // A number without an end.
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1),
    ];
    for (table, count) in cases {
        let found = Index::parse(table, count, 100);
        assert!(matches!(found, Err(BundleError::Extent { .. })), "{table:?}: {found:?}");
    }
    assert_eq!(Index::parse(&[0, 4, 4, 3], 2, 100).unwrap().units(), 2);
}

#[test]
fn a_bundle_belongs_to_one_version() {
    let of = |head: &[u8], etag: Option<&str>, modified| Identity::Hosted {
        head: Digest::of(head),
        etag: etag.map(str::to_owned),
        modified,
    };
    let contents = |of: &[u8]| Identity::Published { contents: Digest::of(of) };
    let fits = |bundle: &Identity, image: &Identity| bundle.check(image).is_ok();
    let strong = of(b"x", Some("\"a\""), Some(7));
    assert!(fits(&strong, &strong) && fits(&strong, &of(b"x", Some("\"a\""), None)));
    assert!(!fits(&strong, &of(b"x", Some("\"b\""), Some(7))));
    assert!(!fits(&strong, &of(b"x", None, Some(7))));
    assert!(!fits(&strong, &of(b"y", Some("\"a\""), Some(7))));
    assert!(!fits(&strong, &contents(b"x")));
    let weak = of(b"x", Some("W/\"a\""), Some(7));
    assert!(fits(&weak, &weak) && !fits(&weak, &of(b"x", Some("W/\"a\""), Some(8))));
    let file = of(b"x", None, Some(7));
    assert!(fits(&file, &of(b"x", Some("\"any\""), Some(7))));
    assert!(
        !fits(&file, &of(b"x", Some("\"any\""), None)) && !fits(&file, &of(b"z", None, Some(7)))
    );
    let untied = of(b"x", None, None);
    assert!(!fits(&untied, &untied));
    assert!(fits(&contents(b"x"), &contents(b"x")) && !fits(&contents(b"x"), &contents(b"y")));
}

#[test]
fn an_empty_bundle_is_valid() {
    let bundle = Writer::new(10).unwrap().finish(&identity()).unwrap();
    let (_, tables) = parse(&bundle.bytes).unwrap();
    assert_eq!((tables.frames(), tables.stream_bytes()), (0, 0));
    assert!(FRAME_BYTES.is_multiple_of(UNIT_BYTES));
    assert!(Writer::new(1 << 45).is_err());
}

/// Corrects the digests of a header and of the tables that it describes.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let (mut raw, rest) = format::RawHeader::read_from_prefix(&bytes).unwrap();
    let frames = u64::from(raw.frames.get()) * size_of::<format::RawFrame>() as u64;
    let tables = u64::from(raw.identity_bytes.get())
        .saturating_add(frames)
        .saturating_add(raw.extents_bytes.get())
        .min(rest.len() as u64);
    raw.tables_digest = Digest::of(&rest[..tables as usize]).0;
    format::seal(&mut raw);
    bytes[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
    bytes
}

/// A bundle with valid digests and arbitrary values is an error, or all its parts are consistent.
#[test]
fn sealed_garbage_is_refused_or_consistent() {
    let bundle = sample().bytes;
    assert_eq!(sealed(bundle.clone()), bundle);
    let tables_end = HEADER_BYTES + Head::parse(&bundle).unwrap().tables_bytes() as usize;
    let mut random = fastrand::Rng::with_seed(11);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = bundle[..tables_end + 100].to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(8..tables_end);
            bytes[at] = if random.bool() { random.u8(..) } else { bytes[at].wrapping_add(1) };
        }
        let Ok((head, tables)) = parse(&sealed(bytes)) else { continue };
        accepted += 1;
        let mut end = 0;
        for (part, source) in tables.index.parts(0..head.image_bytes) {
            assert!(part.start == end && part.end > end);
            end = part.end;
            if let ExtentSource::Stream(at) = source {
                assert!(at + (part.end - part.start) <= tables.stream_bytes());
            }
        }
        assert_eq!(end, head.image_bytes);
        let frames = (0..tables.frames()).map(|number| tables.frame_location(number));
        frames.for_each(|(start, len)| assert!(start + u64::from(len) <= head.bundle_bytes));
    }
    assert!(accepted > 100, "{accepted}");
}
