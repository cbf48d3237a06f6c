//! Commands that read give the same result for a remote image as for the file.

use std::fs;

use testkit::{WebFault, require, scratch};

use super::{fails, image, ok, run, served};

#[test]
fn every_command_that_reads_says_the_same_of_a_place() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let (file, url) = (format!("{format}.img"), server.url(format));
        for line in [
            "info IMAGE",
            "ls -l IMAGE /etc",
            "cat IMAGE /etc/hostname",
            "cat IMAGE /noise",
            "find IMAGE",
            "extract IMAGE - --path /usr",
            "paths IMAGE 12",
            "dump IMAGE superblock",
            "check IMAGE",
            "map IMAGE --json",
            "lsattr IMAGE /etc",
        ] {
            let expected = run(dir.path(), &line.replace("IMAGE", &file));
            let found = run(dir.path(), &line.replace("IMAGE", &url));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&url, &file);
            assert_eq!(found.status, expected.status, "{line}: {}", text(&found.stderr));
            let is_same = text(&found.stdout) == text(&expected.stdout);
            assert!(is_same, "{line} says something else of {url}: {}", text(&found.stdout));
        }
        ok(dir.path(), &format!("cp {url}:/etc/hostname name-{format}"));
        let copied = fs::read_to_string(dir.path().join(format!("name-{format}"))).unwrap();
        assert_eq!(copied, "image\n");
        assert!(ok(dir.path(), &format!("diff {url} {file}")).is_empty());
        assert!(run(dir.path(), &format!("convert {url} new-{format}")).status.success());
        assert!(ok(dir.path(), &format!("diff new-{format} {url}")).is_empty());
        let line = format!("build image:{url} again-{format} --fs {format} --size 320M");
        assert!(run(dir.path(), &line).status.success(), "{line}");
        assert!(ok(dir.path(), &format!("diff again-{format} {file}")).is_empty());
    }
}

#[test]
fn a_partition_of_a_place_is_an_image() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    let part = fs::read(image(dir.path(), "ext4")).unwrap();
    crate::disk::with_partition(&dir.path().join("disk"), &part);
    server.put("disk", fs::read(dir.path().join("disk")).unwrap(), "one");
    let url = server.url("disk");
    for place in ["--partition 1", "--offset 1M"] {
        assert_eq!(ok(dir.path(), &format!("cat {place} {url} /etc/hostname")), b"image\n");
    }
    assert!(fails(dir.path(), &format!("ls {url}"), 3).contains("choose one with --partition"));
}

#[test]
fn unreadable_images_have_the_right_status() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    let url = server.url("ext4");
    let missing = server.url("missing");
    assert!(fails(dir.path(), &format!("ls {missing}"), 4).contains("object not found"));
    // The image and its bundle are requested at the same time.
    server.fail(&[WebFault::Whole, WebFault::Whole]);
    assert!(fails(dir.path(), &format!("ls {url}"), 4).contains("does not support range requests"));
    let told = fails(dir.path(), "ls http://me:secret@localhost/x", 2);
    assert!(told.contains("must not contain credentials") && !told.contains("secret"), "{told}");
    // No server listens on this port.
    let told = fails(dir.path(), "ls nbd://localhost:1/disk", 4);
    assert!(told.contains("cannot connect to nbd://localhost:1/disk"), "{told}");
    // Commands that would change a remote image in place.
    for line in
        ["mkdir IMAGE /new", "rm IMAGE /etc/hostname", "repair --yes IMAGE", "grow IMAGE --size 1G"]
    {
        let told = fails(dir.path(), &line.replace("IMAGE", &url), 2);
        assert!(told.contains("--overlay"), "{line}: {told}");
    }
}

#[test]
fn the_cache_is_used_by_the_next_command_and_only_if_asked_for() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let url = server.url(format);
        ok(dir.path(), &format!("cat {url} /noise"));
        assert!(!dir.path().join("xdg").exists(), "a cache was made that nobody asked for");
        let expected = ok(dir.path(), &format!("--cache=kept cat {url} /noise"));
        let _ = server.take_requests();
        assert!(ok(dir.path(), &format!("cat --cache=kept {url} /noise")) == expected);
        // Each command requests the version, and a metadata bundle, which does not exist.
        let requests = server.take_requests().into_iter();
        let mut paths: Vec<_> = requests.map(|request| request.path).collect();
        paths.sort_unstable();
        assert_eq!(paths, [format!("/{format}"), format!("/{format}.dwb")]);
        // Another version is another image.
        server.put(format, fs::read(image(dir.path(), format)).unwrap(), "two");
        assert!(ok(dir.path(), &format!("cat --cache=kept {url} /noise")) == expected);
        assert!(server.take_requests().len() > 2);
    }
    let url = server.url("ext4");
    ok(dir.path(), &format!("ls {url} --cache"));
    assert!(dir.path().join("xdg/diskwright").is_dir());
}

#[test]
fn a_compressed_image_is_read_in_parts() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let line = format!(
            "build image:{format}.img {format}.img.zst --fs {format} --size 320M --output zstd"
        );
        assert!(run(dir.path(), &line).status.success(), "{line}");
        let packed = fs::read(dir.path().join(format!("{format}.img.zst"))).unwrap();
        let all = packed.len() as u64;
        server.put(&format!("{format}.zst"), packed, "one");
        for place in [
            format!("{format}.img.zst"),
            format!("zst:{format}.img.zst"),
            server.url(&format!("{format}.zst")),
        ] {
            assert_eq!(ok(dir.path(), &format!("cat {place} /etc/hostname")), b"image\n");
        }
        let asked = server.take_requests().into_iter().filter_map(|request| request.range);
        let fetched: u64 = asked.map(|range| range.end.min(all) - range.start.min(all)).sum();
        assert!(fetched < all / 2, "{fetched} bytes of {all} were fetched");
    }
    require!(Tool("zstd"));
    let mut zstd = testkit::command("zstd");
    assert!(
        zstd.current_dir(dir.path())
            .args(["-q", "ext4.img", "-o", "plain.zst"])
            .status()
            .unwrap()
            .success()
    );
    assert!(fails(dir.path(), "ls plain.zst", 3).contains("the file has no seek table"));
}

#[test]
fn a_relative_cache_home_is_ignored() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    let home = dir.path().join("home");
    let mut command = crate::program::diskwright();
    command.env_remove("DISKWRIGHT_CACHE").env("XDG_CACHE_HOME", "relative").env("HOME", &home);
    let output =
        command.current_dir(dir.path()).args(["ls", &server.url("ext4"), "--cache"]).output();
    assert!(output.unwrap().status.success());
    assert!(home.join(".cache/diskwright").is_dir() && !dir.path().join("relative").exists());
}
