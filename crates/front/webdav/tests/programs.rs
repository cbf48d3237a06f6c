//! Programs as clients: litmus, rclone, cadaver, curl and davfs2.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::require;
use webdav::{LocalUsers, WebdavAccess, WebdavOptions};

use crate::common::*;

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

#[test]
fn litmus_passes_completely() {
    require!(Tool("litmus"));
    served(&options(), |client, _| {
        let folder = testkit::scratch();
        let mut litmus = testkit::command("litmus");
        litmus.current_dir(folder.path()).arg("-k").arg(&client.url);
        let output = litmus.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let suites: Vec<_> = text.lines().filter(|line| line.contains("summary for")).collect();
        assert_eq!(suites.len(), 5, "{text}");
        assert!(suites.iter().all(|line| line.contains(" 0 failed")), "{text}");
    });
}

#[test]
fn curl_reads_ranges_and_stores_files() {
    require!(Tool("curl"));
    served(&options(), |client, image| {
        let folder = testkit::scratch();
        let data = noise(2_000_000);
        let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
        fs::write(&source, &data).unwrap();
        let url = format!("{}file", client.url);
        let curl = || {
            let mut curl = testkit::command("curl");
            curl.args(["--silent", "--show-error", "--fail"]);
            curl
        };
        run(curl().arg("--upload-file").arg(&source).arg(&url));
        assert!(contents(image, "/file").unwrap() == data);
        assert_eq!(run(curl().args(["--range", "100-199"]).arg(&url)), data[100..200]);
        assert_eq!(run(curl().args(["--range", "-5"]).arg(&url)), data[data.len() - 5..]);
        fs::write(&copy, &data[..1_234_567]).unwrap();
        run(curl().args(["--continue-at", "-", "--output"]).arg(&copy).arg(&url));
        assert!(fs::read(&copy).unwrap() == data);
    });
}

/// Writes a tree of directories and files, also with unusual names.
fn write_tree(folder: &Path) {
    for dir in ["", "sub", "sub/süb dir", "empty"] {
        fs::create_dir_all(folder.join(dir)).unwrap();
    }
    for (name, len) in
        [("a", 0), ("sub/b & <c>", 1000), ("sub/süb dir/100%#?", 300_000), ("sub/d", 1)]
    {
        fs::write(folder.join(name), noise(len)).unwrap();
    }
}

#[test]
fn rclone_copies_both_ways_and_finds_no_differences() {
    require!(Tool("rclone"));
    served(&options(), |client, _| {
        let folder = testkit::scratch();
        let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
        write_tree(&source);
        let remote = format!(":webdav,url=\"{}\":", client.url);
        let rclone = |arguments: &[&str]| {
            let mut rclone = testkit::command("rclone");
            rclone.env("RCLONE_CONFIG", "/dev/null").args(arguments);
            run(&mut rclone)
        };
        let tree = format!("{remote}tree");
        let (source, copy) = (source.to_str().unwrap(), copy.to_str().unwrap());
        rclone(&["copy", "--create-empty-src-dirs", source, &tree]);
        rclone(&["check", "--download", source, &tree]);
        rclone(&["copy", "--create-empty-src-dirs", &tree, copy]);
        run(testkit::command("diff").args(["-r", source, copy]));
        rclone(&["moveto", &tree, &format!("{remote}moved")]);
        let about = String::from_utf8(rclone(&["about", &remote])).unwrap();
        assert!(about.contains("Free:"), "{about}");
        rclone(&["purge", &format!("{remote}moved")]);
        assert_eq!(client.get("/moved/").status, 404);
    });
}

#[test]
fn cadaver_works() {
    require!(Tool("cadaver"));
    served(&options(), |client, image| {
        let folder = testkit::scratch();
        fs::write(folder.path().join("motd"), "Welcome.\n").unwrap();
        let mut cadaver = testkit::command("cadaver");
        cadaver.current_dir(folder.path()).env("HOME", folder.path()).arg(&client.url);
        let pipes = cadaver.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut cadaver = pipes.spawn().unwrap();
        let steps = "mkcol dir\ncd dir\nput motd\ncopy motd second\nmove second third\nlock third\nls\n\
                     unlock third\nget third back\npropset third colour red\npropget third colour\nquit\n";
        cadaver.stdin.take().unwrap().write_all(steps.as_bytes()).unwrap();
        let output = cadaver.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("third") && text.contains("red"), "{text}");
        assert!(!text.contains("failed"), "{text}");
        assert_eq!(fs::read(folder.path().join("back")).unwrap(), b"Welcome.\n");
        assert_eq!(contents(image, "/dir/third").unwrap(), b"Welcome.\n");
        assert!(contents(image, "/dir/second").is_err());
    });
}

#[test]
fn davfs2_mounts_the_files() {
    require!(Tool("mount.davfs"), Tool("umount"), Fuse, Root);
    let mut options = WebdavOptions::new(WebdavAccess::Password("secret".into()));
    // The program connects as the user davfs2.
    options.local_users = LocalUsers::All;
    served(&options, |client, image| {
        let folder = testkit::scratch();
        let (mount, secrets) = (folder.path().join("mount"), folder.path().join("secrets"));
        fs::create_dir(&mount).unwrap();
        fs::write(&secrets, format!("{} user secret\n", client.url)).unwrap();
        fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).unwrap();
        let config = folder.path().join("config");
        let settings = format!("secrets {}\ndelay_upload 0\n", secrets.display());
        fs::write(&config, settings).unwrap();
        let mut davfs = testkit::command("mount.davfs");
        run(davfs.arg(&client.url).arg(&mount).arg("-o").arg(format!("conf={}", config.display())));
        let worked = std::panic::catch_unwind(|| {
            write_tree(&mount.join("tree"));
            fs::rename(mount.join("tree/a"), mount.join("tree/z")).unwrap();
            assert!(fs::read(mount.join("tree/sub/süb dir/100%#?")).unwrap() == noise(300_000));
        });
        run(testkit::command("umount").arg(&mount));
        worked.unwrap();
        assert!(contents(image, "/tree/sub/süb dir/100%#?").unwrap() == noise(300_000));
        assert!(contents(image, "/tree/z").is_ok());
    });
}
