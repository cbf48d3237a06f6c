//! No command shows the query or the password of an address, or a server's echo of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{RawServer, WebServer, require, scratch};

use super::{ok, run};
use crate::program::diskwright;

const CANARY: &str = "CANARY";

/// Every command with an address as image, source or target. `OUT` is a directory for files.
const LINES: &[&str] = &[
    "info URL",
    "info --json URL",
    "ls -lR URL",
    "ls --json URL",
    "ls URL /none",
    "cat URL /file",
    "cat URL /none",
    "find URL",
    "find --json URL",
    "find --damaged URL",
    "extract URL OUT/tree",
    "extract URL OUT/none --path /none",
    "cp URL:/file OUT/file",
    "cp URL:/none OUT/none",
    "cp local.img URL:/file",
    "paths URL 12",
    "paths --json URL 2",
    "check URL",
    "check --json URL",
    "check --jsonl URL local.img",
    "bundle URL",
    "bundle --json URL",
    "bundle URL --out OUT/bundle",
    "repair URL",
    "repair --yes URL",
    "dump URL superblock",
    "dump --json URL superblock",
    "map URL",
    "map URL -o OUT/map.svg",
    "map URL -o OUT/map.html",
    "map URL --format json",
    "lsattr URL /file",
    "diff URL local.img",
    "diff local.img URL -o OUT/layer.tar",
    "diff --json URL URL",
    "copy URL OUT/copy",
    "copy --json --state OUT/state URL OUT/copy-2",
    "copy --output qcow2 URL OUT/copy-3",
    "copy local.img URL",
    "copy --restore URL OUT/none",
    "deleted URL",
    "deleted --json URL",
    "deleted URL --extract OUT/deleted",
    "timeline URL",
    "timeline --deleted URL",
    "convert URL OUT/converted",
    "convert --json URL OUT/converted-2",
    "convert local.img URL",
    "build image:URL OUT/built",
    "build URL OUT/built-2",
    "build source URL",
    "mkdir URL /x",
    "rm URL /file",
    "rmdir URL /x",
    "mv URL /file /x",
    "ln URL /file /x",
    "chmod URL 600 /file",
    "chown URL 0:0 /file",
    "chattr URL +i /file",
    "setfattr URL user.a 1 /file",
    "truncate URL 1 /file",
    "dedupe URL",
    "quota URL",
    "quota --json URL",
    "quota URL --on users",
    "trim URL",
    "recover URL",
    "grow URL --size 1G",
    "shrink URL --size 1M",
    "apply URL local.img",
    "apply OUT/layer.tar URL",
    "publish URL s3://b/p",
    "publish --name x local.img URL",
    "publish local.img URL",
    "gc URL",
    "volume create URL --size 1G",
    "volume list URL",
    "volume stat URL",
    "volume check --data URL",
    "volume gc URL",
    "volume snapshot URL x",
    "volume clone URL URL",
    "volume clone s3://b/x?sig=CANARY s3://c/y?sig=CANARY",
    "volume export URL OUT/exported",
    "volume delete URL",
    "clone URL OUT/clone",
    "clone local.img URL",
    "snapshot URL OUT/snapshot",
    "snapshot local.img URL",
    "reset URL",
    "reset local.img --to URL",
    "commit URL OUT/committed",
    "commit local.img OUT/committed --base URL",
    "serve URL no-address-URL",
    "mount URL OUT/no-directory",
    "mount --foreground URL OUT/no-directory",
    "mount --overlay OUT/overlay --foreground URL OUT/no-directory",
    "mount --record OUT/record --foreground URL OUT/no-directory",
    "mount --via nfs --foreground URL OUT/no-directory",
    "unmount URL",
    "mounts URL",
    "devices URL",
    "workload URL",
    "links URL/x",
    "as e2fsck -fn URL",
    "as dumpe2fs URL",
    "as debugfs -R stats URL",
    "as blkid URL",
    "as xfs_repair -n URL",
    "as xfs_info URL",
    "as xfs_admin -l URL",
    "as tune2fs -l URL",
    "as e2label URL",
    "as resize2fs URL 1G",
    "as mke2fs URL",
    "as mkfs.xfs URL",
    "as mount.diskwright URL OUT/no-directory",
    "as fuse2fs URL OUT/no-directory",
    "info --no-such-URL URL",
    "no-such-command-URL",
];

fn commands() -> BTreeSet<String> {
    let help = diskwright().arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let list = list.lines().take_while(|line| !line.is_empty());
    // Further lines of a description are indented more.
    let commands = list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    commands.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns whether a file or a tree contains the bytes, in contents or names.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    if path.to_str().is_some_and(|name| name.contains(CANARY)) {
        return true;
    }
    if !path.is_dir() {
        return fs::read(path).is_ok_and(|found| found.windows(bytes.len()).any(|it| it == bytes));
    }
    fs::read_dir(path).unwrap().any(|entry| holds(&entry.unwrap().path(), bytes))
}

fn assert_silent(dir: &Path, number: usize, line: &str, url: &str) {
    let out = dir.join(format!("out-{number}"));
    fs::create_dir(&out).unwrap();
    let line = line.replace("URL", url).replace("OUT", out.to_str().unwrap());
    let output = diskwright()
        .current_dir(dir)
        .env_remove("DISKWRIGHT_CACHE")
        .env_remove("RUST_BACKTRACE")
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "x")
        .env("AWS_ENDPOINT", url.split("/disk").next().unwrap())
        .args(line.split_whitespace())
        .output()
        .unwrap();
    for (stream, bytes) in [("standard output", &output.stdout), ("standard error", &output.stderr)]
    {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(CANARY), "{line}: {stream}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}']), "{line}: {stream}: {text}");
        assert!(!text.contains("panicked"), "{line}: {stream}: {text}");
    }
    assert!(!holds(&out, CANARY.as_bytes()), "{line}: a file has it");
    assert!(!dir.join("http:").exists(), "{line}: a directory is named after the address");
}

#[test]
fn no_command_shows_the_secrets_of_an_address() {
    let dir = scratch();
    let path = dir.path();
    fs::create_dir(path.join("source")).unwrap();
    fs::write(path.join("source/file"), "x").unwrap();
    assert!(run(path, "build source local.img --size 4M").status.success());
    let server = WebServer::new();
    server.put("disk.img", fs::read(path.join("local.img")).unwrap(), "one");
    let echo = RawServer::new(|head, stream| {
        let body = format!("{head}\u{1b}[31m\u{9b}31m");
        write!(
            stream,
            "HTTP/1.1 403 No\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    });
    let query = format!("X-Sig={CANARY}&token={CANARY}");
    let with_password = server.url("disk.img").replacen("//", &format!("//user:{CANARY}@"), 1);
    let urls = [
        server.url(&format!("disk.img?{query}")),
        format!("{}/disk.img?{query}", echo.url()),
        with_password,
    ];
    let shown: BTreeSet<_> =
        LINES.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let missing: Vec<_> =
        commands().into_iter().filter(|it| !shown.contains(it) && it != "help").collect();
    assert!(missing.is_empty(), "no line tries {missing:?}");
    let cases: Vec<_> =
        urls.iter().flat_map(|url| LINES.iter().map(move |line| (line, url))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((line, url)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let number = next.fetch_add(0, Ordering::Relaxed);
                    let number =
                        number * 1000 + cases.iter().position(|it| it == &(*line, *url)).unwrap();
                    assert_silent(path, number, line, url);
                }
            });
        }
    });
}

#[test]
fn a_mount_shows_no_query_in_the_table_of_mounts() {
    require!(Fuse);
    let dir = scratch();
    fs::create_dir(dir.path().join("source")).unwrap();
    assert!(run(dir.path(), "build source local.img --size 4M").status.success());
    let server = WebServer::new();
    server.put("disk", fs::read(dir.path().join("local.img")).unwrap(), "one");
    let point = crate::mount::Point::new();
    let url = server.url(&format!("disk?sig={CANARY}"));
    ok(dir.path(), &format!("mount -o ro {url} {}", point.path().display()));
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
    ok(dir.path(), &format!("unmount {}", point.path().display()));
    let line = mounts.lines().find(|line| line.contains(point.path().to_str().unwrap())).unwrap();
    assert!(line.starts_with(&server.url("disk ")), "{line}");
    assert!(!mounts.contains(CANARY) && !info.contains(CANARY), "{line}");
}
