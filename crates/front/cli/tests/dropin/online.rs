//! Requests about mounted file systems, which the kernel serves, and devices that it is about to
//! release.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use testkit::LoopDevice;
use testkit::guest::{GuestJob, Kernel};

use super::{done, file, home, run};

fn succeed(name: &str, arguments: &[&str]) -> String {
    let output = testkit::command(name).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A mount, which ends before its device is detached.
struct Mounted {
    point: PathBuf,
    device: LoopDevice,
}

impl Mounted {
    fn new(dir: &Path, image: &str) -> Self {
        let device = LoopDevice::new(dir.join(image));
        let point = dir.join("point");
        fs::create_dir_all(&point).unwrap();
        succeed("mount", &[device.name(), point.to_str().unwrap()]);
        Self { point, device }
    }

    /// Enlarges the image and the device.
    fn lengthen(&self, image: &Path, bytes: u64) {
        fs::File::options().write(true).open(image).unwrap().set_len(bytes).unwrap();
        succeed("losetup", &["--set-capacity", self.device.name()]);
    }

    fn blocks(&self) -> u64 {
        let point = self.point.to_str().unwrap();
        succeed("stat", &["-f", "-c", "%b", point]).trim().parse().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = testkit::command("umount").arg(&self.point).status();
    }
}

#[test]
fn a_mounted_xfs_is_shown_and_grown_by_the_kernel() {
    testkit::require!(
        Root,
        Loop,
        Tool("losetup"),
        Mount("xfs"),
        Tool("xfs_db"),
        Tool("xfs_repair")
    );
    let home = home();
    let dir = home.path();
    file(dir, "image", 400 << 20);
    done(dir, "mkfs.xfs -q -l su=32k -i maxpct=20 -L before image");
    let mounted = Mounted::new(dir, "image");
    let device = mounted.device.name();
    let expected = succeed("xfs_db", &["-r", "-c", "info", device]);
    for target in ["point", device, "image"] {
        assert_eq!(done(dir, &format!("xfs_info {target}")), expected, "{target}");
    }
    assert_eq!(done(dir, "xfs_growfs -n point"), expected);
    mounted.lengthen(&dir.join("image"), 600 << 20);
    let ended = run(dir, "xfs_growfs -D 153601 point");
    assert!(ended.status == 1 && ended.messages.contains("maximum is 153600"), "{ended:?}");
    let said = done(dir, "xfs_growfs -D 130000 point");
    assert!(said.ends_with("data blocks changed from 102400 to 130000\n"), "{said}");
    let said = done(dir, "xfs_growfs -d point");
    assert!(said.ends_with("data blocks changed from 130000 to 153600\n"), "{said}");
    let said = done(dir, "xfs_growfs point");
    assert!(said.ends_with("data size unchanged, skipping\n"), "{said}");
    let said = done(dir, "xfs_growfs -m 5 point");
    assert!(said.ends_with("inode max percent changed from 20 to 5\n"), "{said}");
    // xfs_admin also sets the label through the kernel.
    assert_eq!(done(dir, "xfs_admin -L after point"), "new label = \"after\"\n");
    assert_eq!(done(dir, &format!("xfs_admin -l {device}")), "label = \"after\"\n");
    let ended = run(dir, "xfs_admin -U generate point");
    assert!(ended.status == 1 && ended.messages.contains("mounted"), "{ended:?}");
    fs::create_dir(mounted.point.join("directory")).unwrap();
    for line in ["xfs_info point/directory", "xfs_growfs point/directory", "xfs_info ."] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(ended.messages.contains("is not a mounted XFS filesystem"), "{line}: {ended:?}");
    }
    let ended = run(dir, "xfs_growfs -l point");
    assert!(ended.status == 1 && ended.messages.contains("-l is not supported"), "{ended:?}");
    drop(mounted);
    testkit::xfs_repair(dir.join("image"));
    assert!(done(dir, "xfs_info image").contains("blocks=153600, imaxpct=5"));
}

#[test]
fn a_mounted_ext4_is_grown_and_labelled_by_the_kernel() {
    testkit::require!(Root, Loop, Tool("losetup"), Mount("ext4"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    file(dir, "image", 64 << 20);
    done(dir, "mkfs.ext4 -q -b 1024 -L before image");
    let mounted = Mounted::new(dir, "image");
    let device = mounted.device.name();
    let said = done(dir, &format!("resize2fs {device}"));
    assert!(said.contains("is already 65536 (1k) blocks long.  Nothing to do!"), "{said}");
    mounted.lengthen(&dir.join("image"), 200 << 20);
    let blocks = grow_ext4(dir, &mounted);
    for (line, words) in [
        ("resize2fs DEV 50M", "On-line shrinking not supported"),
        ("resize2fs -M DEV", "On-line shrinking not supported"),
        ("resize2fs DEV 201M", "is only 204800 blocks"),
        ("tune2fs -m 1 DEV", "is mounted on"),
        ("tune2fs -L x -c 5 DEV", "is mounted on"),
    ] {
        let ended = run(dir, &line.replace("DEV", device));
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(ended.messages.contains(words), "{line}: {ended:?}");
    }
    assert_eq!(done(dir, &format!("e2label {device}")), "before\n");
    done(dir, &format!("e2label {device} by-e2label"));
    assert_eq!(done(dir, &format!("e2label {device}")), "by-e2label\n");
    done(dir, &format!("tune2fs -L longer-than-16-bytes {device}"));
    assert!(done(dir, &format!("tune2fs -l {device}")).contains("longer-than-16-b\n"));
    drop(mounted);
    testkit::e2fsck(dir.join("image"));
    assert!(
        done(dir, "dumpe2fs -h image").contains(&format!("Block count:              {blocks}\n"))
    );
}

/// Grows to 200 MiB, if this process may, and returns the number of blocks afterwards. The kernel
/// requires CAP_SYS_RESOURCE.
fn grow_ext4(dir: &Path, mounted: &Mounted) -> u64 {
    let device = mounted.device.name();
    let ended = run(dir, &format!("resize2fs -p {device} 100M"));
    assert!(ended.out.contains("on-line resizing required"), "{ended:?}");
    if !has_sys_resource() {
        let words = "Permission denied to resize filesystem";
        assert!(ended.status == 1 && ended.messages.contains(words), "{ended:?}");
        return 64 << 10;
    }
    let line = format!("The filesystem on {device} is now 102400 (1k) blocks long.\n");
    assert!(ended.status == 0 && ended.out.ends_with(&line), "{ended:?}");
    let before = mounted.blocks();
    done(dir, &format!("resize2fs {device}"));
    assert!(mounted.blocks() > before + 90_000);
    200 << 10
}

fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() >> 24 & 1 == 1
}

/// In the guest, root has the capability that a container's root lacks.
#[test]
fn kernels_grow_a_mounted_ext4_in_the_guest() {
    if testkit::effort(true, false, false) {
        return;
    }
    testkit::require!(Guest("EXT4_FS"), StableGuest("EXT4_FS"), Tool("ldd"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let program = env!("CARGO_BIN_EXE_diskwright");
    let mut files = vec![("diskwright", PathBuf::from(program))];
    for line in succeed("ldd", &[program]).lines() {
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        for name in ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"] {
            files.extend(path.filter(|path| path.ends_with(name)).map(|path| (name, path.into())));
        }
    }
    for kernel in [Kernel::Newest, Kernel::Stable].into_iter().take(testkit::effort(0, 1, 2)) {
        file(dir, "image", 64 << 20);
        done(dir, "mkfs.ext4 -q -b 1024 image");
        fs::File::options()
            .write(true)
            .open(dir.join("image"))
            .unwrap()
            .set_len(200 << 20)
            .unwrap();
        let script = "p() { $FILES/ld-linux-x86-64.so.2 --library-path $FILES $FILES/diskwright as $*; }
            mkdir m && mount $1 m && p resize2fs $1 100M && p tune2fs -L label $1 && p resize2fs $1 &&
            p e2label $1 && umount m";
        let mut job = GuestJob::new(script).disk(dir.join("image"), false).on(kernel);
        job.files.clone_from(&files);
        let answer = testkit::guest::run(&job);
        assert_eq!(answer.status, 0, "{}", answer.output);
        assert!(answer.output.contains("is now 102400 (1k) blocks long."), "{}", answer.output);
        assert!(
            answer.output.ends_with("is now 204800 (1k) blocks long.\nlabel\n"),
            "{}",
            answer.output
        );
        testkit::e2fsck(dir.join("image"));
    }
}

#[test]
fn the_next_program_of_the_name_serves_what_the_kernel_does_not() {
    testkit::require!(Root, Loop, Tool("losetup"), Mount("ext4"), Mount("xfs"), Tool("sh"));
    let home = home();
    let dir = home.path();
    let mut links = testkit::command(env!("CARGO_BIN_EXE_diskwright"));
    assert!(links.current_dir(dir).args(["links", "bin"]).output().unwrap().status.success());
    fs::create_dir(dir.join("next")).unwrap();
    for name in ["tune2fs", "xfs_growfs"] {
        let script = dir.join("next").join(name);
        fs::write(&script, format!("#!/bin/sh\necho next {name} \"$@\"; exit 7\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let linked = |name: &str, words: &[&str]| -> Output {
        let path = format!("{0}/bin:{0}/next:/usr/bin:/bin", dir.display());
        let mut command = testkit::command(dir.join("bin").join(name).to_str().unwrap());
        command.current_dir(dir).env("PATH", path).args(words).output().unwrap()
    };
    for (make, name, more) in
        [("mkfs.ext4 -q", "tune2fs", ["-m", "1"]), ("mkfs.xfs -q", "xfs_growfs", ["-L", "5"])]
    {
        file(dir, "image", 320 << 20);
        done(dir, &format!("{make} image"));
        let mounted = Mounted::new(dir, "image");
        let output = linked(name, &[more[0], more[1], mounted.device.name()]);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let said = format!("next {name} {} {} {}\n", more[0], more[1], mounted.device.name());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), said);
    }
    // An unmounted image is changed directly.
    file(dir, "image", 16 << 20);
    done(dir, "mkfs.ext4 -q image");
    let output = linked("tune2fs", &["-m", "1", "image"]);
    assert!(output.status.success(), "{output:?}");
}

/// `losetup -d` returns before the kernel has detached a device that is open.
#[test]
fn a_loop_device_that_is_being_detached_is_waited_for() {
    testkit::require!(Root, Loop, Tool("losetup"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    file(dir, "image", 16 << 20);
    done(dir, "mkfs.ext4 -q image");
    let device = LoopDevice::new(dir.join("image"));
    // A device that stays attached is rejected at once.
    let begun = Instant::now();
    let ended = run(dir, "e2fsck -fy image");
    assert!(ended.status == 8 && ended.messages.contains("in use by the kernel"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let holder = fs::File::open(&device).unwrap();
    succeed("losetup", &["--detach", device.name()]);
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(holder);
    });
    done(dir, "e2fsck -fy image");
    release.join().unwrap();
    std::mem::forget(device);
    testkit::e2fsck(dir.join("image"));
}

/// The kernel may hold a device slightly longer than umount(8) takes, here because the unmount is
/// lazy.
#[test]
fn commands_wait_for_a_device_that_is_being_unmounted() {
    testkit::require!(Root, Loop, Tool("losetup"), Mount("ext4"), Tool("umount"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    file(dir, "image", 16 << 20);
    done(dir, "mkfs.ext4 -q image");
    let mounted = Mounted::new(dir, "image");
    let device = mounted.device.name().to_owned();
    let begun = Instant::now();
    assert_eq!(run(dir, &format!("e2fsck -fy {device}")).status, 8);
    assert!(begun.elapsed() < Duration::from_secs(1), "a mount is not waited for");
    let holder = fs::File::create(mounted.point.join("held")).unwrap();
    succeed("umount", &["--lazy", mounted.point.to_str().unwrap()]);
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(holder);
    });
    // The journal may have been replayed.
    let ended = run(dir, &format!("e2fsck -fy {device}"));
    assert!(ended.status <= 1, "{ended:?}");
    release.join().unwrap();
    testkit::e2fsck(dir.join("image"));
}
