//! Undo files, including truncated ones.

use super::*;
use disk::MemoryDevice;

const LEN: u64 = 10 * PAGE_BYTES + 100;

/// The appended bytes, and the number of durable ones.
#[derive(Clone, Default)]
struct SharedBytes(Arc<Mutex<(Vec<u8>, usize)>>);

impl UndoSink for SharedBytes {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().0.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.1 = state.0.len();
        Ok(())
    }
}

fn image() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(LEN);
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
    device.write_at(0, &bytes).unwrap();
    Arc::new(device)
}

fn all(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Runs a repair of some pages. Returns the image and its undo file.
fn repaired(finish: bool) -> (Arc<MemoryDevice>, Vec<u8>) {
    let (image, sink) = (image(), SharedBytes::default());
    let device = UndoDevice::begin(image.clone(), Box::new(sink.clone())).unwrap();
    device.save([1, 2]).unwrap();
    device.write_at(PAGE_BYTES + 5, &[0xaa; 5000]).unwrap();
    // A page that was not saved in advance, and the end of the image.
    device.write_at(7 * PAGE_BYTES, &[0xbb; 10]).unwrap();
    device.zero_range(LEN - 50, 50).unwrap();
    device.write_at(PAGE_BYTES, &[0xcc; 3]).unwrap();
    if finish {
        device.finish(&[10 * PAGE_BYTES..LEN, 0..10]).unwrap();
    }
    let state = sink.0.lock();
    assert_eq!(state.0.len(), state.1, "all is durable");
    (image, state.0.clone())
}

#[test]
fn an_image_is_brought_back_byte_by_byte() {
    for finish in [false, true] {
        let (device, undo) = repaired(finish);
        assert_ne!(all(&*device), all(&*image()));
        let restored = restore(&*device, &undo[..]).unwrap();
        assert_eq!(restored, Restored { pages: 4, was_finished: finish });
        assert_eq!(all(&*device), all(&*image()));
        // Again, as after an interruption at the end.
        assert_eq!(restore(&*device, &undo[..]).unwrap().pages, 0);
    }
}

#[test]
fn durable_records_suffice_to_undo_at_any_moment() {
    struct Check {
        image: Arc<MemoryDevice>,
        sink: SharedBytes,
    }
    impl BlockDevice for Check {
        fn len(&self) -> u64 {
            self.image.len()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.image.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.image.write_at(offset, data)?;
            // A crash at this point: the part of the undo file that is not durable is lost.
            let state = self.sink.0.lock();
            let crashed = MemoryDevice::from_bytes(&all(&*self.image));
            restore(&crashed, &state.0[..state.1]).unwrap();
            assert_eq!(all(&crashed), all(&*image()));
            Ok(())
        }
        fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
            self.image.zero_range(offset, len)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = SharedBytes::default();
    let inner = Arc::new(Check { image: image(), sink: sink.clone() });
    let device = UndoDevice::begin(inner, Box::new(sink)).unwrap();
    for at in [0, 5000, 4000, 9000, 5000, LEN - 10] {
        device.write_at(at, &[at as u8 ^ 0x55; 10]).unwrap();
    }
}

#[test]
fn a_torn_end_is_passed_over_and_damage_is_no_undo_file() {
    let (device, undo) = repaired(true);
    let changed = all(&*device);
    for len in 0..undo.len() {
        if len > 200 && len % 97 != 0 {
            continue;
        }
        let copy = MemoryDevice::from_bytes(&changed);
        match restore(&copy, &undo[..len]) {
            Ok(restored) => assert!(!restored.was_finished && restored.pages <= 4),
            Err(RestoreError::NotAnUndoFile) => assert!(len < HEADER_BYTES),
            Err(error) => panic!("{len}: {error}"),
        }
    }
    let mut damaged = undo.clone();
    damaged[9] ^= 1;
    let error = restore(&*device, &damaged[..]).unwrap_err();
    assert!(matches!(error, RestoreError::NotAnUndoFile));
    assert_eq!(all(&*device), changed, "nothing is written then");
}

#[test]
fn an_image_that_was_changed_since_stays() {
    let (device, undo) = repaired(true);
    device.write_at(2 * PAGE_BYTES, &[1]).unwrap();
    let changed = all(&*device);
    let error = restore(&*device, &undo[..]).unwrap_err();
    assert!(matches!(error, RestoreError::Changed(at) if at == 2 * PAGE_BYTES), "{error}");
    assert_eq!(all(&*device), changed);
    // A change elsewhere is detected by a witness.
    let (device, undo) = repaired(true);
    device.write_at(100, &[0xee]).unwrap();
    assert!(matches!(restore(&*device, &undo[..]), Err(RestoreError::Changed(0))));
    let other = MemoryDevice::new(LEN + 1);
    assert!(matches!(restore(&other, &undo[..]), Err(RestoreError::OtherImage { .. })));
}

/// A disk that is full, or fails, for a number of appends and syncs.
struct Failing {
    bytes: Arc<Mutex<Vec<u8>>>,
    calls: u32,
    fails_at: u32,
}

impl Failing {
    fn fails(&mut self) -> bool {
        self.calls += 1;
        self.calls == self.fails_at
    }
}

impl UndoSink for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_whole = !self.fails();
        let len = if is_whole { bytes.len() } else { bytes.len() / 2 };
        self.bytes.lock().extend_from_slice(&bytes[..len]);
        if is_whole { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.fails() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn nothing_is_written_once_the_undo_file_cannot_be() {
    for fails_at in 3..10 {
        let (device, bytes) = (image(), Arc::new(Mutex::new(Vec::new())));
        let sink = Failing { bytes: bytes.clone(), calls: 0, fails_at };
        let kept = UndoDevice::begin(device.clone(), Box::new(sink)).unwrap();
        let mut has_failed = false;
        // A caller may retry the write.
        for at in [0, 5000, 0, 5000, 20_000, 9000, 25_000] {
            let before = all(&*device);
            let written = kept.write_at(at, &[at as u8 ^ 0x55; 10]);
            has_failed |= written.is_err();
            let is_known = before[at as usize] == all(&*device)[at as usize];
            assert!(!has_failed || is_known, "{fails_at}: byte {at} is written");
        }
        assert!(has_failed && kept.finish(&[]).is_err());
        restore(&*device, &bytes.lock()[..]).unwrap();
        assert_eq!(all(&*device), all(&*image()), "{fails_at}");
    }
}
