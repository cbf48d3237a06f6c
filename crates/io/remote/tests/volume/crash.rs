//! A machine crashes at any request. All synced data must survive, and the image must be sound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskwright_remote::volume::Volume;
use vfs::FileSystem;

use super::file_system::{Fs, get, judge, put};
use crate::volume::bucket::{Bucket, bulk_options, options};

/// Contents of the files that were synced and not changed since; `None` if a file was removed.
type Synced = BTreeMap<String, Option<Vec<u8>>>;

/// Runs a script until the machine crashes or the script ends. Durable results are added to `synced`. Files are removed
/// from it before they are changed, because a crash may leave either state.
fn work(fs: &dyn FileSystem, seed: u64, synced: &mut Synced) -> vfs::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut names = Vec::new();
    let mut doing = Synced::new();
    for step in 0..60 {
        let name = format!("{seed}-{step}");
        match random.u8(..8) {
            0..4 => {
                let contents = vec![random.u8(1..); random.usize(1..20_000)];
                let ino = put(fs, &name, &contents)?;
                if random.bool() {
                    fs.fsync(ino)?;
                    synced.insert(name.clone(), Some(contents));
                } else {
                    doing.insert(name.clone(), Some(contents));
                }
                names.push(name);
            }
            4 if !names.is_empty() => {
                let name = names.swap_remove(random.usize(..names.len()));
                synced.remove(&name);
                fs.unlink(fs.root(), name.as_bytes(), None)?;
                doing.insert(name, None);
            }
            5 if !names.is_empty() => {
                let old = names.swap_remove(random.usize(..names.len()));
                let contents = get(fs, &old)?;
                synced.remove(&old);
                let (root, new) = (fs.root(), format!("{name} renamed"));
                let mode = vfs::RenameMode::Replace;
                fs.rename((root, old.as_bytes()), (root, new.as_bytes()), mode, None)?;
                doing.insert(old, None);
                doing.insert(new.clone(), Some(contents));
                names.push(new);
            }
            _ => {
                fs.sync()?;
                synced.append(&mut doing);
            }
        }
    }
    fs.sync()?;
    synced.append(&mut doing);
    Ok(())
}

/// Runs the script until the machine crashes. Returns the number of requests so far.
fn run(fs: Fs, bucket: &Bucket, seed: u64, synced: &mut Synced) -> u64 {
    // Every second seed stores nearly all data in bulk objects.
    let options = if seed.is_multiple_of(2) { options() } else { bulk_options() };
    let done = Volume::open(&bucket.at("v"), &options).map_err(|_| ()).and_then(|volume| {
        let open = fs.open(Arc::new(volume)).map_err(|_| ())?;
        work(open.fs(), seed, synced).map_err(|_| ())?;
        open.close().map_err(|_| ())
    });
    let ends_at = bucket.conduct.ends_at.load(Ordering::Relaxed);
    let requests = bucket.conduct.requests.load(Ordering::Relaxed);
    assert!(done.is_ok() || ends_at > 0 && requests >= ends_at, "it fails for no reason");
    requests
}

/// Checks the state that another machine finds.
fn survives(fs: Fs, bucket: &Bucket, synced: &Synced, when: &str) {
    let after = bucket.another();
    let volume = Volume::open(&after.at("v"), &options());
    let volume = volume.unwrap_or_else(|error| panic!("{when}: {error}"));
    let open = fs.open(Arc::new(volume)).unwrap_or_else(|error| panic!("{when}: {error}"));
    for (name, contents) in synced {
        match (get(open.fs(), name), contents) {
            (Ok(found), Some(contents)) => {
                assert!(found == *contents, "{when}: {name} has other contents");
            }
            (Err(vfs::Error::NotFound), None) => {}
            (Ok(_), None) => panic!("{when}: {name} is there again"),
            (Err(error), _) => panic!("{when}: {name}: {error}"),
        }
    }
    open.close().unwrap();
    judge(&after, when);
}

fn explore(fs: Fs) {
    let mut ends = 0;
    for seed in 1..=testkit::effort(2, 2, 20) {
        let whole = Bucket::new();
        fs.make(&whole);
        let before = whole.another();
        let mut synced = Synced::new();
        let requests = run(fs, &before, seed, &mut synced);
        assert_eq!(before.bulk_objects("v").is_empty(), seed.is_multiple_of(2));
        survives(fs, &before, &synced, &format!("seed {seed}, at the end"));
        for at in (1..=requests).step_by(testkit::effort(9, 3, 1)) {
            let made = Bucket::new();
            fs.make(&made);
            let bucket = made.another();
            bucket.conduct.ends_at.store(at, Ordering::Relaxed);
            let mut synced = Synced::new();
            run(fs, &bucket, seed, &mut synced);
            survives(fs, &bucket, &synced, &format!("seed {seed}, ended at request {at}"));
            ends += 1;
        }
    }
    assert!(ends >= 8, "{ends} ends");
}

#[test]
fn synced_data_on_ext4_survives_a_kill_at_any_request() {
    testkit::require!(Tool("e2fsck"));
    explore(Fs::Ext4);
}

#[test]
fn synced_data_on_xfs_survives_a_kill_at_any_request() {
    testkit::require!(Tool("xfs_repair"));
    explore(Fs::Xfs);
}
