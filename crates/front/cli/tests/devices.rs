//! Lists of disks, and images on disks that the system uses. Loop devices are the disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{LoopDevice, judge, require, wait_until};

use crate::check::common::{ends, run};
use crate::disk;

/// Build options and labels.
const FORMATS: [(&str, &str); 2] = [
    ("--fs ext4 --size 64M --label desk", "ext4"),
    ("--fs xfs --small --size 64M --label shelf", "xfs"),
];

/// Runs a command line that must succeed.
#[track_caller]
fn done(dir: &Path, line: &str) {
    let said = run(dir, line);
    assert_eq!(said.status, 0, "{line}: {}", said.messages);
}

/// Creates an image of each format, named like it, and a disk with each as its partition.
fn images() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir(dir.join("source")).unwrap();
    fs::write(dir.join("source/file"), b"contents").unwrap();
    for (options, name) in FORMATS {
        done(dir, &format!("build source {name} {options}"));
        disk::with_partition(&dir.join(format!("{name}.disk")), &fs::read(dir.join(name)).unwrap());
    }
    home
}

fn listed(dir: &Path, options: &str) -> Vec<Value> {
    let out = ends(dir, &format!("devices --json {options}"), 0);
    let list: Value = serde_json::from_str(&out).unwrap();
    list["devices"].as_array().unwrap().clone()
}

/// Returns the entries of a device, the whole disk first.
fn entries(dir: &Path, device: &LoopDevice) -> Vec<Value> {
    let is_it = |entry: &Value| entry["path"] == json!(device.name());
    listed(dir, "--all").into_iter().filter(is_it).collect()
}

#[test]
fn disks_and_their_partitions_are_listed_with_their_contents() {
    require!(Root, Loop, Tool("losetup"), Tool("e2fsck"), Tool("xfs_repair"));
    let home = images();
    let dir = home.path();
    for ((_, name), label) in FORMATS.iter().zip(["desk", "shelf"]) {
        let device = LoopDevice::with_options(dir.join(name), &["--read-only"]);
        let [entry] = &entries(dir, &device)[..] else { panic!("one entry") };
        assert_eq!((&entry["format"], &entry["label"]), (&json!(name), &json!(label)));
        assert_eq!((&entry["size"], &entry["mounted_at"]), (&json!(64 << 20), &json!([])));
        assert_eq!((&entry["read_only"], &entry["problem"]), (&json!(true), &Value::Null));
        assert!(entry["uuid"].as_str().is_some_and(|uuid| uuid.len() == 36), "{entry}");
        let table = ends(dir, "devices --all", 0);
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", device.name())));
        assert!(line.unwrap().contains(&format!("64.0 MiB  {name} ")), "{table}");

        let device = LoopDevice::new(dir.join(format!("{name}.disk")));
        let found = entries(dir, &device);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0]["format"], json!("dos"));
        let part = &found[1];
        assert_eq!((&part["partition"], &part["format"]), (&json!(1), &json!(name)));
        assert_eq!((&part["size"], &part["label"]), (&json!(64 << 20), &json!(label)));
        // The entry names the image for other commands.
        let part = format!("{} --partition 1", device.name());
        assert_eq!(ends(dir, &format!("cat {part} /file"), 0), "contents");
        done(dir, &format!("mkdir {part} /new"));
        let bytes = fs::read(device.path()).unwrap();
        drop(device);
        let start = disk::START as usize;
        fs::write(dir.join("part"), &bytes[start..bytes.len() - start]).unwrap();
        judge(dir.join("part"));
    }
    assert!(ends(dir, "devices", 0).starts_with("DEVICE "));
    let usual = listed(dir, "");
    let is_loop = |entry: &Value| entry["path"].as_str().unwrap().starts_with("/dev/loop");
    assert!(!usual.iter().any(is_loop), "{usual:?}");
}

/// A directory on which a device is mounted by the kernel.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Path, point: PathBuf) -> Self {
        fs::create_dir(&point).unwrap();
        let status = testkit::command("mount").arg(device).arg(&point).status().unwrap();
        assert!(status.success());
        Self(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        testkit::unmount_from(&self.0);
    }
}

#[test]
fn mounted_devices_are_shown_and_not_changed() {
    require!(Root, Loop, Tool("losetup"), Tool("mount"));
    let home = images();
    let dir = home.path();
    let device = LoopDevice::new(dir.join("ext4"));
    let mounted = Mounted::new(device.path(), dir.join("mounted here"));
    let point = fs::canonicalize(&mounted.0).unwrap();
    assert_eq!(entries(dir, &device)[0]["mounted_at"], json!([point.to_str()]));
    assert_eq!(entries(dir, &device)[0]["label"], json!("desk"));
    for line in ["mkdir IMAGE /new", "repair --yes IMAGE", "grow IMAGE --size 1G"] {
        let said = run(dir, &line.replace("IMAGE", device.name()));
        let expected = format!(
            "in use by the kernel, mounted at {}: unmount it first with umount",
            point.display()
        );
        assert_eq!(said.status, 4, "{line}: {}", said.messages);
        assert!(said.messages.contains(&expected), "{line}: {}", said.messages);
    }
    drop(mounted);
    done(dir, &format!("mkdir {} /new", device.name()));
}

/// The first partition of a loop device, as a device of the kernel. The kernel may lack the code for such tables, so
/// partx(8) adds it.
struct KernelPartition(PathBuf);

impl KernelPartition {
    fn new(disk: &LoopDevice) -> Self {
        let status = testkit::command("partx").arg("--add").arg(disk.path()).status().unwrap();
        assert!(status.success());
        Self(format!("{}p1", disk.name()).into())
    }
}

impl Drop for KernelPartition {
    fn drop(&mut self) {
        let disk = self.0.to_str().unwrap().trim_end_matches("p1");
        // Fails while a list of another test reads the partition. The next image on this loop device would inherit it.
        for _ in 0..200 {
            let deleted = testkit::command("partx").args(["--delete", disk]).status();
            if deleted.is_ok_and(|status| status.success()) || !self.0.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_disk_with_a_mounted_partition_is_not_changed() {
    require!(Root, Loop, Tool("losetup"), Tool("mount"), Tool("partx"));
    let home = images();
    let dir = home.path();
    let device = LoopDevice::new(dir.join("ext4.disk"));
    let part = KernelPartition::new(&device);
    let part = &part.0;
    wait_until("the kernel to find the partition", || part.exists());
    let mounted = Mounted::new(part, dir.join("mounted"));
    let point = fs::canonicalize(&mounted.0).unwrap();
    let list = listed(dir, "--all");
    let entry =
        |path: &Path| list.iter().find(|entry| entry["path"] == json!(path.to_str())).unwrap();
    assert_eq!(entry(part)["mounted_at"], json!([point.to_str()]));
    assert_eq!(entry(device.path())["mounted_at"], json!([]));
    for image in [format!("{} --partition 1", device.name()), part.display().to_string()] {
        let said = run(dir, &format!("mkdir {image} /new"));
        assert_eq!(said.status, 4, "{image}: {}", said.messages);
        let expected = format!("mounted at {}: unmount it first", point.display());
        assert!(said.messages.contains(&expected), "{image}: {}", said.messages);
    }
    drop(mounted);
    done(dir, &format!("mkdir {} /new", part.display()));
}
