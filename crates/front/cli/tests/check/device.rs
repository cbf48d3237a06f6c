//! Devices that fail to read parts of an image. The check reports no verdict on the image.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use disk::{Access, Fault, FaultyDevice, FileDevice};
use diskwright::check::{Collector, ImageCheck, Limits, Options, Verdict};
use diskwright::{ImageOptions, Outcome};
use rustix::process::Signal;
use serde_json::json;
use testkit::{Mke2fs, require};

use super::common::{FORMATS, image, list, run};
use crate::mount::{Mounted, unmount_when_free};

/// A loop device, detached on drop.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = testkit::command("losetup").args(["--detach", &self.0]).status();
    }
}

/// The image is a file on a mount whose server is killed. Pages read earlier are cached; reads of
/// others fail.
#[test]
fn a_device_that_fails_makes_a_check_incomplete() {
    require!(Root, Loop, Fuse, Tool("losetup"), Tool("mke2fs"));
    for options in FORMATS {
        let home = image(&options.replace("64M", "310M"));
        let dir = home.path();
        let outer = dir.join("outer.img");
        Mke2fs::new("ext4").create(&outer, 512 << 20);
        let mount = Mounted::new(&outer);
        testkit::copy_image(&dir.join("a.img"), &mount.join("inner.img"));
        let unmounted = unmount_when_free(mount.path());
        assert!(unmounted.status.success(), "{unmounted:?}");
        drop(mount);
        // The kernel's cache is empty now.
        let mount = Mounted::new(&outer);
        let mut losetup = testkit::command("losetup");
        losetup.args(["--read-only", "--find", "--show"]).arg(mount.join("inner.img"));
        let made = losetup.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        // An open device keeps its cache.
        let mut open = File::open(&device.0).unwrap();
        open.read_exact(&mut [0; 64 << 10]).unwrap();
        mount.signal(Signal::KILL);
        mount.kill();

        let said = run(dir, &format!("check --json {}", device.0));
        assert_eq!(said.status, 4, "{}{}", said.out, said.messages);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(
            (&report["verdict"], &report["is_complete"]),
            (&json!("incomplete"), &json!(false))
        );
        assert!(
            report["device_error"].as_str().unwrap().contains("Input/output error"),
            "{report}"
        );
        assert!(!list(&report, "kinds").is_empty(), "the places are findings: {report}");
        let said = run(dir, &format!("check {}", device.0));
        assert_eq!(said.status, 4, "{}", said.out);
        let last = said.out.lines().last().unwrap();
        assert!(last.contains(": incomplete: ") && last.contains("the device failed"), "{last}");
        let said = run(dir, &format!("repair --plan --json {}", device.0));
        assert_eq!(said.status, 4, "{}{}", said.out, said.messages);
        let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(plan["verdict"], json!("incomplete"), "{plan}");
        // The exit statuses of the original programs: fsck(8)'s operational error, and xfs_repair's
        // only error status.
        let (program, status) =
            if options.contains("xfs") { ("xfs_repair -n", 1) } else { ("e2fsck -fn", 8) };
        let said = run(dir, &format!("as {program} {}", device.0));
        assert_eq!(said.status, status, "{}{}", said.out, said.messages);
        let all = said.out + &said.messages;
        assert!(all.contains("the check is incomplete"), "{all}");
    }
}

/// Whichever read fails, the verdict is neither `clean` nor `damaged`.
#[test]
fn no_read_that_fails_is_taken_for_damage() {
    for options in FORMATS {
        let home = image(options);
        let path = home.path().join("a.img");
        let device = FileDevice::new(File::open(&path).unwrap()).unwrap();
        let device = Arc::new(FaultyDevice::new(Arc::new(device)));
        let check = |fault| {
            device.set(Access::Read, Fault::Never);
            let subject =
                ImageCheck::on_device(&path, device.clone(), &ImageOptions::default()).unwrap();
            device.set(Access::Read, fault);
            let collector = Collector::new(Limits::default());
            let summary = subject.check(&Options::default(), &collector).unwrap();
            collector.report(&subject, summary)
        };
        assert_eq!(check(Fault::Never).verdict(), Verdict::Clean);
        let reads = device.count(Access::Read);
        assert!(reads > 10, "{reads}");
        for nth in 1..=reads {
            for fault in [Fault::Nth(nth), Fault::From(nth)] {
                let report = check(fault);
                if device.failures(Access::Read) > 0 {
                    assert_eq!(
                        report.verdict(),
                        Verdict::Incomplete,
                        "{options} {fault:?}: {report:?}"
                    );
                    assert_eq!(report.outcome(), Outcome::Io);
                }
            }
        }
    }
}
