//! Runs the examples like their users.

#[allow(dead_code, reason = "the main function is unused here")]
#[path = "../examples/backup.rs"]
mod backup;
#[allow(dead_code, reason = "the main function is unused here")]
#[path = "../examples/in_memory.rs"]
mod in_memory;

use std::collections::BTreeMap;
use std::io::Read;

use diskwright::fs::{Image, SpecialFile};
use tar::{Archive, EntryType};

use super::images::{FORMATS, judge, new_image, open};

/// Returns type, mode, contents and target of each path in an archive.
fn entries(archive: &[u8]) -> BTreeMap<String, (EntryType, u32, Vec<u8>, String)> {
    let mut all = BTreeMap::new();
    for entry in Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let target = entry.link_name().unwrap().map_or(String::new(), |t| t.display().to_string());
        let (kind, mode) = (entry.header().entry_type(), entry.header().mode().unwrap());
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        assert!(all.insert(path.clone(), (kind, mode, contents, target)).is_none(), "{path}");
    }
    all
}

fn back_up(image: &Image) -> Vec<u8> {
    let mut archive = Vec::new();
    backup::back_up(image, &mut archive).unwrap();
    archive
}

#[test]
fn an_image_is_made_in_memory() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let device = in_memory::make().unwrap();
    judge(&device);
    let image = open(&device, false);
    assert_eq!(image.label().unwrap(), b"appliance");
    assert_eq!(
        image.read_to_string("/var/log/build").unwrap(),
        "kernel added\nshell added\napp added\n"
    );
    let all = entries(&back_up(&image));
    assert_eq!(all["bin/start"].1, 0o755);
    assert_eq!(all["run/control"].0, EntryType::Fifo);
    assert_eq!(all["var/app.pid"].3, "../run/app.pid");
    assert_eq!(all["etc/hostname"].2, b"appliance\n");
}

#[test]
fn a_backup_has_everything_once() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let long = format!("/long/{}", "n".repeat(200));
        image.create_dir_all(&long).unwrap();
        let big: Vec<u8> = (0..300_000_u32).map(|at| (at / 100) as u8).collect();
        image.write(format!("{long}/big"), &big).unwrap();
        image.hard_link(format!("{long}/big"), "/second").unwrap();
        image.write("/attributes", "x").unwrap();
        image.set_xattr("/attributes", "user.note", "value").unwrap();
        image.create_special("/socket", SpecialFile::Socket, 0o600).unwrap();
        image.close().unwrap();
        judge(&device);
        let archive = back_up(&open(&device, false));
        let all = entries(&archive);
        let first = format!("{}/big", &long[1..]);
        assert_eq!(all[&first].2, big);
        assert_eq!((all["second"].0, &all["second"].3), (EntryType::Link, &first));
        assert!(!all.contains_key("socket"));
        assert!(all.contains_key("."));
        let mut archive = Archive::new(&archive[..]);
        let mut noted = archive.entries().unwrap().map(Result::unwrap).filter_map(|mut entry| {
            let pax = entry.pax_extensions().unwrap()?;
            pax.map(Result::unwrap).find_map(|pair| {
                let is_it = pair.key() == Ok("SCHILY.xattr.user.note");
                is_it.then(|| pair.value_bytes().to_vec())
            })
        });
        assert_eq!(noted.next().unwrap(), b"value");
    }
}

/// Returns the header of a module's file.
fn head(module: &str) -> String {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let places = [source.join(format!("{module}.rs")), source.join(module).join("mod.rs")];
    let text = places.iter().find_map(|place| std::fs::read_to_string(place).ok()).unwrap();
    text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_public_module_begins_with_an_example() {
    let library = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let text = std::fs::read_to_string(library).unwrap();
    let modules = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let without: Vec<_> = modules.filter(|module| !head(module).contains("//! ```")).collect();
    assert!(without.is_empty(), "no example at the head of {without:?}");
}
