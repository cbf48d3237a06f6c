//! Owners, labels, device nodes and selections that do not require root, checked with the kernel's
//! view.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use testkit::{command, require, scratch};

use crate::build::common::{
    FORMATS, build_command, common_sample, fail, mount, same_every_time, sample_in, succeed,
};

/// Creates a small tree with a file for each kind of correction.
fn rootfs(root: &Path) {
    for directory in ["bin", "etc", "usr/share/doc/x", "dev"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("bin/ping"), "ping").unwrap();
    std::fs::write(root.join("etc/shadow"), "secret").unwrap();
    std::fs::write(root.join("usr/share/doc/x/README"), "text").unwrap();
    std::fs::write(root.join("usr/share/doc/x/copyright"), "mine").unwrap();
    std::os::unix::fs::symlink("ping", root.join("bin/p")).unwrap();
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let output = succeed(command("getfattr").args(["--only-values", "-h", "-n", name]).arg(path));
    output.stdout
}

/// Adds the corrections of the main test, with files next to the source.
fn correct(command: &mut Command, directory: &Path) {
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).unwrap();
        directory.join(name)
    };
    let contexts = write(
        "contexts",
        "/.* system_u:object_r:default_t:s0\n/etc(/.*)? system_u:object_r:etc_t:s0\n\
         /bin/.* -- system_u:object_r:bin_t:s0\n",
    );
    let map = write("map", "uid 0-1000 500\ngid 0-1000 600-600\n");
    let table = write("table", "/dev/null c 666 0 0 1 3\n/dev/sda b 660 0 6 8 1 1 1 2\n");
    let manifest = write("manifest", "#mtree\n./etc/shadow uid=0 gid=42 mode=0640 time=77.5\n");
    command.arg("--file-contexts").arg(contexts).arg("--owner-map").arg(map);
    command.arg("--devices").arg(table).arg("--manifest").arg(manifest);
    command.args(["--exclude", "/usr/share/doc/**", "--include", "copyright"]);
    command.args(["--chmod", "/bin/ping=u+s", "--chown", "/bin/p=:7", "--json"]);
    command.args(["--xattr", "/etc=user.note=0x6869", "--chmod", "/nothing=0"]);
    command.args(["--capability", "ping=cap_net_raw,cap_net_admin+ep"]);
}

#[test]
fn corrections_are_what_the_kernel_shows() {
    crate::require_all_formats!(Root, Tool("getfattr"), Tool("setcap"));
    for format in FORMATS {
        let directory = scratch();
        let (source, image) = (directory.path().join("source"), directory.path().join("image"));
        rootfs(&source);
        let mut command = same_every_time(&source, &image, format);
        correct(&mut command, directory.path());
        let output = succeed(&mut command);
        let report = String::from_utf8(output.stdout).unwrap();
        let counts = "\"excluded\":1,\"made\":3,";
        assert!(report.contains(counts) && report.contains("--chmod /nothing"), "{report}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("warning: --chmod /nothing"));
        testkit::judge(&image);
        let mounted = mount(&image);
        let root = mounted.path();
        let found = |path: &str| root.join(path).symlink_metadata().unwrap();
        let shadow = found("etc/shadow");
        assert_eq!((shadow.uid(), shadow.gid(), shadow.mode() & 0o7777), (0, 42, 0o640));
        assert_eq!((shadow.mtime(), shadow.mtime_nsec()), (77, 5));
        let ping = found("bin/ping");
        assert_eq!((ping.uid(), ping.gid(), ping.mode() & 0o4000), (500, 600, 0o4000));
        assert_eq!((found("bin/p").uid(), found("bin/p").gid()), (500, 7));
        assert!(found("dev/null").file_type().is_char_device());
        assert_eq!((found("dev/null").rdev(), found("dev/sda2").rdev()), (0x103, 0x802));
        assert!(root.join("usr/share/doc/x/copyright").exists());
        assert!(!root.join("usr/share/doc/x/README").exists());
        let label = |path: &str| xattr(&root.join(path), "security.selinux");
        assert_eq!(label("bin/ping"), b"system_u:object_r:bin_t:s0\0");
        assert_eq!(label("bin/p"), b"system_u:object_r:default_t:s0\0");
        assert_eq!(label("etc/shadow"), b"system_u:object_r:etc_t:s0\0");
        assert_eq!(label("dev/sda1"), b"system_u:object_r:default_t:s0\0");
        assert_eq!(label(""), b"system_u:object_r:default_t:s0\0");
        assert_eq!(xattr(&root.join("etc"), "user.note"), b"hi");
        // The result of setcap with the same text.
        let other = directory.path().join("other");
        std::fs::write(&other, "").unwrap();
        succeed(testkit::command("setcap").arg("cap_net_raw,cap_net_admin+ep").arg(&other));
        let capability = "security.capability";
        assert_eq!(xattr(&root.join("bin/ping"), capability), xattr(&other, capability));
        drop(mounted);
        // One thread produces the same bytes.
        let again = directory.path().join("again");
        let mut command = same_every_time(&source, &again, &format!("{format} --threads 1"));
        correct(&mut command, directory.path());
        succeed(&mut command);
        assert!(std::fs::read(&image).unwrap() == std::fs::read(&again).unwrap());
    }
}

#[test]
fn a_manifest_of_a_tree_gives_the_same_image_as_the_tree() {
    crate::require_all_formats!(Root, Tool("bsdtar"));
    let directory = scratch();
    let (source, _) = sample_in(directory.path(), &common_sample());
    // For files with an ACL, bsdtar writes the mode of the owning group and not the mask. In a
    // manifest, only regular files can have several names.
    std::fs::remove_dir_all(source.join("acls")).unwrap();
    for name in ["fifo", "symlink"] {
        std::fs::remove_file(source.join("links/other").join(name)).unwrap();
    }
    let manifest = directory.path().join("manifest");
    // Without digests, because some of the files are large holes.
    let mut bsdtar = command("bsdtar");
    bsdtar.args(["-c", "--format=mtree", "-f"]).arg(&manifest);
    succeed(bsdtar.arg("-C").arg(&source).arg("."));
    let named = format!("mtree:{}:{}", manifest.display(), source.display());
    for format in FORMATS {
        let image = directory.path().join("image");
        let plain = directory.path().join("plain");
        let mut command = build_command(Path::new(&named), &image, &format!("{format} --force"));
        succeed(&mut command);
        succeed(&mut build_command(&source, &plain, &format!("{format} --force")));
        testkit::judge(&image);
        let (image, plain) = (mount(&image), mount(&plain));
        // A manifest has no extended attributes.
        let ignore = testkit::Ignore { xattrs: true, ..Default::default() };
        let trees = [&plain, &image].map(|mounted| testkit::Tree::of(mounted.path()));
        testkit::assert_same(&trees[0], &trees[1], &ignore);
    }
}

#[test]
fn rules_that_cannot_be_followed_leave_nothing() {
    require!(Tool("e2fsck"));
    let directory = scratch();
    let (source, image) = (directory.path().join("source"), directory.path().join("image"));
    rootfs(&source);
    let rules = directory.path().join("rules");
    let refused = |option: &str, text: &str, status: i32, expected: &str| {
        std::fs::write(&rules, text).unwrap();
        let mut command = build_command(&source, &image, "");
        let said = fail(command.arg(option).arg(&rules), status);
        assert!(said.contains(expected), "{said}");
        assert!(!image.exists());
    };
    refused(
        "--manifest",
        "./etc/shadow mode=600\n./gone mode=1\n",
        3,
        "rules\", line 2: \"/gone\" is",
    );
    refused("--file-contexts", "/(?!x) u:r:t\n", 3, "line 1: expression");
    refused("--owner-map", "uid 0-5 1\nuid 3 1\n", 3, "line 2: number 3 is already set in line 1");
    refused("--devices", "/gone f 644 0 0\n", 3, "line 1: \"/gone\" is not in the source");
    refused("--devices", "/etc c 644 0 0 1 1\n", 3, "expected a character device");
    for (option, value) in [
        ("--chmod", "/a"),
        ("--chmod", "/a=u+q"),
        ("--chown", "/a=root"),
        ("--xattr", "/a=name=x"),
        ("--capability", "/a=cap_none+p"),
        ("--exclude", "["),
    ] {
        let output = build_command(&source, &image, "").arg(option).arg(value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {output:?}");
    }
    let missing = directory.path().join("missing");
    fail(build_command(&source, &image, "").arg("--manifest").arg(missing), 4);
    assert!(!image.exists());
}

#[test]
fn owners_of_everything_give_way_to_those_of_rules() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let (source, image) = (directory.path().join("source"), directory.path().join("image"));
    rootfs(&source);
    let mut command = build_command(&source, &image, "--owner 3:4");
    succeed(command.args(["--chown", "/etc/**=8"]));
    testkit::judge(&image);
    let mounted = mount(&image);
    let owner = |path: &str| {
        let found = mounted.path().join(path).metadata().unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(["", "etc", "etc/shadow"].map(owner), [(3, 4), (3, 4), (8, 4)]);
}
