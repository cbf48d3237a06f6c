//! The kernel mounts, reads and changes every image in which the check finds nothing: fields are set to limit values,
//! with valid checksums.
//!
//! `DISKWRIGHT_PROBE_IMAGES=DIR` writes these images to a directory, for another kernel and `xfs_scrub -n`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use testkit::crash::write_image;
use testkit::{KernelMount, MountOptions};

use crate::check_damage::{IMAGES, Kinds};
use crate::checking::findings;
use crate::common::image::{device, golden};
use crate::common::layout::{Layout, Structure};

/// Bytes at the start of a structure whose fields are set.
const HEADER: usize = 192;
const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// A field and its new value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    structure: Structure,
    at: usize,
    width: usize,
    value: u64,
}

impl Probe {
    /// Returns probes of all fields at the start of a structure.
    pub(crate) fn all(image: &[u8], structure: Structure) -> Vec<Self> {
        let mut probes = Vec::new();
        for width in WIDTHS {
            for at in (0..structure.len.min(HEADER)).step_by(width) {
                let mut bytes = [0; 8];
                let field = &image[structure.start + at..structure.start + at + width];
                bytes[8 - width..].copy_from_slice(field);
                let old = u64::from_be_bytes(bytes);
                let max = u64::MAX >> (64 - 8 * width);
                let half = max >> 1;
                let near = [old.wrapping_add(1) & max, old.wrapping_sub(1) & max];
                let mut values = vec![0, 1, 2, max, max - 1, half, half + 1, near[0], near[1]];
                values.sort_unstable();
                values.dedup();
                values.retain(|value| *value != old);
                let is_checksum =
                    structure.crc_at.is_some_and(|crc| at < crc + 4 && crc < at + width);
                if !is_checksum {
                    let probe = |value| Self { structure, at, width, value };
                    probes.extend(values.into_iter().map(probe));
                }
            }
        }
        probes
    }

    pub(crate) fn structure(&self) -> Structure {
        self.structure
    }

    pub(crate) fn apply(&self, device: &MemoryDevice, layout: &Layout) {
        let start = self.structure.start + self.at;
        device.write_at(start as u64, &self.value.to_be_bytes()[8 - self.width..]).unwrap();
        layout.seal(device, start..start + self.width);
    }
}

/// Mounts an image, reads all its contents, and makes and removes some files.
///
/// # Errors
/// The first operation that the kernel refuses.
fn try_all(device: &MemoryDevice) -> Result<(), String> {
    let home = testkit::scratch();
    let path = home.path().join("image");
    write_image(device, &path).map_err(|error| error.to_string())?;
    for round in ["", "again, "] {
        let mount = KernelMount::attempt(&path, &MountOptions::read_write("xfs"))
            .map_err(|output| format!("{round}mount: {output}"))?;
        let outcome = read_all(mount.path()).and_then(|()| change(mount.path()));
        mount.unmount();
        outcome.map_err(|error| format!("{round}{error}"))?;
    }
    Ok(())
}

fn read_all(dir: &Path) -> Result<(), String> {
    let fault = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
        Err(format!("{what} {}: {error}", path.display()))
    };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return fault("list", dir, &error),
    };
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => return fault("list", dir, &error),
        };
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) => return fault("stat", &path, &error),
        };
        if let Err(error) = attributes(&path) {
            return fault("attributes of", &path, &error);
        }
        if metadata.is_dir() {
            read_all(&path)?;
        } else if metadata.is_symlink() {
            if let Err(error) = path.read_link() {
                return fault("readlink", &path, &error);
            }
        } else if metadata.is_file()
            && let Err(error) = contents(&path)
        {
            return fault("read", &path, &error);
        }
    }
    Ok(())
}

fn contents(path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut left = 64 << 20;
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        left -= count.min(left);
        if count == 0 || left == 0 {
            return Ok(());
        }
    }
}

fn attributes(path: &Path) -> rustix::io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut value = vec![0; 64 << 10];
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        rustix::fs::lgetxattr(path, name, &mut value[..])?;
    }
    Ok(())
}

/// Makes and removes directories and files, so that inodes and blocks are allocated and freed.
fn change(root: &Path) -> Result<(), String> {
    let dir = root.join("probe");
    let done = || {
        std::fs::create_dir(&dir)?;
        for number in 0..70 {
            let mut file = File::create(dir.join(number.to_string()))?;
            file.write_all(&[7; 9000])?;
        }
        rustix::fs::syncfs(File::open(root)?)?;
        std::fs::remove_dir_all(&dir)?;
        rustix::fs::syncfs(File::open(root)?)?;
        Ok(())
    };
    done().map_err(|error: std::io::Error| format!("change: {error}"))
}

/// Mounts every 4010th probe with *quick*, every 2005th with *full*, and all with *long*.
#[test]
fn the_kernel_mounts_images_that_the_check_calls_clean() {
    testkit::require!(Root, Tool("mount"));
    let step = testkit::effort(4010, 2005, 1);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for name in IMAGES {
            let wrong = &wrong;
            scope.spawn(move || {
                let image = golden(name);
                let layout = Layout::of(&image);
                let base = device(&image);
                let firsts = Kinds::new(&image, &layout).firsts();
                let probes = firsts.into_iter().flat_map(|first| Probe::all(&image, first));
                let (mut clean, mut refused) = (0, 0);
                for probe in probes.step_by(step) {
                    let damaged = base.fork();
                    probe.apply(&damaged, &layout);
                    let is_clean = findings(Arc::new(damaged.fork())).is_ok_and(|f| f.is_empty());
                    if !is_clean {
                        continue;
                    }
                    clean += 1;
                    if let Ok(dir) = std::env::var("DISKWRIGHT_PROBE_IMAGES") {
                        let file = format!(
                            "{name}-{}-{}-{}-{:x}",
                            probe.structure.start, probe.at, probe.width, probe.value
                        );
                        write_image(&damaged, &Path::new(&dir).join(file)).unwrap();
                        continue;
                    }
                    if let Err(error) = try_all(&damaged) {
                        refused += 1;
                        let magic = image[probe.structure.start..][..10].escape_ascii().to_string();
                        let line = format!("{name}: {magic} {probe:?}: {error}");
                        eprintln!("{line}");
                        wrong.lock().push(line);
                    }
                }
                println!("{name}: {clean} clean ones were mounted, {refused} refused");
            });
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
