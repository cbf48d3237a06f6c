//! Contents of other formats: `blkid` identifies them, mkfs rejects them or asks.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::{done, file, home, run};

/// Properties that are compared. Others need more than one read.
const NAMES: [&str; 12] = [
    "TYPE",
    "PTTYPE",
    "PTUUID",
    "LABEL",
    "LABEL_FATBOOT",
    "SEC_TYPE",
    "UUID",
    "UUID_SUB",
    "VERSION",
    "BLOCK_SIZE",
    "USAGE",
    "SUBSYSTEM",
];

/// Writes the samples of the detector as files. Returns their names.
fn samples(dir: &Path) -> Vec<String> {
    let from =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/disk/tests/partition/samples");
    let mut names = Vec::new();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let image = fs::File::create(dir.join(&name)).unwrap();
        for line in fs::read_to_string(&path).unwrap().lines() {
            match line.split_once(' ') {
                Some(("#", _)) | None => {}
                Some(("size", size)) => image.set_len(size.parse().unwrap()).unwrap(),
                Some((at, hex)) => {
                    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
                    image.write_all_at(&bytes, u64::from_str_radix(at, 16).unwrap()).unwrap();
                }
            }
        }
        names.push(name);
    }
    names
}

/// Returns the compared properties among lines of `NAME=VALUE`.
fn properties(lines: &str) -> BTreeSet<String> {
    let is_compared = |line: &&str| NAMES.contains(&line.split('=').next().unwrap());
    lines.lines().filter(is_compared).map(str::to_owned).collect()
}

fn theirs(dir: &Path, line: &str) -> (i32, String) {
    let mut words = line.split_whitespace();
    let mut command = testkit::command(words.next().unwrap());
    let output = command.current_dir(dir).args(words).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn blkid_reports_foreign_contents_as_the_original() {
    testkit::require!(Tool("blkid"));
    let home = home();
    let dir = home.path();
    let mut compared = 0;
    for name in samples(dir) {
        let line = format!("blkid -p -o export {name}");
        let (status, lines) = theirs(dir, &line);
        // Older versions do not detect all formats, no version detects disk images, and the sample
        // lacks the pool name of ZFS.
        if status != 0 {
            continue;
        }
        compared += 1;
        let ours = run(dir, &line);
        assert_eq!(ours.status, 0, "{name}: {ours:?}");
        let mut expected = properties(&lines);
        // The volume descriptors of UDF are a separate sequence. Old versions detect a partition
        // table in exFAT.
        if name == "udf" {
            expected.retain(|line| line.starts_with("TYPE") || line.starts_with("USAGE"));
        }
        if name == "exfat" {
            expected.remove("PTTYPE=dos");
        }
        if name == "ddf" || name == "drbd" {
            expected.retain(|line| !line.starts_with("VERSION"));
        }
        assert_eq!(properties(&ours.out), expected, "{name}");
        let udev =
            properties(&run(dir, &format!("blkid -p -o udev {name}")).out.replace("ID_FS_", ""));
        let (_, lines) = theirs(dir, &format!("blkid -p -o udev {name}"));
        assert!(
            udev.is_subset(&properties(&lines.replace("ID_FS_", ""))),
            "{name}: {udev:?} {lines}"
        );
    }
    assert!(compared > 25, "{compared}");
}

#[test]
fn commands_name_foreign_contents_and_what_helps() {
    let home = home();
    let dir = home.path();
    let program = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
        let output = command.current_dir(dir).args(words).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for name in samples(dir) {
        let (status, said) = program(&["ls", &name]);
        assert_eq!(status, 3, "{name}: {said}");
        let is_table = matches!(&*name, "gpt" | "dos" | "sun" | "sgi");
        assert!(!said.contains("neither") || is_table, "{name}: {said}");
    }
    // Image formats that this program writes. It also reads the first one.
    let built = |format: &str| {
        let built =
            program(&["build", "tree", "built", "--force", "--size", "64M", "--output", format]);
        assert_eq!(built.0, 0, "{built:?}");
    };
    built("android-sparse");
    assert_eq!(program(&["ls", "built"]).0, 0);
    assert_eq!(program(&["check", "built"]).0, 0);
    let (status, said) = program(&["mkdir", "built", "/new"]);
    assert!(status == 2 && said.contains("can only be read"), "{status} {said}");
    built("qcow2");
    for words in [&["ls", "built"][..], &["ls", "built", "--partition", "1"], &["check", "built"]] {
        let (status, said) = program(words);
        assert!(status == 3 && said.contains("qemu-img"), "{words:?}: {status} {said}");
    }
    // A file system behind the metadata of a volume.
    done(dir, "mkfs.ext4 -q inner 8M");
    for (name, at) in [("lvm2", 1 << 20), ("md-1.2", 1 << 20), ("bcache", 8192)] {
        let inner = fs::read(dir.join("inner")).unwrap();
        let image = fs::File::options().write(true).open(dir.join(name)).unwrap();
        image.set_len(at + inner.len() as u64).unwrap();
        image.write_all_at(&inner, at).unwrap();
        let (_, said) = program(&["ls", name]);
        assert!(said.contains(&format!("--offset {at} ")), "{name}: {said}");
        assert_eq!(program(&["ls", name, "--offset", &at.to_string()]).0, 0, "{name}");
    }
    // A destroyed magic number.
    for (line, zeros) in
        [("mkfs.ext4 -qF inner 200M", 1080..1082), ("mkfs.xfs -qf -d size=320m inner", 0..512)]
    {
        done(dir, line);
        let image = fs::File::options().write(true).open(dir.join("inner")).unwrap();
        image.write_all_at(&vec![0; (zeros.end - zeros.start) as usize], zeros.start).unwrap();
        let (status, said) = program(&["ls", "inner"]);
        let names_both = said.contains("check") && said.contains("extract --salvage");
        assert!(
            status == 3 && said.contains("without a valid superblock") && names_both,
            "{line}: {said}"
        );
        fs::remove_file(dir.join("inner")).unwrap();
    }
}

#[test]
fn a_label_of_blkid_never_looks_like_another_property() {
    testkit::require!(Tool("blkid"));
    let home = home();
    let dir = home.path();
    for label in ["\" TYPE=\"swap", "a\\b", "trailing  ", "a\tb", "\u{e9}", "$(x)`y`", "a'b<c>"] {
        for make in [
            &["mkfs.ext4", "-q", "-L", label, "image", "16M"][..],
            &["mkfs.xfs", "-fq", "-L", label, "-d", "size=320m", "image"],
        ] {
            if make[0] == "mkfs.xfs" && label.len() > 12 {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
            command.current_dir(dir).arg("as").args(make);
            assert!(command.status().unwrap().success(), "{make:?}");
            for form in ["full", "value", "export", "udev"] {
                let line = format!("blkid -p -o {form} -s LABEL image");
                assert_eq!(run(dir, &line).out, theirs(dir, &line).1, "{make:?} {form}");
            }
            fs::remove_file(dir.join("image")).unwrap();
        }
    }
}

/// Samples that mkfs.xfs 7 overwrites silently and that our mkfs.xfs rejects.
const STRICTER: [&str; 6] = ["apfs", "bcachefs", "erofs", "iso9660", "udf", "zfs"];

#[test]
fn mkfs_xfs_refuses_foreign_contents_as_its_namesake_does() {
    testkit::require!(Tool("mkfs.xfs"));
    let home = home();
    let dir = home.path();
    let mut refused = 0;
    let other = dir.join("theirs");
    fs::create_dir(&other).unwrap();
    samples(&other);
    for name in samples(dir) {
        // Extends the samples: signatures at their end are then no longer at the end of the file.
        for image in [dir.join(&name), other.join(&name)] {
            let image = fs::File::options().write(true).open(image).unwrap();
            image.set_len(image.metadata().unwrap().len().max(320 << 20)).unwrap();
        }
        let ours = run(dir, &format!("mkfs.xfs -q {name}"));
        let (status, _) = theirs(dir, &format!("mkfs.xfs -q theirs/{name}"));
        // The original overwrites discs, and samples whose checksums it cannot verify, because the
        // samples are truncated.
        let is_stricter = STRICTER.contains(&&*name);
        assert_eq!(ours.status, if is_stricter { 1 } else { status }, "{name}: {ours:?}");
        if status != 0 {
            refused += 1;
            assert!(ours.messages.contains("appears to contain"), "{name}: {ours:?}");
            assert!(ours.messages.contains("Use the -f option"), "{name}: {ours:?}");
            let bytes = |name: &str| {
                let mut bytes = vec![0; 1 << 20];
                let image = fs::File::open(dir.join(name)).unwrap();
                image.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            assert!(bytes(&name) == bytes(&format!("theirs/{name}")), "{name}");
        }
        fs::remove_file(other.join(&name)).unwrap();
        fs::remove_file(dir.join(name)).unwrap();
    }
    assert!(refused > 15, "{refused}");
    done(dir, "mkfs.ext4 -q image 320M");
    let ours = run(dir, "mkfs.xfs -q image");
    assert!(
        ours.status == 1 && ours.messages.contains("an existing filesystem (ext4)"),
        "{ours:?}"
    );
    done(dir, "mkfs.xfs -qf image");
}

/// Runs a command line on a terminal, with `answer` as input.
fn on_terminal(dir: &Path, program: &str, words: &str, answer: &str) -> (i32, String) {
    let script =
        "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut python = testkit::command("python3");
    python.current_dir(dir).args(["-c", script, program]).args(words.split_whitespace());
    python.env("MKE2FS_CONFIG", "none.conf").stdin(fs::File::open(dir.join(answer)).unwrap());
    let output = python.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn mke2fs_asks_on_a_terminal_before_it_overwrites() {
    testkit::require!(Tool("mke2fs"), Tool("python3"));
    let home = home();
    let dir = home.path();
    fs::write(dir.join("no"), "n\n").unwrap();
    fs::write(dir.join("yes"), "y\n").unwrap();
    samples(dir);
    let mke2fs = testkit::command("mke2fs").get_program().to_str().unwrap().to_owned();
    let ours = env!("CARGO_BIN_EXE_diskwright");
    for name in ["gpt", "swap", "fat16", "qcow2"] {
        let question = |said: &str| -> Vec<String> {
            let lines = said.lines().filter(|line| line.contains(name) || line.contains("Proceed"));
            // The terminal shows the answer before or after the question.
            lines
                .map(|line| line.split_inclusive("(y,N)").next().unwrap().trim_end().to_owned())
                .collect()
        };
        let before = fs::read(dir.join(name)).unwrap();
        let (status, said) = on_terminal(dir, &mke2fs, &format!("-q {name} 8M"), "no");
        let is_asked = said.contains("Proceed anyway?");
        fs::write(dir.join(name), &before).unwrap();
        if is_asked {
            let (our_status, our_words) =
                on_terminal(dir, ours, &format!("as mke2fs -q {name} 8M"), "no");
            assert_eq!((our_status, question(&our_words)), (status, question(&said)), "{name}");
            assert!(fs::read(dir.join(name)).unwrap() == before, "{name}");
        }
        assert_eq!(is_asked, name != "qcow2", "{name}: {said}");
        let (status, said) = on_terminal(dir, ours, &format!("as mke2fs -q {name} 8M"), "yes");
        assert_eq!((status, said.contains("Proceed anyway?")), (0, is_asked), "{name}: {said}");
    }
    // Without a terminal and with -F it continues.
    samples(dir);
    done(dir, "mke2fs -q gpt 4M");
    let (status, said) = on_terminal(dir, ours, "as mke2fs -qF swap 1M", "no");
    assert_eq!((status, said.contains("Proceed")), (0, false), "{said}");
}

#[test]
fn a_linked_blkid_passes_unknown_contents_on() {
    let home = home();
    let dir = home.path();
    fs::create_dir_all(dir.join("ours")).unwrap();
    fs::create_dir_all(dir.join("theirs")).unwrap();
    symlink(env!("CARGO_BIN_EXE_diskwright"), dir.join("ours/blkid")).unwrap();
    // A blkid that runs the next blkid in the path must not loop forever.
    let script = "#!/bin/sh\necho theirs \"$@\"\nblkid \"$@\" 2>&1\nexit 5\n";
    fs::write(dir.join("theirs/blkid"), script).unwrap();
    fs::set_permissions(dir.join("theirs/blkid"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("text"), "It was a dark and stormy night.").unwrap();
    done(dir, "mkfs.ext4 -q image 8M");
    let blkid = |path: &str, words: &[&str]| {
        let mut command = Command::new(dir.join("ours/blkid"));
        command.current_dir(dir).env("PATH", path).args(words);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (ours, theirs) = (dir.join("ours"), dir.join("theirs"));
    let both = format!("{}:{}:/usr/bin:/bin", ours.display(), theirs.display());
    for words in [&["-L", "root"][..], &["-p", "text"], &[], &["-k"]] {
        let (status, said) = blkid(&both, words);
        assert_eq!(status, Some(5), "{words:?}: {said}");
        assert!(said.starts_with(format!("theirs {}", words.join(" ")).trim_end()), "{said}");
    }
    assert_eq!(blkid(&both, &["-o", "value", "-s", "TYPE", "image"]), (Some(0), "ext4\n".into()));
    assert_eq!(blkid(&ours.display().to_string(), &["-p", "text"]).0, Some(8));
    assert_eq!(blkid(&ours.display().to_string(), &["-L", "root"]).0, Some(4));
    file(dir, "empty", 1 << 20);
    assert_eq!(blkid(&both, &["-p", "empty"]).0, Some(2));
}
