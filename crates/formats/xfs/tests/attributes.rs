//! Extended attributes: random changes compared with a model in memory, xfs_repair and the kernel; and attributes made
//! by the kernel.

use crate::support;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use fastrand::Rng;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use support::image::{kernel_image, open};
use testkit::{KernelMount, MountOptions, require, xfs_repair};
use vfs::{Error, FileSystem, Ino};
use xfs::Xfs;

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the attributes of a file according to the kernel, except for the alternative names of access control lists.
fn kernel_attributes(path: &Path) -> Attributes {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, &mut names).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let shown = names.filter(|name| !name.starts_with(b"trusted.SGI_ACL_"));
    let with_value = shown.map(|name| {
        let mut value = vec![0; 1 << 16];
        let len = lgetxattr(path, OsString::from_vec(name.to_vec()), &mut value[..]).unwrap();
        value.truncate(len);
        (name.to_vec(), value)
    });
    with_value.collect()
}

/// Returns the attributes of an inode as read here.
fn attributes(fs: &Xfs, ino: Ino) -> Attributes {
    let mut names = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).unwrap();
    let count = names.len();
    let all: Attributes =
        names.into_iter().map(|name| (name.clone(), fs.get_xattr(ino, &name).unwrap())).collect();
    assert_eq!(all.len(), count, "a name is listed twice");
    all
}

fn set(path: &Path, name: &[u8], value: &[u8]) {
    lsetxattr(path, OsString::from_vec(name.to_vec()), value, XattrFlags::empty()).unwrap();
}

fn open_in_progress(path: &Path) -> Xfs {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), 64 << 20).unwrap()
}

/// Returns the inode numbers of the entries of a directory, by name.
fn inodes(root: &Path) -> BTreeMap<Vec<u8>, Ino> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let pair = |entry: std::fs::DirEntry| {
        let ino = entry.path().symlink_metadata().unwrap().ino();
        (entry.file_name().as_bytes().to_vec(), Ino(ino))
    };
    entries.map(pair).collect()
}

/// Makes one file of each type that can have attributes, with several forms of the data fork.
fn make_files(root: &Path, block: u64) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::write(root.join("short"), b"contents").unwrap();
    std::fs::create_dir(root.join("dir")).unwrap();
    for name in ["a", "bb", "a longer name of an entry"] {
        std::fs::write(root.join("dir").join(name), b"").unwrap();
    }
    std::os::unix::fs::symlink("target", root.join("link")).unwrap();
    std::os::unix::fs::symlink("t".repeat(180), root.join("link-180")).unwrap();
    std::os::unix::fs::symlink("t".repeat(290), root.join("link-290")).unwrap();
    std::os::unix::fs::symlink("t".repeat(330), root.join("link-330")).unwrap();
    std::os::unix::fs::symlink("t".repeat(900), root.join("link-900")).unwrap();
    mknodat(CWD, root.join("null"), FileType::CharacterDevice, Mode::RUSR, 0x103).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (name, pieces) in [("five", 5), ("twenty", 20), ("many", 2000)] {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(root.join(name)).unwrap();
        for piece in 0..pieces {
            file.write_all_at(&[1; 100], piece * 2 * block).unwrap();
        }
    }
}

/// Parameters of random names, lengths of values and numbers of attributes.
struct Habits {
    names: usize,
    value_len: fn(&mut Rng) -> usize,
}

fn name(rng: &mut Rng, habits: &Habits, is_user: bool) -> Vec<u8> {
    let number = rng.usize(..habits.names);
    let prefix = match number % 3 {
        0 if is_user => "user",
        1 => "security",
        _ => "trusted",
    };
    // Each number has one name, of any length; some names share a hash.
    let tail = "x".repeat(number * 37 % if number.is_multiple_of(11) { 200 } else { 20 });
    let twin = if number.is_multiple_of(7) { "ab".repeat(3) } else { format!("{number}") };
    format!("{prefix}.n{number}{twin}{tail}").into_bytes()
}

fn change(fs: &Xfs, ino: Ino, model: &mut Attributes, rng: &mut Rng, habits: &Habits, user: bool) {
    let name = name(rng, habits, user);
    if rng.u8(..5) < 2 {
        let was_there = model.remove(&name).is_some();
        match fs.remove_xattr(ino, &name) {
            Ok(()) => assert!(was_there),
            Err(Error::NoAttribute) => assert!(!was_there),
            Err(error) => panic!("{}: {error}", name.escape_ascii()),
        }
        return;
    }
    let len = match model.get(&name) {
        Some(old) if rng.bool() => old.len(),
        _ => (habits.value_len)(rng),
    };
    let value: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
    fs.set_xattr(ino, &name, &value)
        .unwrap_or_else(|error| panic!("{}: {error}", name.escape_ascii()));
    model.insert(name, value);
}

/// Makes random changes with the kernel to attributes made here.
fn kernel_changes(path: &Path, model: &mut Attributes, rng: &mut Rng) {
    let names: Vec<Vec<u8>> = model.keys().cloned().collect();
    for name in names {
        match rng.u8(..4) {
            0 => {
                rustix::fs::lremovexattr(path, OsString::from_vec(name.clone())).unwrap();
                model.remove(&name);
            }
            1 => {
                let value: Vec<u8> = (0..rng.usize(..300)).map(|_| rng.u8(..)).collect();
                set(path, &name, &value);
                model.insert(name, value);
            }
            2 => {
                let new = [b"trusted.".as_slice(), &name].concat();
                set(path, &new, &name);
                model.insert(new, name);
            }
            _ => {}
        }
    }
}

/// Makes random changes of every file's attributes.
fn run(options: &str, seed: u64, steps: usize, habits: &Habits) {
    let (image, inodes) = kernel_image(options, make_files, inodes);
    let fs = open_in_progress(image.path());
    let mut rng = Rng::with_seed(seed);
    let mut models: BTreeMap<Vec<u8>, Attributes> = BTreeMap::new();
    for (name, &ino) in &inodes {
        let file_type = fs.attributes(ino).unwrap().file_type;
        let user = matches!(file_type, vfs::FileType::Regular | vfs::FileType::Directory);
        let model = models.entry(name.clone()).or_default();
        for step in 0..steps {
            change(&fs, ino, model, &mut rng, habits, user);
            if step % 50 == 0 {
                assert_eq!(attributes(&fs, ino), *model);
            }
        }
        assert_eq!(attributes(&fs, ino), *model);
    }
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    image.assert_read_by_kernel(|root| {
        for (name, model) in &models {
            let path = root.join(std::ffi::OsStr::from_bytes(name));
            assert!(kernel_attributes(&path) == *model, "{}", path.display());
        }
    });
    let mount = KernelMount::new(image.path(), &MountOptions::read_write("xfs"));
    for (name, model) in &mut models {
        kernel_changes(&mount.path().join(std::ffi::OsStr::from_bytes(name)), model, &mut rng);
    }
    mount.unmount();
    xfs_repair(image.path());
    // Remove all of them again.
    let fs = open_in_progress(image.path());
    for (name, &ino) in &inodes {
        assert!(attributes(&fs, ino) == models[name], "{}", name.escape_ascii());
        for attribute in models[name].keys() {
            fs.remove_xattr(ino, attribute).unwrap();
        }
        assert_eq!(attributes(&fs, ino), Attributes::new());
    }
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
}

const FEW_AND_SHORT: Habits = Habits { names: 12, value_len: |rng| rng.usize(..30) };
const SOME: Habits = Habits { names: 60, value_len: |rng| rng.usize(..100) };
const MANY: Habits = Habits { names: 900, value_len: |rng| rng.usize(..200) };
const LONG: Habits = Habits {
    names: 30,
    value_len: |rng| match rng.u8(..8) {
        0 => rng.usize(..65537),
        1..=3 => rng.usize(..5000),
        _ => rng.usize(..300),
    },
};

#[test]
fn few_short_attributes() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    run("-n parent=0", 1, 200, &FEW_AND_SHORT);
    run("", 2, 200, &FEW_AND_SHORT);
    run("-i size=2048", 3, 200, &FEW_AND_SHORT);
}

#[test]
fn some() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    run("-b size=1024 -n parent=0", 4, 400, &SOME);
    run("", 5, 400, &SOME);
    run("-b size=65536", 6, 400, &SOME);
}

#[test]
fn many() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    run("-b size=1024", 7, 3000, &MANY);
    run("-n parent=0", 8, 3000, &MANY);
}

#[test]
fn long_attributes() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    run("-b size=1024 -n parent=0", 9, 200, &LONG);
    run("", 10, 200, &LONG);
    run("-b size=65536", 11, 200, &LONG);
}

/// Makes files with attributes in every form with the kernel.
fn make_attributes(root: &Path) {
    let mut value = Rng::with_seed(5);
    let mut bytes = |len: usize| -> Vec<u8> { (0..len).map(|_| value.u8(..)).collect() };
    for (name, count, len) in
        [("one", 1, 3), ("short", 6, 20), ("leaf", 40, 30), ("node", 900, 20), ("empty", 3, 0)]
    {
        let path = root.join(name);
        std::fs::write(&path, b"").unwrap();
        for number in 0..count {
            set(&path, format!("user.attribute-{number}").as_bytes(), &bytes(len));
        }
    }
    let path = root.join("large");
    std::fs::write(&path, b"").unwrap();
    for (name, len) in
        [("user.64k", 65536), ("trusted.block", 4096), ("security.x", 3000), ("user.10k", 10000)]
    {
        set(&path, name.as_bytes(), &bytes(len));
    }
    let path = root.join("gone");
    std::fs::write(&path, b"").unwrap();
    for number in 0..300 {
        set(&path, format!("user.attribute-{number}").as_bytes(), &bytes(100));
    }
    for number in (0..300).filter(|number| number % 3 > 0) {
        rustix::fs::lremovexattr(&path, format!("user.attribute-{number}")).unwrap();
    }
    std::fs::create_dir(root.join("acl")).unwrap();
    let output = testkit::command("setfacl")
        .args(["-m", "u:1000:rwx,g:7:r-x,d:u:5:rw-"])
        .arg(root.join("acl"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn attributes_of_the_kernel_can_be_read() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    for options in ["", "-n parent=0 -b size=1024", "-b size=65536", "-i size=1024"] {
        let note = |root: &Path| -> BTreeMap<Vec<u8>, (Ino, Attributes)> {
            let with_attributes = |(name, ino): (Vec<u8>, Ino)| {
                let path = root.join(std::ffi::OsStr::from_bytes(&name));
                (name, (ino, kernel_attributes(&path)))
            };
            inodes(root).into_iter().map(with_attributes).collect()
        };
        let (image, expected) = kernel_image(options, |root, _| make_attributes(root), note);
        let fs = open(image.path());
        assert_eq!(expected[&b"node"[..]].1.len(), 900);
        for (name, (ino, all)) in &expected {
            assert!(attributes(&fs, *ino) == *all, "{} with {options}", name.escape_ascii());
        }
        // Change and remove the attributes made by the kernel.
        drop(fs);
        let fs = open_in_progress(image.path());
        for (ino, all) in expected.values() {
            for (index, (name, value)) in all.iter().enumerate() {
                match index % 3 {
                    0 => fs.remove_xattr(*ino, name).unwrap(),
                    1 => fs.set_xattr(*ino, name, value).unwrap(),
                    _ if name.starts_with(b"system.") => {}
                    _ => fs.set_xattr(*ino, name, &[b'+'; 150]).unwrap(),
                }
            }
        }
        fs.finish(None).unwrap();
        drop(fs);
        xfs_repair(image.path());
    }
}

#[test]
fn access_control_lists_are_the_kernels() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("setfacl"), Tool("getfacl"), Mount("xfs"));
    let (image, inodes) =
        kernel_image("", |root, _| std::fs::write(root.join("f"), b"").unwrap(), inodes);
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let all = [(1, 6, none), (2, 7, 1000), (4, 4, none), (16, 7, none), (32, 0, none)];
    let entries = all.map(|(tag, perm, id)| entry(tag, perm, id)).concat();
    let value = [&2_u32.to_le_bytes()[..], &entries].concat();
    let fs = open_in_progress(image.path());
    let ino = inodes[&b"f"[..]];
    fs.set_xattr(ino, b"system.posix_acl_access", &value).unwrap();
    assert_eq!(fs.get_xattr(ino, b"system.posix_acl_access").unwrap(), value);
    for wrong in [&b""[..], &value[..11], &[0; 12]] {
        let refused = fs.set_xattr(ino, b"system.posix_acl_access", wrong);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let refused = fs.set_xattr(ino, b"gnu.x", b"");
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    let refused = fs.set_xattr(ino, format!("user.{}", "n".repeat(256)).as_bytes(), b"");
    assert!(matches!(refused, Err(Error::NameTooLong)), "{refused:?}");
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    image.assert_read_by_kernel(|root| {
        let output =
            testkit::command("getfacl").args(["-nc"]).arg(root.join("f")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        // Without a mask bit in the mode the effective rights follow after a tab.
        let plain: Vec<&str> = lines.iter().map(|line| line.split('\t').next().unwrap()).collect();
        let expected = ["user::rw-", "user:1000:rwx", "group::r--", "mask::rwx", "other::---"];
        assert_eq!(plain, expected);
    });
}

/// Attributes of version 4 images, set by xfs_db: current kernels do not mount such images.
#[test]
fn old_images_are_read() {
    require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    for (count, len) in [(2, 10), (30, 100), (700, 40), (3, 9000)] {
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        testkit::MkfsXfs::default().options("-m crc=0").create(&path, 400 << 20);
        let sets = (0..count).map(|number| {
            let flag = ["", "-r ", "-s "][number % 3];
            format!("attr_set {flag}-v {len} attribute-{number}")
        });
        let commands: Vec<String> = ["inode 128".into()].into_iter().chain(sets).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        testkit::xfs_db_write(&path, &commands);
        let fs = open(&path);
        let expected: Attributes = (0..count)
            .map(|number| {
                let prefix = ["user", "trusted", "security"][number % 3];
                (format!("{prefix}.attribute-{number}").into_bytes(), vec![b'v'; len])
            })
            .collect();
        assert_eq!(attributes(&fs, fs.root()), expected, "{count} of {len} bytes");
    }
}
