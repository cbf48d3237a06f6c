//! Random calls on an image and on a host directory, with equal results.

use std::io::{self, SeekFrom};
use std::os::unix::fs::DirBuilderExt;

use fastrand::Rng;

use super::host::{Call, FileCall, Guest, Host, Opening};
use super::images::{FORMATS, judge, new_image, open};

/// Maximum number of open files.
const SLOTS: usize = 5;

/// File names: few, so that calls affect the same files.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn path(random: &mut Rng) -> String {
    let mut path = String::new();
    for depth in 0..random.usize(1..=3) {
        if depth > 0 {
            path.push('/');
        }
        match random.u32(..40) {
            0 => path.push_str("./"),
            // Never above the root, because the host's directory is not its root.
            1 if depth > 0 => path.push_str("../"),
            2 if random.bool() => path.push('/'),
            3 if random.bool() => path.push_str(&"x".repeat(random.usize(254..=257))),
            _ => {}
        }
        path.push_str(random.choice(NAMES).unwrap());
    }
    if random.u32(..25) == 0 {
        path.push('/');
    }
    if random.u32(..300) == 0 { String::new() } else { path }
}

fn bytes(random: &mut Rng) -> Vec<u8> {
    let len = match random.u32(..12) {
        0 => random.usize(..200_000),
        1 => 0,
        _ => random.usize(..9000),
    };
    let first = random.u8(..);
    (0..len).map(|at| first.wrapping_add((at / 7) as u8)).collect()
}

fn opening(random: &mut Rng) -> Opening {
    let mut sometimes = |of: u32| random.u32(..of) == 0;
    Opening {
        read: !sometimes(4),
        write: !sometimes(3),
        append: sometimes(4),
        truncate: sometimes(5),
        create: sometimes(2),
        create_new: sometimes(8),
        mode: if sometimes(2) { 0o600 } else { 0o644 },
    }
}

fn file_call(random: &mut Rng) -> FileCall {
    let place = |random: &mut Rng| random.u64(..50_000);
    match random.u32(..10) {
        0..2 => FileCall::Read(random.usize(..20_000)),
        2..4 => FileCall::Write(bytes(random)),
        4 => FileCall::Seek(match random.u32(..3) {
            0 => SeekFrom::Start(place(random)),
            1 => SeekFrom::Current(random.i64(-20_000..20_000)),
            _ if random.bool() => SeekFrom::End(random.i64(-20_000..20_000)),
            _ => SeekFrom::Start(random.u64(1 << 63..)),
        }),
        5 => FileCall::ReadAt(random.usize(..20_000), place(random)),
        6 => FileCall::WriteAt(bytes(random), place(random)),
        7 => FileCall::SetLen(random.u64(..100_000)),
        8 if random.bool() => FileCall::SyncAll,
        8 => FileCall::SyncData,
        _ => FileCall::Len,
    }
}

fn call(random: &mut Rng) -> Call {
    match random.u32(..48) {
        0..5 => Call::Write(path(random), bytes(random)),
        5..7 => Call::Read(path(random)),
        7 => Call::Metadata(path(random)),
        8 => Call::SymlinkMetadata(path(random)),
        9 => Call::Exists(path(random)),
        10..14 => Call::CreateDir(path(random)),
        14 => Call::CreateDirAll(path(random)),
        15..17 => Call::RemoveFile(path(random)),
        17 => Call::RemoveDir(path(random)),
        // If the path of a link ends in a slash, the host empties the directory and then fails.
        18 if random.u32(..3) == 0 => Call::RemoveDirAll(path(random).trim_end_matches('/').into()),
        18..22 => Call::Rename(path(random), path(random)),
        22..24 => Call::HardLink(path(random), path(random)),
        24..26 => {
            let depth = random.usize(1..=2);
            let target = (0..depth).map(|_| random.choice(NAMES).unwrap()).collect::<Vec<_>>();
            Call::Symlink(target.join("/"), path(random))
        }
        26 => Call::ReadLink(path(random)),
        27 => Call::SetPermissions(path(random), 0o600 | random.u32(..0o1000)),
        28 => Call::SetModified(path(random), random.u64(..1 << 31)),
        29..31 => Call::ReadDir(path(random)),
        31 => Call::Canonicalize(path(random)),
        32..34 => Call::Copy(path(random), path(random)),
        34..38 => Call::Open(random.usize(..SLOTS), path(random), opening(random)),
        38 => Call::Drop(random.usize(..SLOTS)),
        _ => Call::OnFile(random.usize(..SLOTS), file_call(random)),
    }
}

/// Returns the results of all reading calls below the root.
fn everything(mut run: impl FnMut(&Call) -> io::Result<String>) -> Vec<String> {
    let mut pending = vec![".".to_owned()];
    let mut all = Vec::new();
    while let Some(dir) = pending.pop() {
        let listed = run(&Call::ReadDir(dir)).unwrap();
        for entry in listed.split("; ").filter(|entry| !entry.is_empty()) {
            let path = entry.split('"').nth(1).unwrap().to_owned();
            let path = path.trim_start_matches("./").to_owned();
            if entry.contains("\" true ") {
                pending.push(path.clone());
            }
            for call in [Call::Read(path.clone()), Call::ReadLink(path.clone())] {
                all.push(format!("{call:?}: {:?}", run(&call).map_err(|error| error.kind())));
            }
            all.push(entry.to_owned());
        }
    }
    all.sort();
    all
}

/// Runs calls derived from the seed. The error contains the calls with different results.
fn run(format: &str, seed: u64, calls: usize) -> Result<(), String> {
    let scratch = testkit::scratch();
    let root = scratch.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut host = Host { root, files: (0..SLOTS).map(|_| None).collect() };
    let (device, image) = new_image(format);
    let mut guest = Guest { image, files: (0..SLOTS).map(|_| None).collect() };
    let mut random = Rng::with_seed(seed);
    if format == "ext4" {
        // e2fsck requires it.
        let dir = std::fs::DirBuilder::new().mode(0o700).create(host.root.join("lost+found"));
        dir.unwrap();
    }
    let mut disagreements = Vec::new();
    for number in 0..calls {
        let call = call(&mut random);
        let (expected, found) = (host.run(&call), guest.run(&call));
        let are_alike = match (&expected, &found) {
            (Ok(expected), Ok(found)) => expected == found,
            (Err(expected), Err(found)) => expected.kind() == found.kind(),
            _ => false,
        };
        if !are_alike {
            let line = |text: String| text.chars().take(300).collect::<String>();
            let call = line(format!("{call:?}"));
            let host = line(format!("{expected:?}"));
            let image = line(format!("{found:?}"));
            disagreements.push(format!("{number}: {call}\n  host:  {host}\n  image: {image}"));
        }
        // Two different errors count as equal.
        if !are_alike && (expected.is_ok() || found.is_ok()) {
            break;
        }
    }
    if !disagreements.is_empty() {
        return Err(format!("{format}, seed {seed}, at calls\n{}", disagreements.join("\n")));
    }
    assert_eq!(everything(|call| guest.run(call)), everything(|call| host.run(call)), "{seed}");
    // Close with open files, some of them without a name.
    let Guest { image, files } = guest;
    image.close().unwrap();
    for file in files.iter().flatten() {
        assert!(matches!(file.metadata(), Err(diskwright::Error::Closed)));
    }
    drop(files);
    judge(&device);
    let mut guest = Guest { image: open(&device, false), files: Vec::new() };
    assert_eq!(everything(|call| guest.run(call)), everything(|call| host.run(call)), "{seed}");
    Ok(())
}

#[test]
fn an_image_does_what_the_host_does() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let seeds = 0..testkit::effort(3, 12, 1000);
    let runs = seeds.flat_map(|seed| FORMATS.map(|format| run(format, seed, 1500)));
    let failed: Vec<String> = runs.filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
