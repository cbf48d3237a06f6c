//! Inode flags, projects, extent size hints, and trimming: our mounts compared with the kernel's
//! own of the same format.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::place::{Driver, Format, Place, Wanted, prove_on_both, run, shell, tool};

/// Setup before the lines of [`REFUSALS`].
const SETTING: &str = "\
    echo old > i; echo old > a; echo old > plain; setfattr -n user.k -v 1 i a; \
    mkdir di da; echo old > di/x; echo old > da/x; mkdir di/dir da/dir; \
    chattr +i i di; chattr +a a da";

/// Shell lines with the same result on our mount as on the kernel's.
const REFUSALS: &[&str] = &[
    "cat i a di/x da/x",
    "echo new >> i",
    "echo new > i",
    "dd if=/dev/zero of=i conv=notrunc count=1",
    "truncate -s 1 i",
    "truncate -s 100 i",
    "fallocate -l 1M i",
    "fallocate -p -l 4096 i",
    "chmod 600 i",
    "chown 7 i",
    "touch i",
    "touch -d 2020-01-01 i",
    "setfattr -n user.new -v 1 i",
    "setfattr -x user.k i",
    "setfacl -m u:7:r i",
    "ln i other",
    "mv i other",
    "mv plain i",
    "rm -f i",
    "cat i",
    "echo new >> a",
    "echo new > a",
    "dd if=/dev/zero of=a bs=3 conv=notrunc count=1",
    "cat a",
    "truncate -s 1 a",
    "truncate -s 100 a",
    "fallocate -p -l 4096 a",
    "chmod 600 a",
    "chown 7 a",
    "touch a",
    "touch -d 2020-01-01 a",
    "setfattr -n user.new -v 1 a",
    "ln a other",
    "mv a other",
    "mv plain a",
    "rm -f a",
    "cat a",
    "touch di/new",
    "mkdir di/new",
    "ln -s x di/new",
    "mknod di/new p",
    "ln plain di/new",
    "mv plain di/new",
    "mv di/x x",
    "mv di/x di/y",
    "rm -f di/x",
    "rmdir di/dir",
    "echo new > di/x",
    "touch di/dir/new",
    "chmod 700 di",
    "rm -rf di",
    "touch da/new",
    "mkdir da/new-dir",
    "ln plain da/link",
    "mv da/x x",
    "mv da/x da/y",
    "rm -f da/x",
    "rmdir da/dir",
    "echo new > da/x",
    "cp plain moved; mv moved da/",
    "chmod 700 da",
    "mv --exchange plain i",
    "ls di da",
    "chattr -i i di; chattr -a a da; rm -r i a di da",
    "ls",
];

/// Flags that the kernel supports on both formats, and those that only some support.
const LETTERS: &str = "a A c C d D F i P s S t T u x";

/// Returns whether a shell line succeeds, and its output.
fn outcome(directory: &Path, line: &str) -> (bool, String) {
    let mut command = tool("bash");
    let output = command.args(["-c", line]).current_dir(directory).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asserts that lines have the same result in two directories.
#[track_caller]
fn assert_alike(ours: &Path, theirs: &Path, lines: &[String]) {
    let different: Vec<_> = lines
        .iter()
        .filter_map(|line| {
            let (own, kernel) = (outcome(ours, line), outcome(theirs, line));
            (own != kernel).then(|| format!("{line}:\n  {own:?}\n  the kernel's: {kernel:?}"))
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Runs lines on our mount and on the kernel's mount of a similar image.
fn beside_the_kernel(place: &mut Place, lines: &[String]) {
    let wanted = Wanted { driver: Driver::Kernel, ..Wanted::new(place.format()) };
    let kernel = Place::new(wanted);
    assert_alike(place.path(), kernel.path(), lines);
    kernel.finish();
}

fn lines(all: &[&str]) -> Vec<String> {
    all.iter().map(|&line| line.to_owned()).collect()
}

/// Immutable and append-only files reject the same operations as with the kernel's own driver.
fn protected_files_refuse_what_the_kernel_refuses(place: &mut Place) {
    beside_the_kernel(place, &[lines(&[SETTING]), lines(REFUSALS)].concat());
}

/// The flags that can be set on a file and on a directory are the same as the kernel's.
fn flags_are_set_where_the_kernel_sets_them(place: &mut Place) {
    let mut all = lines(&["touch f; mkdir d"]);
    for letter in LETTERS.split(' ') {
        for name in ["f", "d"] {
            all.push(format!("chattr +{letter} {name}"));
            all.push(format!("lsattr -d {name}"));
            all.push(format!("chattr -{letter} {name}"));
            all.push(format!("lsattr -d {name}"));
        }
    }
    all.extend(lines(&[
        "chattr +i f",
        "chattr +A f",
        "chattr -p 5 f",
        "lsattr -p f",
        "chattr -i f",
    ]));
    beside_the_kernel(place, &all);
}

/// New files inherit the same flags as with the kernel.
fn flags_are_inherited_as_the_kernel_does(place: &mut Place) {
    let flags = if place.format() == Format::Ext { "SADdPscut" } else { "SAdP" };
    let make = "touch p/f; mkdir p/d; ln -s x p/l; mknod p/n p; lsattr p | sort; lsattr -d p";
    let mut all = vec![format!("mkdir p; chattr +{flags} p"), make.to_owned()];
    all.push("mkdir q; chattr +a q; touch q/f; mkdir q/d; lsattr q | sort; chattr -a q".to_owned());
    beside_the_kernel(place, &all);
}

/// Shows and sets the fields of FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR. (xfs_io omits flags on
/// file systems that it does not know.)
const FSX: &str = "\
import fcntl, os, struct, sys
for path in sys.argv[1].split(','):
    fd = os.open(path, os.O_RDONLY)
    data = bytearray(28)
    fcntl.ioctl(fd, 0x801c581f, data)
    old = list(struct.unpack('<5I', data[:20]))
    for change in sys.argv[2:]:
        field, value = change.split('=')
        at = ['xflags', 'extsize', 'nextents', 'projid', 'cowextsize'].index(field)
        old[at] = old[at] | int(value, 0) if field == 'xflags' else int(value, 0)
    if len(sys.argv) > 2:
        fcntl.ioctl(fd, 0x401c5820, struct.pack('<5I8x', *old))
    else:
        print(path, hex(old[0]), old[1], old[3], old[4])
    os.close(fd)
";

/// Flags of FS_IOC_FSSETXATTR that all formats support, and those of XFS.
const XFLAGS: (&[u32], &[u32]) =
    (&[0x20, 0x40, 0x80, 0x200, 0x800, 0x1000, 0x8000], &[0x1, 0x2, 0x100, 0x400, 0x2000, 0x4000]);

/// Extent size hints and projects of XFS.
const HINTS_AND_PROJECTS: &[&str] = &[
    "touch f; mkdir d; echo full > g; sync",
    "fsx f xflags=0x800 extsize=65536; fsx f",
    "fsx f xflags=0x800 extsize=5000; fsx f",
    "fsx f xflags=0x800 extsize=1073741824; fsx f",
    "fsx g xflags=0x800 extsize=65536; fsx g",
    "fsx f xflags=0x1000 extsize=65536; fsx f",
    "fsx d xflags=0x1000 extsize=32768; fsx d",
    "fsx d xflags=0x10000 cowextsize=16384; fsx d",
    "touch d/f; mkdir d/d; fsx d,d/f,d/d",
    "fsx d extsize=0; fsx d",
    "fsx f xflags=0x10000 cowextsize=65536; fsx f",
    "fsx f projid=77; fsx f",
    "fsx d projid=8 xflags=0x200; touch d/new; mkdir d/dir; fsx d,d/new,d/dir",
    "fsx f projid=0; fsx f; fsx f projid=9",
    "mv f d/; ls f",
    "ln f d/f2",
    "touch f0; chattr -p 8 f0; ln f0 d/",
    "mv f0 d/moved; lsattr -p d | sort",
    "fsx f xflags=0x8; fsx f projid=5; fsx f; chattr -i f",
];

/// Projects, extent size hints and XFS-only flags behave as in the kernel. (The kernel's ext4
/// accepts the flags of XFS and ignores them; our driver rejects them.)
fn extended_flags_are_those_of_the_kernel(place: &mut Place) {
    let mut all = Vec::new();
    let is_xfs = place.format() == Format::Xfs;
    let own = if is_xfs { XFLAGS.1 } else { &[] };
    for bit in XFLAGS.0.iter().chain(own) {
        let dir = format!("d{bit:x}");
        all.push(format!("mkdir {dir}; touch {dir}.f"));
        all.push(format!("fsx {dir} xflags={bit}; fsx {dir}.f xflags={bit}; fsx {dir},{dir}.f"));
        all.push(format!("touch {dir}/f; mkdir {dir}/d; ln -s x {dir}/l"));
        all.push(format!("fsx {dir},{dir}.f,{dir}/f,{dir}/d"));
    }
    all.extend(lines(if is_xfs { HINTS_AND_PROJECTS } else { &[] }));
    if !testkit::satisfied(
        "extended_flags_are_those_of_the_kernel",
        &[testkit::Need::Tool("python3")],
    ) {
        return;
    }
    let script = place.home().join("fsx.py");
    fs::write(&script, FSX).unwrap();
    // `python3` in PATH may be a slow wrapper script, so the interpreter itself is used.
    let python = run(tool("python3").args(["-c", "import sys; print(sys.executable)"]));
    let function = format!("fsx() {{ {} -IS {} \"$@\"; }}; ", python.trim(), script.display());
    let all: Vec<_> = all.iter().map(|line| format!("{function}{line}")).collect();
    beside_the_kernel(place, &all);
}

/// Data written before a file became immutable is kept, and so is data appended to an append-only
/// file.
fn writes_before_protection_are_kept(place: &mut Place) {
    let script = "\
import os, fcntl, struct
def flag(fd, flags):
    fcntl.ioctl(fd, 0x40086602, struct.pack('l', flags))
fd = os.open('late', os.O_CREAT | os.O_RDWR)
os.write(fd, b'x' * 10000)
flag(fd, 0x10 | OTHERS)
try:
    os.write(fd, b'y')
    print('written')
except PermissionError:
    print('refused')
os.close(fd)
fd = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
flag(fd, 0x20 | OTHERS)
for number in range(3000):
    os.write(fd, b'%06d\\n' % number)
os.close(fd)
";
    let others = if place.format() == Format::Ext { "0x80000" } else { "0" };
    let script = script.replace("OTHERS", others);
    if !testkit::satisfied("writes_before_protection_are_kept", &[testkit::Need::Tool("python3")]) {
        return;
    }
    let run_it = tool("python3").args(["-c", &script]).current_dir(place.path()).output();
    let output = run_it.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if place.driver() == Driver::Own {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "refused\n");
    }
    place.remount();
    assert_eq!(fs::read(place.join("late")).unwrap()[..10_000], [b'x'; 10_000]);
    let log = fs::read_to_string(place.join("log")).unwrap();
    assert!(log.lines().enumerate().all(|(number, line)| line == format!("{number:06}")));
    assert_eq!(log.lines().count(), 3000);
    shell(place.path(), "chattr -i late; chattr -a log");
}

/// The noatime flag is respected.
fn noatime_is_obeyed(place: &mut Place) {
    shell(
        place.path(),
        "echo text > f; touch -d 2001-01-01 f; touch -a -d 2000-01-01 f; chattr +A f",
    );
    place.remount();
    let before = fs::metadata(place.join("f")).unwrap().atime();
    assert_eq!(fs::read(place.join("f")).unwrap(), b"text\n");
    place.remount();
    assert_eq!(fs::metadata(place.join("f")).unwrap().atime(), before);
}

/// `fstrim` punches holes in the image at free space only.
fn fstrim_gives_free_space_back(place: &mut Place) {
    shell(
        place.path(),
        "mkdir kept gone; for n in $(seq 40); do head -c 1000000 /dev/urandom > kept/$n; \
         head -c 2000000 /dev/urandom > gone/$n; done; sync",
    );
    let sums = shell(place.path(), "sha256sum kept/*");
    let space = |place: &Place| fs::metadata(place.image()).unwrap().blocks() * 512;
    let full = space(place);
    shell(place.path(), "rm -r gone");
    run(tool("fstrim").arg(place.path()));
    let trimmed = space(place);
    assert!(trimmed + 70_000_000 < full, "{full} bytes before, {trimmed} after");
    assert_eq!(shell(place.path(), "sha256sum kept/*"), sums);
    shell(place.path(), "echo more > more");
    place.remount();
    assert_eq!(shell(place.path(), "sha256sum kept/*; cat more"), sums + "more\n");
}

/// Only root and the mounting user may trim.
fn others_may_not_trim(place: &mut Place) {
    use std::os::unix::process::CommandExt;
    shell(place.path(), "chmod 777 .");
    let output = tool("fstrim").arg(place.path()).uid(4321).gid(4321).output().unwrap();
    assert!(!output.status.success());
}

prove_on_both!(
    protected_files_refuse_what_the_kernel_refuses,
    flags_are_set_where_the_kernel_sets_them,
    flags_are_inherited_as_the_kernel_does,
    extended_flags_are_those_of_the_kernel,
    writes_before_protection_are_kept,
    noatime_is_obeyed,
    fstrim_gives_free_space_back,
    others_may_not_trim,
);
