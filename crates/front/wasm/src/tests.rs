//! Tests without JavaScript: opening, changes, archives, checks, and use after closing.

use std::rc::Rc;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};

use crate::check_report::Watcher;
use crate::place::{self, Place};
use crate::tar::Tar;
use crate::volume::{self, Format, Open, Volume};
use crate::{edit, entry};

const SIZE: u64 = 64 << 20;
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn json(answer: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(answer).unwrap()
}

/// An empty image of each format.
fn images() -> Vec<Arc<dyn BlockDevice>> {
    let make = |fs: &str| {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(SIZE));
        let format: Format =
            parse(&format!(r#"{{"fs":"{fs}","uuid":"{UUID}","isBlank":true,"small":true}}"#));
        volume::format(&device, &format).unwrap();
        device
    };
    ["ext4", "xfs"].map(make).into()
}

fn open(device: &Arc<dyn BlockDevice>, options: &str) -> Volume {
    Volume::open(device, &parse::<Open>(options)).unwrap()
}

fn check(device: &Arc<dyn BlockDevice>) -> serde_json::Value {
    let watcher = Watcher::new(&|_, _, _| true);
    let (format, summary) = volume::check(device, Place::default(), &watcher).unwrap();
    watcher.report(format, summary)
}

#[test]
fn written_images_can_be_read_and_are_valid() {
    for device in images() {
        let volume = open(&device, r#"{"writable":true}"#);
        volume
            .with(|image| {
                edit::mkdir(image, b"/a/b", true, parse("{}"))?;
                edit::write_file(image, b"/a/b/file", b"contents", parse(r#"{"mode":384}"#))?;
                edit::symlink(image, b"b/file", b"/a/link", parse("{}"))?;
                edit::write_file(image, b"/a/link", b"by the link", parse("{}"))
            })
            .unwrap();
        volume.close().unwrap();
        let volume = open(&device, "{}");
        let listing = volume.with(|image| entry::list(image, b"/a")).unwrap();
        let listing = json(&listing);
        let names: Vec<_> =
            listing["entries"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
        assert_eq!(names, ["b", "link"]);
        let read = volume.with(|image| entry::read(image, b"/a/b/file", 3, 100)).unwrap();
        assert_eq!(read, b"the link");
        let refused = volume.with(|image| edit::write_file(image, b"/new", b"", parse("{}")));
        assert_eq!(refused.unwrap_err().code, "EROFS");
        assert_eq!(check(&device)["verdict"], "clean");
    }
}

#[test]
fn a_failed_write_leaves_no_trace() {
    for device in images() {
        let volume = open(&device, r#"{"writable":true}"#);
        let too_much = vec![1; SIZE as usize];
        let failed = volume.with(|image| edit::write_file(image, b"/f", &too_much, parse("{}")));
        assert_eq!(failed.unwrap_err().code, "ENOSPC");
        let gone = volume.with(|image| entry::stat(image, b"/f", true)).unwrap_err();
        assert_eq!((gone.code, gone.message.as_str()), ("ENOENT", "/f: no such file or directory"));
        volume.close().unwrap();
        assert_eq!(check(&device)["verdict"], "clean");
    }
}

#[test]
fn nothing_can_be_asked_after_closing_or_from_within() {
    for device in images() {
        let volume = Rc::new(open(&device, "{}"));
        let mut tar = Tar::new(Rc::clone(&volume), b"/").unwrap();
        let within = volume.with(|_| volume.with(|_| Ok(()))).unwrap_err();
        assert_eq!(within.code, "EBUSY");
        volume.close().unwrap();
        assert_eq!(tar.next_piece().unwrap_err().code, "EBADF");
        assert_eq!(volume.close().unwrap_err().code, "EBADF");
        assert_eq!(volume.with(|_| Ok(())).unwrap_err().code, "EBADF");
    }
}

#[test]
fn archives_have_whole_blocks_and_omissions_are_reported() {
    for device in images() {
        let volume = Rc::new(open(&device, r#"{"writable":true}"#));
        volume
            .with(|image| {
                edit::write_file(image, b"/large", &vec![7; 3 << 20], parse("{}"))?;
                Ok(image.hard_link(b"/large", b"/second")?)
            })
            .unwrap();
        let mut tar = Tar::new(Rc::clone(&volume), b"/").unwrap();
        let mut bytes = 0;
        loop {
            let piece = tar.next_piece().unwrap();
            if piece.is_empty() {
                break;
            }
            bytes += piece.len();
        }
        assert_eq!(bytes % 512, 0);
        // The second name takes no contents.
        assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
        assert!(tar.remarks().is_empty(), "{:?}", tar.remarks());
        assert!(tar.files() >= 3);
    }
}

#[test]
fn a_map_is_a_picture_with_its_title() {
    for device in images() {
        let volume = open(&device, "{}");
        let svg = volume.with(|image| crate::info::map(image, "a <title>", 256)).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &lt;title&gt;"), "{svg:.300}");
    }
}

#[test]
fn missing_locations_are_reported() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    let code = |options: &str| Volume::open(&device, &parse::<Open>(options)).err().unwrap().code;
    assert_eq!(code("{}"), "ENOTSUP");
    assert_eq!(code(r#"{"partition":1}"#), "ENOENT");
    assert_eq!(code(r#"{"offset":2000000}"#), "EINVAL");
    assert_eq!(code(r#"{"offset":1,"partition":1}"#), "EINVAL");
    assert_eq!(json(&place::layout(&device).unwrap())["contents"], "zeros");
    let empty: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(0));
    assert_eq!(json(&place::layout(&empty).unwrap())["contents"], "zeros");
}

#[test]
fn a_check_can_be_cancelled() {
    for device in images() {
        let watcher = Watcher::new(&|_, _, _| false);
        let (format, summary) = volume::check(&device, Place::default(), &watcher).unwrap();
        let report = watcher.report(format, summary);
        assert_eq!(report["verdict"], "incomplete");
        assert_eq!(report["isInterrupted"], true);
        assert_eq!(report["summary"]["transactionsReplayed"], 0);
    }
}
