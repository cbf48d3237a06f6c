use disk::MemoryDevice;
use structured_zstd::encoding::{CompressionLevel, compress_slice_to_vec};

use super::*;

fn device(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Arc::new(device)
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / 1000) as u8).collect()
}

/// Compresses contents into frames of these lengths, with a seek table.
fn packed(contents: &[u8], lens: &[usize], checksums: bool) -> Vec<u8> {
    let (mut all, mut entries, mut at) = (Vec::new(), Vec::new(), 0);
    for &len in lens {
        let frame = compress_slice_to_vec(&contents[at..at + len], CompressionLevel::Fastest);
        entries.extend((frame.len() as u32).to_le_bytes());
        entries.extend((len as u32).to_le_bytes());
        entries.extend([0xab; 4].iter().filter(|_| checksums));
        all.extend(frame);
        at += len;
    }
    let footer = [&(lens.len() as u32).to_le_bytes()[..], &[u8::from(checksums) << 7]].concat();
    let len = (entries.len() + FOOTER) as u32;
    all.extend([&0x184d_2a5e_u32.to_le_bytes()[..], &len.to_le_bytes(), &entries].concat());
    all.extend([&footer[..], &0x8f92_eab1_u32.to_le_bytes()].concat());
    all
}

const FOOTER: usize = 9;

fn open(bytes: &[u8]) -> Result<ZstdSource, ZstdError> {
    ZstdSource::open(device(bytes), "disk.zst", "disk.zst")
}

fn read(source: &ZstdSource, range: Range<u64>) -> Result<Bytes, FetchError> {
    let pieces = crate::place::runtime::block_on(source.fetch(range))?;
    Ok(pieces.concat().into())
}

#[test]
fn any_offset_can_be_read_with_any_frame_size() {
    let expected = contents(300_000);
    for (lens, checksums) in
        [(&[300_000][..], false), (&[1, 99_999, 0, 100_000, 100_000], true), (&[100_000; 3], false)]
    {
        let source = open(&packed(&expected, lens, checksums)).unwrap();
        assert_eq!(source.len(), 300_000);
        for range in [0..1, 0..300_000, 99_999..100_001, 200_000..200_000, 299_999..300_000] {
            let found = read(&source, range.clone()).unwrap();
            assert!(found == expected[range.start as usize..range.end as usize], "{lens:?}");
        }
    }
}

#[test]
fn files_without_a_valid_seek_table_are_refused() {
    let expected = contents(10_000);
    let good = packed(&expected, &[5000, 5000], false);
    let told = |bytes: &[u8]| match open(bytes) {
        Ok(_) => panic!("it is accepted"),
        Err(error) => error.to_string(),
    };
    assert!(told(&good[..good.len() - 1]).contains("the file has no seek table"));
    assert!(told(b"").contains("the file has no seek table"));
    let end = good.len();
    // Number of frames, descriptor, sizes of the first frame, and the frame that contains the table.
    for at in [end - 9, end - 5, end - 25, end - 21 + 3, end - 29, end - 33] {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        assert!(told(&bad).contains("damaged seek table"), "{at}");
    }
    // Contents of another length than in the table are detected when they are read.
    let mut bad = good.clone();
    bad[end - 21] ^= 1;
    let source = open(&bad).unwrap();
    let error = read(&source, 0..10).unwrap_err().to_string();
    assert!(error.contains("disk.zst: the frame at byte 0"), "{error}");
}
