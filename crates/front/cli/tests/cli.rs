//! The program: arguments, messages and exit statuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env_remove("SOURCE_DATE_EPOCH").args(arguments).output().unwrap()
}

/// Returns exit status and messages of a run that must print nothing on standard output.
fn failure(arguments: &[&str]) -> (i32, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn file(dir: &Path, name: &str, contents: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, contents).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn help_shows_every_command() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for command in [
        "build", "info", "ls", "cat", "find", "extract", "cp", "paths", "mount", "unmount",
        "mkdir", "rm", "rmdir", "mv", "ln", "chmod", "chown", "setfattr", "truncate", "recover",
        "dump", "check", "convert", "workload",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        // The help of workloads is that of another program, which may not be built.
        assert!(command == "workload" || run(&[command, "--help"]).status.success(), "{command}");
    }
    assert!(help.contains("Exit status") && help.contains("powers of 1024"));
}

#[cfg(not(feature = "anywhere"))]
#[test]
fn locations_and_missing_files_are_distinguished() {
    for arguments in [
        &["ls", "s3://bucket/root.img"][..],
        &["mkdir", "qcow2:disk", "/new"],
        &["cp", "https://localhost/root.img:/etc/hosts", "hosts"],
        &["check", "https://localhost/root.img?signature=secret"],
    ] {
        let (status, told) = failure(arguments);
        assert_eq!(status, 2, "{arguments:?}: {told}");
        assert!(told.contains("--features anywhere"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn invalid_arguments_give_status_2() {
    let nowhere = "/nonexistent/source";
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["ls"],
        &["ls", "x", "--partition", "1", "--offset", "512"],
        &["ls", "x", "--offset", "1X"],
        &["find", "x", "--type", "q"],
        &["cat", "x"],
        &["build", nowhere, "y", "--size", "big"],
        &["build", nowhere, "y", "--size", "1G", "--free", "1M"],
        &["build", nowhere, "y", "--owner", "root"],
        &["build", nowhere, "y", "--uuid", "123"],
        &["build", nowhere, "y", "--features", "+,"],
        &["build", nowhere, "y", "--fs", "btrfs"],
        &["build", nowhere, "y", "--threads", "0"],
        &["build", nowhere, "-"],
        &["extract", "x", "-", "--json"],
        &["check"],
        &["check", "x", "--json", "--jsonl"],
        &["check", "x", "--threads", "0"],
    ] {
        let (status, said) = failure(arguments);
        assert_eq!(status, 2, "{arguments:?}: {said}");
        assert!(!said.is_empty(), "{arguments:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env("SOURCE_DATE_EPOCH", "yesterday").args(["build", nowhere, "y"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SOURCE_DATE_EPOCH"));
}

#[test]
fn without_arguments_the_first_steps_are_shown() {
    let (status, said) = failure(&[]);
    assert_eq!(status, 2);
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let steps: Vec<_> = said.lines().filter(|line| line.starts_with("  diskwright ")).collect();
    assert!(steps.len() >= 5 && said.contains("diskwright --help"), "{said}");
    for step in steps {
        let command = step.split_whitespace().nth(1).unwrap();
        assert!(help.contains(&format!("\n  {command} ")), "{step}");
        assert!(step.len() <= 120, "{step}");
    }
}

#[test]
fn a_missing_image_gives_status_4() {
    let (status, said) = failure(&["ls", "/nonexistent/image"]);
    assert_eq!(status, 4);
    assert!(said.starts_with("diskwright: cannot open /nonexistent/image: No such file"), "{said}");
}

#[test]
fn files_that_are_not_images_give_status_3_and_advice() {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents, advice) in [
        ("empty", &b""[..], "use --partition or --offset"),
        ("text", b"hello", "neither an ext2/3/4 nor an XFS image"),
        ("zeros", &[0; 8192], "starts with zeros only"),
        ("qcow2", b"QFI\xfb\0\0\0\x03", "qemu-img convert -O raw"),
        ("gzip", b"\x1f\x8b\x08\0", "gunzip"),
    ] {
        let (status, said) = failure(&["info", &file(dir.path(), name, contents)]);
        assert_eq!(status, 3, "{name}: {said}");
        assert!(said.contains(advice), "{name}: {said}");
    }
}

#[test]
fn a_whole_disk_names_its_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = vec![0; 1 << 20];
    disk[450] = 0x83;
    disk[455] = 1; // First sector 256.
    disk[459] = 2; // 512 sectors.
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let disk = file(dir.path(), "disk", &disk);
    let (status, said) = failure(&["ls", &disk]);
    assert_eq!(status, 3);
    assert!(said.contains("1 (type 0x83, 256.0 KiB); choose one with --partition N"), "{said}");
    let (status, said) = failure(&["ls", &disk, "--partition", "2"]);
    assert_eq!(status, 1);
    assert!(said.contains("partition 2 does not exist; the table has: 1 "), "{said}");
    let (status, said) = failure(&["ls", &disk, "--partition", "1"]);
    assert_eq!((status, said.contains("starts with zeros only")), (3, true), "{said}");
    let (status, said) = failure(&["ls", &disk, "--offset", "1M"]);
    assert_eq!((status, said.contains("past the end")), (2, true), "{said}");
}

#[test]
fn a_control_character_in_a_message_is_escaped() {
    let (_, said) = failure(&["ls", "/nonexistent/\x1b[31m"]);
    assert!(said.contains("\\x1b[31m") && !said.contains('\x1b'), "{said:?}");
}

/// Runs a shell script that redirects the program's standard output.
fn by_shell(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).env_remove("SOURCE_DATE_EPOCH");
    command.env("D", env!("CARGO_BIN_EXE_diskwright")).output().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for words in ["--help", "--version", "ls --help", "help ls"] {
        let output = by_shell(dir.path(), &format!("\"$D\" {words} >/dev/full"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{words}: {said}");
        assert!(said.contains("cannot write the output"), "{words}: {said}");
        let output = by_shell(dir.path(), &format!("\"$D\" {words} | true"));
        assert!(output.status.success() && output.stderr.is_empty(), "{words}");
    }
}

/// A closed output is not /dev/null, which callers may choose.
#[cfg(target_os = "linux")]
#[test]
fn output_to_a_closed_descriptor_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let made = by_shell(dir.path(), "\"$D\" as mke2fs -F -q image 8M >&- 2>&-");
    assert!(made.status.success());
    let before = fs::read(dir.path().join("image")).unwrap();
    for (words, status) in [
        ("--help", 4),
        ("ls image", 4),
        ("info image", 4),
        ("check image", 4),
        ("as dumpe2fs image", 1),
        ("as blkid image", 1),
        ("as debugfs -R stats image", 1),
        ("as tune2fs -l image", 1),
        ("as e2fsck --supported", 1),
        // The status is that of the check.
        ("as e2fsck -fn image", 0),
    ] {
        let output = by_shell(dir.path(), &format!("\"$D\" {words} >&-"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words}: {said}");
        assert!(said.contains("standard output is closed"), "{words}: {said}");
        let output = by_shell(dir.path(), &format!("\"$D\" {words} >&- 2>&- <&-"));
        assert_eq!(output.status.code(), Some(status), "{words}");
        let output = by_shell(dir.path(), &format!("\"$D\" {words} <>/dev/null >&0"));
        assert_eq!(output.status.code(), Some(0), "{words}");
    }
    assert!(fs::read(dir.path().join("image")).unwrap() == before);
}

#[test]
fn arguments_are_escaped_in_messages() {
    for arguments in [
        &["ls", "/none\u{1b}[31m\u{9b}\u{202e}\u{61c}"][..],
        &["ls", "--no\u{1b}[31m\u{9b}\u{202e}"],
    ] {
        let (_, told) = failure(arguments);
        assert!(!told.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{61c}']), "{told:?}");
        assert!(told.contains("\\u{202e}"), "{told:?}");
    }
}

#[test]
fn names_are_escaped_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let name = "a\u{7f}\u{9b}\u{202e}\u{61c}ä";
    fs::write(source.join(name), "").unwrap();
    let image = dir.path().join("image");
    let (source, image) = (source.to_str().unwrap(), image.to_str().unwrap());
    assert!(run(&["build", source, image, "--label", "l\u{9b}\u{202e}"]).status.success());
    for arguments in [
        &["find", "--json", image, "/"][..],
        &["ls", "--json", image],
        &["paths", "--json", image, "12"],
        &["info", "--json", image],
        &["diff", "--json", image, source],
        &["lsattr", "--json", image, "/"],
        &["dump", "--json", image, "superblock"],
        &["check", "--json", image],
    ] {
        let json = String::from_utf8(run(arguments).stdout).unwrap();
        assert!(
            !json.contains(['\u{7f}', '\u{9b}', '\u{202e}', '\u{61c}']),
            "{arguments:?} {json:?}"
        );
        if arguments[0] == "ls" {
            let line = json.lines().find(|line| line.contains("u202e")).unwrap();
            let found: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(found["name"], name);
        }
    }
}

/// Without threads, or with few descriptors, a command works or reports the reason.
#[cfg(target_os = "linux")]
#[test]
fn scarce_resources_cause_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("source")).unwrap();
    for number in 0..20 {
        fs::write(dir.path().join(format!("source/{number}")), vec![7; 100_000]).unwrap();
    }
    let source = by_shell(dir.path(), "\"$D\" build source image --size 16M && cp image other");
    assert!(source.status.success());
    // The kernel kills a program that does not fit itself.
    let starts = |kib: &u32| {
        by_shell(dir.path(), &format!("ulimit -v {kib}; \"$D\" --version")).status.success()
    };
    let least = (40_000..400_000).step_by(4000).find(starts).unwrap();
    for limit in ["-n 8", "-v 400000", "-v 150000", &format!("-v {}", least + 4000)] {
        for words in [
            "build source new --force --size 16M",
            "build source new.zst --output zstd --force --size 16M",
            "ls -lR image",
            "check image",
            "repair --dry-run image",
            "diff image other --threads 8",
            "extract image - --path /1",
            "convert image new.xfs --fs xfs --force",
            "find http://127.0.0.1:1/image?x",
            "publish image s3://bucket/x",
            "workload --help",
        ] {
            let script = format!("ulimit {limit}; timeout 60 \"$D\" {words}");
            let output = by_shell(dir.path(), &script);
            let said = String::from_utf8_lossy(&output.stderr);
            // 134: the allocator aborts if even a small allocation fails.
            let is_orderly =
                output.status.code().is_some_and(|code| code <= 4 || code == 127 || code == 134);
            assert!(is_orderly, "{limit} {words}: {} {said}", output.status);
            assert!(!said.contains("panicked"), "{limit} {words}: {said}");
        }
    }
}

/// Root may always start threads, so the commands run as another user.
#[cfg(target_os = "linux")]
#[test]
fn a_user_without_further_threads_gets_results_or_errors() {
    require!(Root, Tool("setpriv"));
    use std::os::unix::fs::{PermissionsExt, chown};

    // No other process of the machine has this user.
    let user = 65_432;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("diskwright");
    fs::copy(env!("CARGO_BIN_EXE_diskwright"), &program).unwrap();
    let home = dir.path().join("home");
    fs::create_dir_all(home.join("source")).unwrap();
    for number in 0..20 {
        fs::write(home.join(format!("source/{number}")), vec![7; 100_000]).unwrap();
    }
    let made = by_shell(&home, "\"$D\" build source image --size 16M && cp image other");
    assert!(made.status.success());
    for path in ["", "image", "other"] {
        chown(home.join(path), Some(user), Some(user)).unwrap();
    }
    for words in [
        "build source new --force --size 16M",
        "build source new.zst --output zstd --force --size 16M",
        "check image other",
        "repair --dry-run image",
        "diff image other --threads 8",
        "extract image new.d --force",
        "convert image new.xfs --fs xfs --force",
        "rm image:/3",
        "map image -o new.html --force",
        "find http://127.0.0.1:1/image",
        "mount image /nonexistent",
        "as e2fsck -fn other",
        "as mke2fs -F -q -d source new.ext4 16M",
    ] {
        for limit in 1..=3 {
            // dash and bash have different letters for this limit.
            let limited = format!("ulimit -p {limit} 2>/dev/null || ulimit -u {limit}");
            let script = format!("{limited}; exec \"$P\" {words}");
            let mut command = Command::new("timeout");
            command.args(["60", "setpriv", "--clear-groups"]).current_dir(&home);
            command.args([format!("--reuid={user}"), format!("--regid={user}")]);
            command.args(["sh", "-c", &script]);
            let output = command.env("P", &program).env("HOME", &home).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let is_orderly = output.status.code().is_some_and(|code| code <= 4);
            assert!(is_orderly, "{limit} {words}: {} {said}", output.status);
            assert!(!said.contains("panicked"), "{limit} {words}: {said}");
            let has_reason = output.status.success() || !said.is_empty();
            assert!(has_reason, "{limit} {words}: {} without a message", output.status);
        }
    }
}

/// Creates the start of a disk with one Linux partition.
fn disk_with_partition(dir: &Path) -> String {
    let mut bytes = vec![0; 4 << 20];
    // Type 0x83, 4096 sectors from sector 2048 (MBR).
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 16, 0, 0]);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    file(dir, "disk", &bytes)
}

#[test]
fn hints_name_no_option_that_the_command_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk_with_partition(dir.path());
    let source = format!("image:{disk}");
    let new = dir.path().join("new");
    let (disk, source, new) = (&*disk, &*source, new.to_str().unwrap());
    for (arguments, hint) in [
        (&["ls", disk][..], "--partition N"),
        (&["check", disk], "--partition N"),
        (&["convert", disk, new], "--partition N"),
        (&["build", source, new], "choose one: image:FILE:N"),
        (&["as", "e2fsck", "-fn", disk], "losetup -P"),
        (&["as", "xfs_repair", "-n", disk], "losetup -P"),
        (&["as", "resize2fs", disk], "losetup -P"),
        (&["as", "xfs_admin", "-l", disk], "losetup -P"),
        #[cfg(target_os = "linux")]
        (&["as", "mount.diskwright", disk, "."], "choose one with -o partition=N"),
        #[cfg(target_os = "linux")]
        (&["as", "fuse2fs", disk, "."], "losetup -P"),
    ] {
        let output = run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(hint), "{arguments:?}: {told}");
        let option = told.contains("--partition");
        let help = if option { run(&[arguments[0], "--help"]).stdout } else { Vec::new() };
        let help = String::from_utf8(help).unwrap();
        assert!(!option || help.contains("--partition"), "{arguments:?}: {told}");
    }
}
