//! Files as seen by the kernel, and as read here.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use vfs::{ExtentPlace, FileSystem, Ino, MappedExtent};
use xfs::Xfs;

/// The expected state of an inode.
pub struct Expected {
    pub name: String,
    pub ino: u64,
    pub size: u64,
    pub blocks_512: u64,
    pub contents: Contents,
}

pub enum Contents {
    Link(Vec<u8>),
    /// Its extents, with their contents.
    File(Vec<(MappedExtent, Vec<u8>)>),
}

/// Records all files and links in a mounted tree's root directory.
pub fn note_tree(root: &Path) -> Vec<Expected> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.map(|path| note(&path)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn note(path: &Path) -> Expected {
    let metadata = path.symlink_metadata().unwrap();
    let contents = if metadata.is_symlink() {
        Contents::Link(path.read_link().unwrap().into_os_string().into_vec())
    } else {
        let file = File::open(path).unwrap();
        let with_bytes = |extent: MappedExtent| {
            let mut bytes = vec![0; extent.len as usize];
            file.read_exact_at(&mut bytes, extent.offset).unwrap();
            (extent, bytes)
        };
        Contents::File(fiemap(path, metadata.size()).into_iter().map(with_bytes).collect())
    };
    Expected {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        ino: metadata.ino(),
        size: metadata.size(),
        blocks_512: metadata.blocks(),
        contents,
    }
}

/// Returns the extents of a file according to the kernel, with contiguous ones joined, clipped to `size`.
fn fiemap(path: &Path, size: u64) -> Vec<MappedExtent> {
    let output =
        testkit::command("filefrag").args(["-v", "-e", "-b512"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut runs: Vec<MappedExtent> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        if fields.first().is_none_or(|first| first.parse::<u64>().is_err()) {
            continue;
        }
        let start_of =
            |field: &str| field.split("..").next().unwrap().trim().parse::<u64>().unwrap() * 512;
        let (offset, device) = (start_of(fields[1]), start_of(fields[2]));
        let count: u64 = fields[3].parse().unwrap();
        if offset >= size {
            continue;
        }
        let len = (count * 512).min(size - offset);
        let unwritten = fields.last().unwrap().contains("unwritten");
        let place =
            if unwritten { ExtentPlace::Unwritten(device) } else { ExtentPlace::Device(device) };
        let run = MappedExtent { offset, len, place };
        match runs.last_mut() {
            Some(last) if continues(last, &run) => last.len += len,
            _ => runs.push(run),
        }
    }
    runs
}

fn continues(before: &MappedExtent, run: &MappedExtent) -> bool {
    let is_next = before.offset + before.len == run.offset;
    is_next
        && match (before.place, run.place) {
            (ExtentPlace::Device(a), ExtentPlace::Device(b))
            | (ExtentPlace::Unwritten(a), ExtentPlace::Unwritten(b)) => a + before.len == b,
            _ => false,
        }
}

/// Asserts that an inode matches the state recorded from the kernel.
pub fn assert_contents(fs: &Xfs, expected: &Expected) {
    let (name, ino) = (&expected.name, Ino(expected.ino));
    let attributes = fs.attributes(ino).unwrap();
    assert_eq!(attributes.size, expected.size, "size of {name}");
    assert_eq!(attributes.blocks_512, expected.blocks_512, "blocks of {name}");
    let parts = match &expected.contents {
        Contents::Link(target) => {
            assert_eq!(fs.readlink(ino).unwrap(), *target, "{name}");
            return;
        }
        Contents::File(parts) => parts,
    };
    let runs: Vec<MappedExtent> = parts.iter().map(|(run, _)| *run).collect();
    assert_eq!(mapped(fs, ino), runs, "map of {name}");
    for (run, bytes) in parts {
        let mut found = vec![0xee; bytes.len()];
        assert_eq!(fs.read(ino, run.offset, &mut found).unwrap(), bytes.len());
        assert!(found == *bytes, "{name} differs within {run:?}");
    }
    // From the middle of one extent to the middle of the next.
    for (run, bytes) in parts.iter().rev().take(50) {
        let before = run.offset.min(1000);
        let len = before as usize + bytes.len() / 2;
        let mut found = vec![0xee; len];
        assert_eq!(fs.read(ino, run.offset - before, &mut found).unwrap(), len);
        assert!(found[before as usize..] == bytes[..bytes.len() / 2], "{name} near {run:?}");
    }
    let mut past = [1; 10];
    assert_eq!(fs.read(ino, expected.size, &mut past).unwrap(), 0);
}

/// Returns the mapped extents of a file, without holes, after a check that the map is complete.
pub fn mapped(fs: &Xfs, ino: Ino) -> Vec<MappedExtent> {
    let size = fs.attributes(ino).unwrap().size;
    let (mut runs, mut at) = (Vec::new(), 0);
    fs.extent_map(ino, 0, u64::MAX, &mut |run| {
        assert_eq!(run.offset, at, "a gap in the map");
        at += run.len;
        if run.place != ExtentPlace::Hole {
            runs.push(run);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(at, size);
    runs
}
