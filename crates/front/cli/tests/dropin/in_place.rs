//! mkfs under the original names writes into the existing file. Sector sizes of devices are
//! respected.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::{done, file, home, run};

const LEN: u64 = 400 << 20;

/// Command lines that create a file system in `image`.
const MAKE: [&str; 2] = ["mkfs.ext4 -qF image", "mkfs.xfs -qf image"];

/// Runs lines of a shell in which `$D` is the program.
fn shell(dir: &Path, lines: &str) -> (i32, String) {
    let mut bash = testkit::command("bash");
    bash.current_dir(dir)
        .env("D", env!("CARGO_BIN_EXE_diskwright"))
        .env("MKE2FS_CONFIG", "none.conf");
    let output = bash.args(["-c", lines]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn mkfs_keeps_the_inode_of_a_file_with_all_that_refers_to_it() {
    for line in MAKE {
        let home = home();
        let dir = home.path();
        file(dir, "image", LEN);
        fs::hard_link(dir.join("image"), dir.join("hard")).unwrap();
        fs::rename(dir.join("image"), dir.join("real")).unwrap();
        symlink("real", dir.join("image")).unwrap();
        fs::set_permissions(dir.join("real"), fs::Permissions::from_mode(0o600)).unwrap();
        let before = fs::metadata(dir.join("real")).unwrap();
        let open = fs::File::open(dir.join("real")).unwrap();
        done(dir, line);
        let after = fs::metadata(dir.join("real")).unwrap();
        assert_eq!(
            (after.ino(), after.mode(), after.nlink(), after.uid(), after.len()),
            (before.ino(), before.mode(), 2, before.uid(), LEN),
            "{line}"
        );
        assert!(fs::symlink_metadata(dir.join("image")).unwrap().is_symlink(), "{line}");
        let mut bytes = vec![0; 2048];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.starts_with(b"XFSB") || bytes[1080..1082] == [0x53, 0xef], "{line}");
        // A second run detects and replaces the first file system.
        done(dir, line);
        testkit::require!(Tool("e2fsck"), Tool("xfs_repair"));
        testkit::judge(dir.join("hard"));
    }
}

#[test]
fn mkfs_writes_into_a_file_without_a_name() {
    testkit::require!(Tool("bash"));
    for line in ["mkfs.ext4 -qF /proc/self/fd/8", "mkfs.xfs -qf /proc/self/fd/8"] {
        let home = home();
        let dir = home.path();
        file(dir, "image", LEN);
        let lines = format!(
            "exec 8<>image && rm image && $D as {line} && $D as blkid -o value -s TYPE /proc/self/fd/8"
        );
        let (status, said) = shell(dir, &lines);
        assert_eq!(status, 0, "{line}: {said}");
        assert!(said.ends_with("ext4\n") || said.ends_with("xfs\n"), "{line}: {said}");
    }
}

#[test]
fn bytes_behind_the_file_system_stay() {
    let home = home();
    let dir = home.path();
    fs::write(dir.join("image"), vec![7; 20 << 20]).unwrap();
    done(dir, "mkfs.ext4 -qF image 16M");
    let bytes = fs::read(dir.join("image")).unwrap();
    assert_eq!(bytes.len(), 20 << 20);
    assert!(bytes[16 << 20..].iter().all(|byte| *byte == 7));
    testkit::require!(Tool("e2fsck"));
    testkit::judge(dir.join("image"));
}

#[test]
fn a_failed_mkfs_leaves_a_file_without_a_file_system() {
    let home = home();
    let dir = home.path();
    fs::write(dir.join("tree/noise"), vec![9; 40 << 20]).unwrap();
    file(dir, "image", 16 << 20);
    done(dir, "mkfs.ext4 -qF -L old image");
    let ended = run(dir, "mkfs.ext4 -qF -d tree image");
    assert_eq!(ended.status, 1, "{ended:?}");
    let ended = run(dir, "dumpe2fs -h image");
    assert_ne!(ended.status, 0, "{ended:?}");
    let image = fs::read(dir.join("image")).unwrap();
    assert!(image[..4096].iter().all(|byte| *byte == 0));
    // Invalid arguments change nothing.
    done(dir, "mkfs.ext4 -qF -L old image");
    let before = fs::read(dir.join("image")).unwrap();
    assert_eq!(run(dir, "mkfs.ext4 -qF -b 1000 image").status, 1);
    assert_eq!(run(dir, "mkfs.ext4 -qF -d nothing image").status, 1);
    assert!(fs::read(dir.join("image")).unwrap() == before);
}

#[test]
fn build_still_replaces_an_image_at_once() {
    let home = home();
    let dir = home.path();
    file(dir, "image", 16 << 20);
    let before = fs::metadata(dir.join("image")).unwrap().ino();
    let open = fs::File::open(dir.join("image")).unwrap();
    let mut build = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    build.current_dir(dir).args(["build", "tree", "image", "--force"]);
    assert!(build.status().unwrap().success());
    assert_ne!(fs::metadata(dir.join("image")).unwrap().ino(), before);
    assert_eq!(open.metadata().unwrap().ino(), before);
}

/// Returns the lines of debugfs about owner and attributes of the root directory.
fn root_of(dir: &Path, image: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for request in ["stat <2>", "ea_list <2>"] {
        let mut debugfs = testkit::command("debugfs");
        let output = debugfs.current_dir(dir).args(["-R", request, image]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let is_owner = |line: &&str| {
            line.contains("Mode:") || line.contains("User:") || line.contains("user.")
        };
        lines.extend(text.lines().filter(is_owner).map(|line| {
            // Sizes and generations are not compared.
            let end = line.find("Project:").or(line.find("Flags:")).unwrap_or(line.len());
            line[..end].trim().to_owned()
        }));
    }
    lines.dedup();
    lines
}

#[test]
fn the_root_directory_is_made_as_mke2fs_makes_it() {
    testkit::require!(Tool("mke2fs"), Tool("debugfs"), Tool("setfattr"), Root);
    let home = home();
    let dir = home.path();
    let tree = dir.join("tree");
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o2750)).unwrap();
    std::os::unix::fs::chown(&tree, Some(1000), Some(1001)).unwrap();
    let mut setfattr = testkit::command("setfattr");
    assert!(setfattr.args(["-n", "user.a", "-v", "b"]).arg(&tree).status().unwrap().success());
    for options in ["", "-E root_owner=5:6"] {
        let mut mke2fs = testkit::command("mke2fs");
        mke2fs
            .current_dir(dir)
            .args("-qF -t ext4 -d tree".split(' '))
            .args(options.split_whitespace());
        assert!(mke2fs.args(["theirs", "32M"]).status().unwrap().success());
        done(dir, &format!("mke2fs -qF -t ext4 -d tree {options} ours 32M"));
        assert_eq!(root_of(dir, "ours"), root_of(dir, "theirs"), "{options}");
        assert!(root_of(dir, "ours")[0].contains("Mode:  0755"), "{:?}", root_of(dir, "ours"));
        fs::remove_file(dir.join("theirs")).unwrap();
    }
    // An archive with an entry for its root.
    testkit::require!(Tool("tar"));
    let tar =
        testkit::command("tar").current_dir(dir).args(["-C", "tree", "-cf", "t.tar", "."]).status();
    assert!(tar.unwrap().success());
    done(dir, "mke2fs -qF -t ext4 -d t.tar ours 32M");
    assert!(root_of(dir, "ours")[0].contains("Mode:  02750"), "{:?}", root_of(dir, "ours"));
}

#[test]
fn the_sector_size_of_a_device_is_default_and_limit() {
    testkit::require!(Root, Loop, Tool("losetup"), Mount("ext4"), Mount("xfs"), Tool("mount"));
    let home = home();
    let dir = home.path();
    file(dir, "image", LEN);
    let device = testkit::LoopDevice::with_options(dir.join("image"), &["--sector-size", "4096"]);
    let path = device.name();
    fs::create_dir(dir.join("point")).unwrap();
    for make in ["mkfs.ext4 -qF", "mkfs.ext4 -qF -T small", "mkfs.xfs -qf"] {
        done(dir, &format!("{make} {path}"));
        let mount =
            testkit::command("mount").current_dir(dir).arg(path).arg("point").output().unwrap();
        assert!(mount.status.success(), "{make}: {mount:?}");
        let unmounted = testkit::command("umount").current_dir(dir).arg("point").status();
        assert!(unmounted.unwrap().success());
    }
    assert!(done(dir, &format!("xfs_info {path}")).contains("sectsz=4096"));
    for (line, words) in [
        ("mkfs.ext4 -qF -b 1024", "too small for device"),
        ("mkfs.xfs -qf -s size=512", "illegal sector size 512"),
    ] {
        let ended = run(dir, &format!("{line} {path}"));
        assert!(ended.status == 1 && ended.messages.contains(words), "{line}: {ended:?}");
    }
    // A regular file has no sector size.
    file(dir, "other", 16 << 20);
    done(dir, "mkfs.ext4 -qF -b 1024 other");
}
