//! File systems that are full: errors where they belong, nothing lost that was acknowledged, and room again
//! after something is removed.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

use crate::place::probe::pattern;
use crate::place::{Place, prove_on_both};

/// Takes all space with files that hold nothing, by ever smaller pieces.
fn fill(place: &Place) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for piece in [64 << 20, 4 << 20, 256 << 10, 16 << 10, 4 << 10] {
        loop {
            let path = place.join(format!("filling {}", made.len()));
            let taken = File::create(&path).and_then(|file| {
                let taken = fallocate(&file, FallocateFlags::empty(), 0, piece);
                taken.inspect_err(|_| fs::remove_file(&path).unwrap()).map_err(io::Error::from)
            });
            match taken {
                Ok(()) => made.push(path),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    break;
                }
            }
        }
    }
    made
}

/// Writes and has it made durable. Whether the error comes with the one or the other is the caches' affair.
fn write_durably(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn full_file_systems_say_so(place: &mut Place) {
    let bytes = 1 << 20;
    write_durably(&place.join("early"), &pattern(3, 0, bytes)).unwrap();
    fs::create_dir(place.join("many")).unwrap();
    let filling = fill(place);
    assert!(filling.len() > 8, "{filling:?}");
    // No room for data: whoever asks whether it is durable gets to know.
    let written = write_durably(&place.join("late"), &pattern(4, 0, bytes));
    assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
    // Over what is there already, there is room.
    let early = File::options().write(true).open(place.join("early")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&early, &pattern(5, 0, 4096), 0).unwrap();
    early.sync_all().unwrap();
    drop(early);
    // No room for names, sooner or later, of whatever kind.
    let mut names = 0;
    let refused = loop {
        let path = place.join(format!("many/{} {names}", "a name ".repeat(30)));
        let made = if names % 2 == 0 { File::create(path).map(drop) } else { fs::create_dir(path) };
        match made {
            Ok(()) => names += 1,
            Err(error) => break error,
        }
        assert!(names < 100_000, "names take no space");
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    let link = std::os::unix::fs::symlink("x".repeat(900), place.join("many/link"));
    assert_eq!(link.unwrap_err().kind(), ErrorKind::StorageFull);
    println!("{} files fill it, then {names} names", filling.len());
    // Removing needs no room, and makes some.
    for path in &filling[filling.len() / 2..] {
        fs::remove_file(path).unwrap();
    }
    fs::remove_file(&filling[0]).unwrap();
    // It may tell once more what could not be written.
    let _ = rustix::fs::syncfs(File::open(place.path()).unwrap());
    write_durably(&place.join("late"), &pattern(6, 0, bytes)).unwrap();
    place.remount();
    let mut expected = pattern(3, 0, bytes);
    expected[..4096].copy_from_slice(&pattern(5, 0, 4096));
    assert!(fs::read(place.join("early")).unwrap() == expected);
    assert!(fs::read(place.join("late")).unwrap() == pattern(6, 0, bytes));
    assert_eq!(fs::read_dir(place.join("many")).unwrap().count(), names);
    fs::remove_dir_all(place.join("many")).unwrap();
}

/// Writers that keep at it while others remove: every file that was made durable is whole.
fn a_nearly_full_file_system_loses_nothing(place: &mut Place) {
    const FILE_BYTES: u64 = 300_000;
    let filling = fill(place);
    let held = filling.len() / 3;
    let mut durable: Vec<u64> = Vec::new();
    let mut refused = 0;
    for round in 0..150_u64 {
        let path = place.join(format!("file {round}"));
        match write_durably(&path, &pattern(round, 0, FILE_BYTES)) {
            Ok(()) => durable.push(round),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                refused += 1;
                // There may have been no room for its name.
                let _ = fs::remove_file(&path);
                // Room for the next few.
                if let Some(path) = filling.get(held + refused) {
                    fs::remove_file(path).unwrap();
                } else {
                    fs::remove_file(place.join(format!("file {}", durable.remove(0)))).unwrap();
                }
            }
        }
    }
    println!("{refused} of 150 files found no room");
    assert!(refused > 3 && durable.len() > 3);
    place.remount();
    for round in durable {
        let found = fs::read(place.join(format!("file {round}"))).unwrap();
        assert!(found == pattern(round, 0, FILE_BYTES), "file {round}");
    }
}

prove_on_both!(full_file_systems_say_so: 310 << 20, a_nearly_full_file_system_loses_nothing: 310 << 20);
