//! Parses arbitrary bytes as an mtree manifest, SELinux file contexts, a device table and an owner map, and applies
//! them. Errors are fine; panics, hangs and unbounded memory are bugs.
#![no_main]

use std::path::Path;

use import::EntryKind;
use import::correct::{FileCapabilities, Glob, OwnerMap};
use import::file_contexts::FileContexts;
use import::mtree::ManifestCorrection;
use import::table::DeviceTable;
use libfuzzer_sys::fuzz_target;

/// Maximum number of lines whose expressions are matched.
const LINES_MAX: usize = 64;

fuzz_target!(|input: &[u8]| {
    let (name, Some((kind, bytes))) = (Path::new("rules"), input.split_first()) else { return };
    match kind % 5 {
        0 => drop(ManifestCorrection::parse(name, bytes)),
        1 => {
            let Ok(contexts) = FileContexts::parse(name, bytes) else { return };
            if contexts.lines() <= LINES_MAX {
                // Paths to match: the input itself, and paths that such files often contain.
                for path in [bytes, b"", b"usr/bin/x", b"etc/passwd"] {
                    let _ = contexts.label(path, &EntryKind::Directory);
                }
            }
        }
        2 => drop(DeviceTable::parse(name, bytes)),
        3 => {
            let Ok(map) = OwnerMap::parse(name, bytes) else { return };
            for id in [0, 1, 1000, 100_000, u32::MAX - 1, u32::MAX] {
                let _ = (map.user(id), map.group(id));
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let _ = FileCapabilities::parse(text).map(FileCapabilities::to_xattr);
            let _ = Glob::parse(text).map(|glob| glob.is_match(b"usr/bin/x", false));
        }
    }
});
