//! Parent pointers compared with a model, through all forms. Appending attributes in the inode does not allocate
//! memory.

use operations::RunOperations;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use disk::FileDevice;
use fastrand::Rng;
use testkit::{KernelMount, MkfsXfs, MountOptions, require, xfs_repair};
use vfs::Ino;

use super::parent::{self, NamedLink};
use super::read::{AttrForm, form};
use crate::op::Op;
use crate::{Xfs, XfsCore};

type Links = BTreeSet<(u64, Vec<u8>)>;

const GENERATION: u32 = 7;

fn link_of((dir, name): &(u64, Vec<u8>)) -> NamedLink<'_> {
    NamedLink { dir: Ino(*dir), generation: GENERATION, name }
}

fn links(fs: &XfsCore, ino: Ino, own: &Links) -> Links {
    let mut all = Links::new();
    let handle = fs.load(ino).unwrap();
    let mut count = 0;
    parent::for_each(&mut &*fs, &handle, &mut |link| {
        count += 1;
        all.insert((link.dir.0, link.name.to_vec()));
    })
    .unwrap();
    assert_eq!(all.len(), count, "a link is there twice");
    all.difference(own).cloned().collect()
}

fn change(fs: &XfsCore, ino: Ino, what: impl Fn(&mut Op<'_>, &mut crate::inode::Handle)) {
    fs.atomically(|op| {
        let mut handle = op.fs.load(ino)?;
        what(op, &mut handle);
        op.stage(handle);
        Ok(())
    })
    .unwrap();
}

fn some_link(rng: &mut Rng) -> (u64, Vec<u8>) {
    let name = format!("entry-{}", rng.u32(..400));
    let name = if rng.u8(..4) == 0 { name.repeat(10) } else { name };
    (rng.u64(1..4) << 33 | 128, name.into_bytes())
}

/// Adds, replaces and removes links of the only file of an image, up to `most`.
fn run(options: &str, seed: u64, most: usize) {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    MkfsXfs::default().options(&format!("-n parent=1 {options}")).create(&path, 400 << 20);
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    std::fs::write(mount.path().join("file"), b"").unwrap();
    let ino = Ino(std::fs::metadata(mount.path().join("file")).unwrap().ino());
    mount.unmount();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let fs = Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), 64 << 20).unwrap();
    let own = links(&fs, ino, &Links::new());
    assert_eq!(own.len(), 1);
    let (mut model, mut rng) = (Links::new(), Rng::with_seed(seed));
    let mut forms = Vec::new();
    while model.len() < most {
        let new = some_link(&mut rng);
        if model.contains(&new) {
            continue;
        }
        let old = model.iter().nth(rng.usize(..model.len().max(1))).cloned();
        match (rng.u8(..8), old) {
            (0, Some(old)) => {
                change(&fs, ino, |op, file| op.remove_parent(file, link_of(&old)).unwrap());
                model.remove(&old);
            }
            (1..=2, Some(old)) => {
                let (old_link, new_link) = (link_of(&old), link_of(&new));
                change(&fs, ino, |op, file| op.replace_parent(file, old_link, new_link).unwrap());
                model.remove(&old);
                model.insert(new);
            }
            _ => {
                change(&fs, ino, |op, file| op.add_parent(file, link_of(&new)).unwrap());
                model.insert(new);
            }
        }
        if model.len() % 64 < 2 {
            assert_eq!(links(&fs, ino, &own), model);
        }
        forms.push(form(&fs.load(ino).unwrap()));
    }
    assert!(forms.contains(&AttrForm::Short) && forms.contains(&AttrForm::Blocks));
    assert_eq!(links(&fs, ino, &own), model);
    while let Some(old) = model.iter().nth(rng.usize(..model.len().max(1))).cloned() {
        change(&fs, ino, |op, file| op.remove_parent(file, link_of(&old)).unwrap());
        model.remove(&old);
        if model.len() % 64 < 2 {
            assert_eq!(links(&fs, ino, &own), model);
        }
    }
    assert_eq!(form(&fs.load(ino).unwrap()), AttrForm::Short);
    let absent = some_link(&mut rng);
    change(&fs, ino, |op, file| assert!(op.remove_parent(file, link_of(&absent)).is_err()));
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(&path);
}

#[test]
fn links_come_and_go() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    run("", 1, 300);
    run("-b size=1024", 2, 1100);
    run("-b size=4096 -i size=2048", 3, 600);
}

#[test]
fn links_in_the_inode_take_no_memory() {
    use crate::format::inode::Inode;
    use crate::inode::Handle;

    let mut inode = Inode::from_slot(&[0; 512]);
    inode.as_mut_bytes()[4] = 3;
    inode.reset(vfs::FileType::Regular, 0o644, 1);
    inode.set_forkoff_bytes(192);
    let mut file = Handle::new(Ino(131), inode, crate::format::address::Block(3), 0);
    super::forkoff::init_short(&mut file);
    let name = [b'n'; 40];
    let info = allocation_counter::measure(|| {
        let value = [1; 12];
        let key = super::read::Key { namespace: 8, name: &name, hash: 0, value: Some(&value) };
        for _ in 0..2 {
            assert!(super::change::append_short(&mut file, &key, &value).unwrap());
        }
        assert!(file.inode.forkoff_bytes() == 192);
        assert!(super::change::append_short(&mut file, &key, &value).unwrap());
        assert!(file.inode.forkoff_bytes() < 192);
    });
    assert_eq!(info.count_total, 0);
}
