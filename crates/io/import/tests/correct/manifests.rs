//! Manifests as sources and as corrections, including those of other programs.

use std::path::Path;

use import::correct::CorrectionOptions;
use import::mtree::{Manifest, ManifestOptions};
use import::{SourceError, Time};
use testkit::{command, require, scratch};

use super::{archive, file, paths, plainly, said, tree};
use crate::common::{ItemKind, TreeItem, by_path, collect};

const OPTIONS: ManifestOptions = ManifestOptions { threads: 3, time: Time { sec: 5, nsec: 0 } };

fn load(manifest: &Path, root: Option<&Path>) -> Result<Vec<TreeItem>, SourceError> {
    collect(&mut Manifest::load(manifest, root, &OPTIONS)?.source())
}

/// Creates a tree with everything that a manifest can describe.
fn sample(root: &Path) {
    std::fs::create_dir_all(root.join("sub/deep er")).unwrap();
    std::fs::write(root.join("sub/deep er/#hash\\back"), "hash").unwrap();
    std::fs::write(root.join("sub/new\nline"), vec![7; 70_000]).unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    let name = std::ffi::OsString::from(String::from_utf8_lossy(b"caf\xc3\xa9").into_owned());
    std::fs::write(root.join(name), "é").unwrap();
    std::os::unix::fs::symlink("sub/new line", root.join("li nk")).unwrap();
    std::fs::hard_link(root.join("empty"), root.join("sub/same")).unwrap();
    for (name, kind) in [("fifo", "p"), ("null", "c")] {
        let mut mknod = std::process::Command::new("mknod");
        mknod.arg(root.join(name)).arg(kind);
        if kind == "c" {
            mknod.args(["1", "3"]);
        }
        assert!(mknod.status().unwrap().success());
    }
}

#[test]
fn manifests_of_other_programs_give_the_tree_they_were_made_of() {
    require!(Root, Tool("bsdtar"), Tool("mtree"));
    let directory = scratch();
    let root = directory.path().join("root");
    sample(&root);
    let expected = by_path(collect(&mut *tree(&root)).unwrap());
    let all = "mtree:all";
    let sparse = "mtree:all,mtree:use-set,mtree:indent";
    let mtree = command("mtree").get_program().to_owned();
    let mtree = mtree.to_str().unwrap();
    let written: [(&str, &[&str]); 5] = [
        ("bsdtar", &["-cf", "-", "--format=mtree", "-C", ".", "."]),
        ("bsdtar", &["-cf", "-", "--format=mtree", "--options", all, "-C", ".", "."]),
        ("bsdtar", &["-cf", "-", "--format=mtree", "--options", sparse, "-C", ".", "."]),
        ("mtree", &["-c", "-k", "all,sha256", "-p", "."]),
        // The same with full paths.
        ("sh", &["-c", "\"$0\" -c -k all -p . | \"$0\" -C -k all", mtree]),
    ];
    for (program, arguments) in written {
        let output = command(program).args(arguments).current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let manifest = file(directory.path(), "manifest", &text);
        let items =
            load(&manifest, Some(&root)).unwrap_or_else(|e| panic!("{program}: {e}\n{text}"));
        let mut found = by_path(items);
        for item in found.values_mut() {
            item.xattrs.clear();
        }
        let mut expected = expected.clone();
        expected.values_mut().for_each(|item| item.xattrs.clear());
        assert_eq!(found, expected, "{program} {arguments:?}\n{text}");
    }
}

#[test]
fn contents_are_found_and_verified() {
    let directory = scratch();
    let root = directory.path();
    std::fs::create_dir(root.join("store")).unwrap();
    std::fs::write(root.join("store/data"), "hi\n").unwrap();
    std::fs::write(root.join("b"), "hi\n").unwrap();
    let sum = "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4";
    let whole = root.join("store/data");
    let list = format!(
        "#mtree\n/set type=file uid=7 gid=8 mode=0600 time=12.000000034\n\
         ./x/a contents=./store/data size=3 sha256digest={sum} xattr.user.k=aGk=\n\
         ./b sha256={sum}\n./x/abs contents={}\n./empty size=0\n./maybe optional\n\
         ./null type=char device=native,1,3\n./l type=link link=x/a\n",
        whole.display()
    );
    let items = load(&file(root, "list", &list), None).unwrap();
    assert_eq!(paths(&items), ["", "b", "empty", "l", "null", "x", "x/a", "x/abs"]);
    assert!(matches!(&items[6].kind, ItemKind::File { data, .. } if data == b"hi\n"));
    assert!(matches!(&items[7].kind, ItemKind::File { data, .. } if data == b"hi\n"));
    assert_eq!(items[6].metadata.mtime, Time { sec: 12, nsec: 34 });
    assert_eq!((items[6].metadata.uid, items[6].metadata.permissions), (7, 0o600));
    assert_eq!(items[6].xattrs[0].value, b"hi");
    assert_eq!((items[5].metadata.uid, items[5].metadata.mtime.sec), (0, 5));
    assert_eq!(items[4].kind, ItemKind::Other("CharDevice { major: 1, minor: 3 }".into()));

    let refused = |line: &str, expected: &str| {
        let manifest = file(root, "bad", &format!("#mtree\n{line}\n"));
        let said = load(&manifest, None).unwrap_err().to_string();
        assert!(said.contains("bad\", line 2: ") && said.contains(expected), "{said}");
    };
    refused("./b type=file size=4", "wrong size (expected 4, found 3)");
    refused(&format!("./store/data type=file sha256={}", sum.replace('9', "8")), "found 98ea");
    refused("./gone type=file", "\"/gone\" has no contents");
    refused("./gone size=1", "expected a type");
    refused("./store type=file", "expected a regular file, found a directory");
    refused("./n type=char", "device= of a device");
    refused("./n type=link", "link= of a symbolic link");
    refused("./b/c type=dir\n./b type=file", "expected a directory, found a regular file");
}

#[test]
fn a_link_on_the_way_does_not_lead_out_of_the_tree() {
    let directory = scratch();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("..", root.join("out")).unwrap();
    let list = "./out type=dir\n./out/secret type=file\n";
    let manifest = file(directory.path(), "list", list);
    let said = load(&manifest, Some(&root)).unwrap_err().to_string();
    assert!(said.contains("\"/out/secret\" has no contents"), "{said}");
}

#[test]
fn a_manifest_corrects_a_source() {
    let directory = scratch();
    let list = "#mtree\n/set uid=3 gid=4\n. type=dir mode=0711\n  a type=file mode=0600 time=9.1 size=1\n\
                l type=link link=a\n  same type=file nochange\n  none optional\n";
    let options = |text: &str| CorrectionOptions {
        manifests: vec![file(directory.path(), "list", text)],
        ..Default::default()
    };
    let source =
        || archive(&[("a", b'0', "x"), ("l", b'2', "a"), ("same", b'0', "y"), ("b", b'1', "a")]);
    let (items, report) = plainly(source(), &options(list)).unwrap();
    let all: Vec<_> = items
        .iter()
        .map(|item| (item.metadata.uid, item.metadata.permissions, item.metadata.mtime.sec))
        .collect();
    assert_eq!(all[..4], [(3, 0o711, 0), (3, 0o600, 9), (3, 0o640, 7), (1000, 0o640, 7)]);
    assert_eq!(report.listed, 3);

    let refused = |text: &str, expected: &str| {
        let said = said(source(), &options(text));
        assert!(said.contains("list\", line ") && said.contains(expected), "{said}");
    };
    refused("./a\n./missing mode=644\n", "line 2: \"/missing\" is not in the source");
    refused("./a type=dir\n", "expected a directory, found a regular file");
    refused("./a size=2\n", "wrong size (expected 2, found 1)");
    refused("./l link=b\n", "wrong target (expected b, found a)");
    refused("./a mode=600\n./b mode=644\n", "\"/b\" is another name of the file \"/a\"");
    refused("./a uname=daemon\n", "user \"daemon\"");
    plainly(source(), &options("./a mode=600\n./b mode=600\n")).unwrap();
}
