//! A volume as a block device.

use std::fs;
use std::sync::atomic::Ordering;

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::volume::{NewVolume, View, Volume, VolumeError, delete, is_volume};

use crate::volume::bucket::{Bucket, options};

const LEN: u64 = 4 << 20;

pub(crate) fn create(bucket: &Bucket, name: &str, len: u64) {
    NewVolume::create(&bucket.at(name), len, &options()).unwrap().finish().unwrap();
}

pub(crate) fn assert_same(found: &dyn BlockDevice, expected: &dyn BlockDevice, when: &str) {
    let (mut a, mut b) = (vec![1; LEN as usize], vec![2; LEN as usize]);
    found.read_at(0, &mut a).unwrap();
    expected.read_at(0, &mut b).unwrap();
    let at = a.iter().zip(&b).position(|(a, b)| a != b);
    assert_eq!(at, None, "{when}");
}

#[test]
fn random_operations_agree_with_a_device_in_memory() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let model = MemoryDevice::new(LEN);
    let mut random = fastrand::Rng::with_seed(1);
    for opening in 0..3 {
        // Small tables are merged early. The last opening has no new bulk objects.
        let options = options().table_bytes([32 << 20, 64 << 10, 256 << 10][opening]);
        let options = options.bulk_bytes([4096, 64 << 10, 1 << 30][opening]);
        let volume = Volume::open(&bucket.at("v"), &options).unwrap();
        assert_eq!(volume.len(), LEN);
        assert_same(&volume, &model, &format!("opened {opening} times"));
        for _ in 0..150 {
            let offset = random.u64(..LEN);
            let most = 1 << random.u32(0..21);
            let len = random.u64(..=(LEN - offset).min(most));
            match random.u8(..6) {
                0 | 1 => {
                    let data = vec![random.u8(..3); len as usize];
                    volume.write_at(offset, &data).unwrap();
                    model.write_at(offset, &data).unwrap();
                }
                2 => {
                    volume.zero_range(offset, len).unwrap();
                    model.zero_range(offset, len).unwrap();
                }
                3 => volume.flush().unwrap(),
                _ => {
                    let (mut a, mut b) = (vec![1; len as usize], vec![2; len as usize]);
                    volume.read_at(offset, &mut a).unwrap();
                    model.read_at(offset, &mut b).unwrap();
                    assert!(a == b, "{offset}+{len}");
                }
            }
        }
        assert_same(&volume, &model, "written");
        volume.close().unwrap();
    }
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    assert_same(&view, &model, "viewed");
    assert!(view.write_at(0, &[1]).is_err());
    let copy = MemoryDevice::new(LEN);
    view.copy_to(&copy, &mut |_| Ok(())).unwrap();
    assert_same(&copy, &model, "copied");
}

#[test]
fn threads_that_write_parts_of_one_block_lose_nothing() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8_u8 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..40_u8 {
                    let at = 3584 + u64::from(number) * 512;
                    volume.write_at(at, &[number + 1 + round; 512]).unwrap();
                }
            });
        }
    });
    let mut found = [0; 8 * 512];
    volume.read_at(3584, &mut found).unwrap();
    for (number, piece) in found.chunks(512).enumerate() {
        assert!(piece.iter().all(|&byte| usize::from(byte) == number + 40), "{number}");
    }
}

#[test]
fn requests_past_the_end_are_refused() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    assert!(volume.read_at(LEN - 1, &mut [0; 2]).is_err());
    assert!(volume.write_at(u64::MAX, &[0; 2]).is_err());
    assert!(volume.zero_range(1, u64::MAX).is_err());
    volume.write_at(LEN - 1, &[1]).unwrap();
    volume.write_at(LEN, &[]).unwrap();
}

#[test]
fn a_flush_is_one_put_and_an_empty_flush_is_none() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    volume.write_at(0, &[1; 4096]).unwrap();
    volume.flush().unwrap();
    let before = bucket.puts();
    for round in 0..20_u64 {
        volume.write_at(round * 8192, &[2; 65536]).unwrap();
        volume.flush().unwrap();
    }
    // The database may also put other objects.
    let puts = bucket.puts() - before;
    assert!((20..=24).contains(&puts), "{puts} puts");
    let before = bucket.puts();
    for _ in 0..20 {
        volume.flush().unwrap();
    }
    let puts = bucket.puts() - before;
    assert!(puts <= 2, "{puts} puts of nothing");
}

#[test]
fn tables_are_kept_on_disk_and_damage_of_them_is_fetched_again() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let directory = tempfile::tempdir().unwrap();
    let model = MemoryDevice::new(LEN);
    let mut random = fastrand::Rng::with_seed(3);
    let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(3 << 20).collect();
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    // Bulk objects, and data in tables.
    for device in [&volume as &dyn BlockDevice, &model] {
        device.write_at(70_000, &data).unwrap();
    }
    volume.flush().unwrap();
    for device in [&volume as &dyn BlockDevice, &model] {
        device.write_at(500_000, &data[..500_000]).unwrap();
    }
    volume.close().unwrap();
    assert_eq!(bucket.bulk_objects("v").len(), 1);
    // Each view simulates a new process. Counts the requests for blocks, without those for opening the view.
    let read = |kept: &std::path::Path, when: &str| {
        let options = options().disk_cache(Some(kept.to_owned()));
        let requests = || bucket.conduct.requests.load(Ordering::Relaxed);
        let before = requests();
        let view = View::open(&bucket.at("v"), None, &options).unwrap();
        let opened = requests();
        assert_same(&view, &model, when);
        (opened - before, requests() - opened)
    };
    let (_, cold) = read(directory.path(), "cold");
    let (_, warm) = read(directory.path(), "warm");
    assert!(warm == 0 && cold > 0, "{cold} requests cold, {warm} warm");
    let mut damaged = 0;
    for path in files(directory.path()) {
        let mut bytes = fs::read(&path).unwrap();
        let is_data = path.to_str().unwrap().contains("_part") || path.ends_with("data");
        if is_data && bytes.len() > 1000 {
            // Files of bulk objects have holes after the data.
            let middle = bytes.len() / if path.ends_with("data") { 100 } else { 2 };
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 3, "{damaged} files");
    let (_, repaired) = read(directory.path(), "damaged");
    assert!(repaired > 0, "nothing was damaged");
    // An unusable cache directory, as on a full disk, has no effect.
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    read(&file, "without a directory");
}

/// Returns all files below a directory.
fn files(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_volume_is_there_once_it_is_finished_until_it_is_deleted() {
    let bucket = Bucket::new();
    let at = bucket.at("v");
    assert!(!is_volume(&at).unwrap());
    assert!(matches!(Volume::open(&at, &options()), Err(VolumeError::NotFound)));
    assert!(matches!(delete(&at), Err(VolumeError::NotFound)));
    let new = NewVolume::create(&at, LEN, &options()).unwrap();
    new.write_at(5, b"begun").unwrap();
    assert!(!is_volume(&at).unwrap());
    drop(new);
    // The remains are neither opened as a volume nor overwritten.
    assert!(matches!(Volume::open(&at, &options()), Err(VolumeError::NotFound)));
    let again = NewVolume::create(&at, LEN, &options()).err().unwrap();
    assert!(again.to_string().contains("an incomplete volume"), "{again}");
    delete(&at).unwrap();
    create(&bucket, "v", LEN);
    assert!(is_volume(&at).unwrap());
    assert!(matches!(
        NewVolume::create(&at, LEN, &options()),
        Err(VolumeError::Exists("a volume"))
    ));
    let mut found = [1; 10];
    View::open(&at, None, &options()).unwrap().read_at(0, &mut found).unwrap();
    assert_eq!(found, [0; 10]);
    delete(&at).unwrap();
    assert!(!is_volume(&at).unwrap());
}
