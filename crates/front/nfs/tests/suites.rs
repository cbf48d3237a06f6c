//! Test suites for POSIX file systems, run over the NFS client of Linux in the guest.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::guest::{self, GuestJob};
use testkit::{MemoryImage, program, require};

use crate::common::{self, *};

/// Time for one suite in an emulated machine.
const LIMIT: Duration = Duration::from_secs(1800);

/// Prepares users and a second file system, and runs the tests of pjdfstest that do not remount.
const PJDFSTEST: &str = r#"
echo "nobody:x:65534:65534::/:/bin/sh" >> /etc/passwd
echo "daemon:x:1:1::/:/bin/sh" >> /etc/passwd
printf 'nogroup:x:65534:\ndaemon:x:1:\n' >> /etc/group
mkdir -p /tmp/second
chmod 755 /tmp
cat > /tmp/pjdfstest.toml <<'END'
[features]
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
cp $FILES/pjdfstest /tmp/pjdfstest
RUST_BACKTRACE=0 /tmp/pjdfstest -c /tmp/pjdfstest.toml -p /mnt/nfs -s /tmp/second 2>&1 || true
"#;

/// Tests that fail over NFS, with the reasons.
const KNOWN: [(&str, &str); 2] = [
    (
        "unlink::open_file_not_freed",
        "the client renames a removed file that is open, so it keeps a link",
    ),
    ("utimensat::y2038", "times after 2106 do not exist in NFSv3"),
];

/// Minimum number of tests that pass, to detect a run that stops early.
const PASSED_MIN: usize = 350;

/// Random operations on one file.
const FSX: &str = r#"
set -e
cat > /tmp/fsx.toml <<'END'
flen = 262144
[opsize]
max = 65536
min = 1
[weights]
close_open = 2
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 12
truncate = 4
fsync = 1
fdatasync = 1
sendfile = 3
posix_fadvise = 2
punch_hole = 0
posix_fallocate = 0
copy_file_range = 0
END
cp $FILES/fsx /tmp/fsx
mkdir -p /tmp/artifacts
/tmp/fsx -f /tmp/fsx.toml -P /tmp/artifacts -N OPERATIONS -S 20240229 /mnt/nfs/fsx
echo complete
"#;

/// Runs a suite in the guest on an image, which must be sound afterwards.
fn run(image: &MemoryImage, tool: &'static str, script: String) -> String {
    let mut job = GuestJob::new(script);
    job.files.push((tool, program(tool).unwrap()));
    job.limit = LIMIT;
    let mut output = String::new();
    common::serve(image, &checked(), |address| {
        let done = guest::nfs_job(address.port(), "3", EXPORT, job);
        output = done.unwrap_or_else(|said| panic!("{}: {said}", image.name));
    });
    output
}

/// Returns the tests with a result.
fn tests<'a>(output: &'a str, wanted: &str) -> BTreeSet<&'a str> {
    let name = |line: &'a str| {
        let mut words = line.split_whitespace();
        let (name, result) = (words.next()?, words.next()?);
        (result == wanted && name.contains("::")).then_some(name)
    };
    output.lines().filter_map(name).collect()
}

/// Short runs use ext4, long ones both formats.
fn on_images(test: impl Fn(&MemoryImage)) {
    let formats: &[&str] = testkit::effort(&["ext4"], &["ext4"], &["ext4", "XFS"]);
    on_both(|image| {
        if formats.contains(&image.name) {
            test(image);
        }
    });
}

#[test]
fn pjdfstest_passes_except_for_known_tests() {
    require!(Guest("NFS_V3"), Tool("pjdfstest"));
    on_images(|image| {
        let output = run(image, "pjdfstest", PJDFSTEST.to_owned());
        let (passed, failed) = (tests(&output, "ok"), tests(&output, "FAILED"));
        println!("{}: {} tests pass", image.name, passed.len());
        let is_known = |name: &&str| KNOWN.iter().any(|(known, _)| name == known);
        let new: Vec<_> = failed.iter().filter(|name| !is_known(name)).collect();
        assert!(new.is_empty(), "{}: {new:?} in\n{output}", image.name);
        let mended: Vec<_> = KNOWN.iter().filter(|(name, _)| passed.contains(name)).collect();
        assert!(mended.is_empty(), "{}: they pass now: {mended:?}", image.name);
        assert!(passed.len() >= PASSED_MIN, "{}: only {passed:?} pass", image.name);
    });
}

#[test]
fn fsx_finds_no_differences() {
    require!(Guest("NFS_V3"), Tool("fsx"));
    let operations = testkit::effort(1000, 2000, 20_000).to_string();
    on_images(|image| {
        let output = run(image, "fsx", FSX.replace("OPERATIONS", &operations));
        assert!(output.contains("complete"), "{}: {output}", image.name);
    });
}
