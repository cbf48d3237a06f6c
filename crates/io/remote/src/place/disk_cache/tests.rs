use super::*;

const CHUNK: u64 = 64 << 10;

fn cache(directory: &Path, limit: u64) -> Arc<DiskCache> {
    DiskCache::open(directory, limit).unwrap()
}

fn contents(chunk: u64) -> Vec<u8> {
    (0..CHUNK).map(|at| (at * 31 + chunk * 7) as u8).collect()
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    let image = fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    image.join(name)
}

#[test]
fn another_process_finds_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let first = cache(directory.path(), 1 << 30).of("a", CHUNK * 3 + 5, CHUNK).unwrap();
    first.put(1, &contents(1));
    first.put(3, b"12345");
    let second = cache(directory.path(), 1 << 30).of("a", CHUNK * 3 + 5, CHUNK).unwrap();
    assert_eq!(second.get(1).unwrap(), contents(1));
    assert_eq!(&*second.get(3).unwrap(), b"12345");
    assert!(!second.has(0) && second.get(0).is_none() && second.get(100).is_none());
    let other = cache(directory.path(), 1 << 30).of("b", CHUNK * 3 + 5, CHUNK).unwrap();
    assert!(other.get(1).is_none());
}

#[test]
fn damage_is_a_chunk_that_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let cached = cache(directory.path(), 1 << 30).of("a", CHUNK * 4, CHUNK).unwrap();
    (0..4).for_each(|chunk| cached.put(chunk, &contents(chunk)));
    let data = file_of(directory.path(), "data");
    let mut bytes = fs::read(&data).unwrap();
    bytes[100] ^= 1;
    // A chunk at the offset of another one is invalid, too.
    let (second, third) = (CHUNK as usize * 2, CHUNK as usize * 3);
    bytes.copy_within(second..third, third);
    fs::write(&data, bytes).unwrap();
    assert!(cached.get(0).is_none() && cached.get(3).is_none());
    assert_eq!(cached.get(1).unwrap(), contents(1));
    cached.put(0, &contents(0));
    assert_eq!(cached.get(0).unwrap(), contents(0));
    // Both files truncated, while the image is open and before it is opened again.
    fs::write(&data, b"").unwrap();
    assert!(cached.get(1).is_none());
    fs::write(file_of(directory.path(), "sums"), [0xff; 10]).unwrap();
    let again = cache(directory.path(), 1 << 30).of("a", CHUNK * 4, CHUNK).unwrap();
    assert!((0..4).all(|chunk| again.get(chunk).is_none()));
}

#[test]
fn the_directory_of_another_image_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(cache(directory.path(), 1 << 30).of("a", CHUNK, CHUNK).unwrap());
    let about = file_of(directory.path(), "about");
    fs::write(&about, "diskwright 1\n65536 65536\nb\n").unwrap();
    assert!(cache(directory.path(), 1 << 30).of("a", CHUNK, CHUNK).is_none());
    assert_eq!(fs::read_to_string(&about).unwrap(), "diskwright 1\n65536 65536\nb\n");
}

#[cfg(target_os = "linux")]
#[test]
fn it_stays_within_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let (limit, chunks) = (64 * CHUNK, 256);
    let old = cache(directory.path(), limit).of("old", CHUNK * chunks, CHUNK).unwrap();
    (0..40).for_each(|chunk| old.put(chunk, &contents(chunk)));
    let new = cache(directory.path(), limit).of("new", CHUNK * chunks, CHUNK).unwrap();
    for chunk in 0..chunks {
        new.put(chunk, &contents(chunk));
        assert_eq!(new.get(chunk).unwrap(), contents(chunk));
    }
    let kept = (0..chunks).filter(|&chunk| new.has(chunk)).count() as u64;
    assert!((32..=64 + 64 / MEASURED_PARTS).contains(&kept), "{kept} chunks are kept");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the old image is gone");
    // The image is still open here and works.
    assert_eq!(old.get(3).unwrap(), contents(3));
}
