use super::*;
use crate::{Event, MemoryDevice, RecordingDevice};

const LEN: u64 = 40 * BLOCK_BYTES + 1000;

fn about() -> About {
    About {
        base: "s3://bucket/disk".into(),
        identity: "s3://bucket/disk 7 bytes".into(),
        longer: None,
    }
}

fn below() -> Arc<dyn BlockDevice> {
    let below = MemoryDevice::new(LEN);
    below.write_at(0, &vec![7; LEN as usize]).unwrap();
    Arc::new(below)
}

fn storage() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(OverlayFile::file_bytes(LEN).unwrap()))
}

fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn writes_go_to_the_overlay_and_not_to_the_base() {
    let (below, storage) = (below(), storage());
    let device = OverlayFile::create(storage.clone(), below.clone(), &about()).unwrap();
    let mut expected = vec![7; LEN as usize];
    let writes = [(10, 5000, 1), (8192, 4096, 2), (LEN - 3, 3, 3), (30_000, 50_000, 4), (0, 1, 5)];
    for (at, len, byte) in writes {
        device.write_at(at, &vec![byte; len]).unwrap();
        expected[at as usize..at as usize + len].fill(byte);
    }
    device.zero_range(LEN - 10_000, 9_999).unwrap();
    expected[LEN as usize - 10_000..LEN as usize - 1].fill(0);
    assert!(contents(&device) == expected);
    assert!(device.write_at(LEN - 1, &[0; 2]).is_err());
    device.flush().unwrap();
    drop(device);
    let device = OverlayFile::open(storage.clone(), below.clone(), &about().identity).unwrap();
    assert!(contents(&device) == expected);
    let written = [0..12_288, 28_672..81_920, LEN / 4096 * 4096 - 12_288 + 4096..LEN];
    assert_eq!(device.written()[..2], written[..2]);
    assert!(contents(&*below).iter().all(|&byte| byte == 7));
    device.discard(8192, 4096).unwrap();
    device.discard(20_480, 4096).unwrap();
    let after = contents(&device);
    assert!(after[8192..12_288].iter().all(|&byte| byte == 0));
    assert!(after[20_480..24_576].iter().all(|&byte| byte == 7));
}

#[test]
fn another_base_damage_and_other_files_are_refused() {
    let (below, storage) = (below(), storage());
    let open = |identity: &str| match OverlayFile::open(storage.clone(), below.clone(), identity) {
        Ok(_) => panic!("it is accepted"),
        Err(error) => error.to_string(),
    };
    assert!(open("x").contains("not an overlay file"));
    let device = OverlayFile::create(storage.clone(), below.clone(), &about()).unwrap();
    device.write_at(0, &[1; 5000]).unwrap();
    device.flush().unwrap();
    let told = open("another");
    assert!(told.contains("s3://bucket/disk 7 bytes") && told.contains("another"), "{told}");
    assert_eq!(About::read(&*storage).unwrap(), (about(), LEN));
    let identity = &about().identity;
    let spoil = |at: u64| {
        let mut byte = [0];
        storage.read_at(at, &mut byte).unwrap();
        storage.write_at(at, &[byte[0] ^ 1]).unwrap();
    };
    spoil(20);
    assert!(open(identity).contains("a wrong checksum"));
    spoil(20);
    // A page that was written twice, with both slots damaged.
    device.write_at(100_000, &[1]).unwrap();
    device.flush().unwrap();
    spoil(HEADER_BYTES + 100);
    assert!(OverlayFile::open(storage.clone(), below.clone(), identity).is_ok());
    spoil(HEADER_BYTES + 4096 + 100);
    assert!(open(identity).contains("page 0 of its index"));
    let name = About { base: "x".repeat(5000), identity: String::new(), longer: None };
    assert!(OverlayFile::create(storage.clone(), below.clone(), &name).is_err());
    assert!(OverlayFile::file_bytes(u64::MAX).is_err());
    let short = Arc::new(MemoryDevice::new(HEADER_BYTES + 100));
    assert!(OverlayFile::create(short, below.clone(), &about()).is_err());
}

#[test]
fn an_overlay_can_be_longer_than_its_base() {
    let longer = LEN + 10_000;
    let about = About { longer: Some(longer), ..about() };
    let storage = Arc::new(MemoryDevice::new(OverlayFile::file_bytes(longer).unwrap()));
    let device = OverlayFile::create(storage.clone(), below(), &about).unwrap();
    assert_eq!(device.len(), longer);
    let mut expected = vec![7; LEN as usize];
    expected.resize(longer as usize, 0);
    assert!(contents(&device) == expected);
    // The block at the end of the base, and one after it.
    for at in [LEN - 10, longer - 1] {
        device.write_at(at, &[5; 1]).unwrap();
        expected[at as usize] = 5;
    }
    device.flush().unwrap();
    drop(device);
    let device = OverlayFile::open(storage.clone(), below(), &about.identity).unwrap();
    assert!(contents(&device) == expected);
    assert_eq!(About::read(&*storage).unwrap(), (about.clone(), LEN));
    let shorter = About { longer: Some(LEN), ..about };
    assert!(matches!(
        OverlayFile::create(storage, below(), &shorter),
        Err(OverlayError::TooShort { .. })
    ));
}

/// Applies events as after a crash: all before the last flush, and those after it for which `keeps` returns true. The
/// last of these may be torn.
fn after_crash(events: &[Event], keeps: impl Fn(usize) -> bool, cut: bool) -> Arc<MemoryDevice> {
    let device = storage();
    let flushed = events.iter().rposition(|event| *event == Event::Flush).map_or(0, |at| at + 1);
    let kept = (0..events.len()).filter(|&at| at < flushed || keeps(at)).collect::<Vec<_>>();
    for &at in &kept {
        match &events[at] {
            Event::Write { offset, data } if cut && at >= flushed && Some(&at) == kept.last() => {
                device.write_at(*offset, &data[..data.len() / 2]).unwrap();
            }
            event => event.replay(&*device).unwrap(),
        }
    }
    device
}

#[test]
fn a_crash_at_any_write_leaves_what_was_flushed() {
    let (below, recording) = (below(), Arc::new(RecordingDevice::new(storage())));
    let device = OverlayFile::create(recording.clone(), below.clone(), &about()).unwrap();
    let mut states = Vec::new();
    let mut values = vec![7_u8; 41];
    for round in 0..6_u8 {
        for step in 0..5_u64 {
            // Each block has one value per round, which identifies its write.
            let block = (u64::from(round) * 3 + step * 7) % 40;
            values[block as usize] = 10 + round;
            device.write_at(block * BLOCK_BYTES, &[10 + round; BLOCK_BYTES as usize]).unwrap();
        }
        device.flush().unwrap();
        states.push((recording.event_count(), values.clone()));
    }
    let events = recording.take();
    for end in 1..=events.len() {
        let flushed = states.iter().rev().find(|(count, _)| *count <= end);
        for variant in 0..4 {
            let keeps = |at: usize| variant < 2 || (at + variant).is_multiple_of(2);
            let storage = after_crash(&events[..end], keeps, variant % 2 == 1);
            let device = match OverlayFile::open(storage, below.clone(), &about().identity) {
                Ok(device) => device,
                // Nothing is guaranteed before the header is durable.
                Err(_) if end < 2 => continue,
                Err(error) => panic!("after {end} events, variant {variant}: {error}"),
            };
            let found = contents(&device);
            let round = states.iter().filter(|(count, _)| *count <= end).count() as u8;
            for block in 0..40 {
                let bytes = &found[block * 4096..(block + 1) * 4096];
                let before = flushed.map_or(7, |(_, values)| values[block]);
                let newer = |byte: u8| byte == before || byte == 10 + round;
                assert!(
                    bytes.iter().all(|&byte| newer(byte)),
                    "block {block} has {} after {end} events, and had {before}",
                    bytes[0]
                );
            }
        }
    }
}
