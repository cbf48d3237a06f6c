//! COPY, MOVE, DELETE and MKCOL.

use vfs::{NewInode, Paths};
use webdav::{Symlinks, WebdavOptions};

use crate::common::*;

#[test]
fn trees_are_copied_moved_and_removed() {
    served(&options(), |client, image| {
        for dir in ["/a/", "/a/b/", "/a/b/c/"] {
            assert_eq!(client.status("MKCOL", dir), 201);
            client.put(&format!("{dir}file"), &noise(70_000));
        }
        assert_eq!(client.transfer("COPY", "/a/", "/copy/", true), 201);
        assert!(contents(image, "/copy/b/c/file").unwrap() == noise(70_000));
        assert_eq!(client.transfer("COPY", "/a/", "/copy/", false), 412);
        assert_eq!(client.transfer("COPY", "/a/", "/copy/", true), 204);
        assert_eq!(client.transfer("COPY", "/a/", "/a/b/inside/", true), 201);
        assert!(contents(image, "/a/b/inside/b/file").is_ok());
        for to in ["/a/b/x/", "/a/b/"] {
            assert_eq!(client.transfer("MOVE", "/a/", to, true), 403, "into itself");
        }
        for method in ["COPY", "MOVE"] {
            assert_eq!(client.transfer(method, "/a/b/c/", "/a/", true), 403, "over its parent");
        }
        assert!(contents(image, "/a/b/c/file").is_ok());
        assert_eq!(client.transfer("MOVE", "/copy/", "/moved/", true), 201);
        assert_eq!(client.get("/copy/").status, 404);
        assert_eq!(client.status("DELETE", "/moved/"), 204);
        assert_eq!(client.status("DELETE", "/a/"), 204);
        assert_eq!(client.status("DELETE", "/"), 403);
        assert_eq!(Paths::new(image.fs()).read_dir(b"/").unwrap().len(), lost_and_found(image));
        assert_eq!(client.status("MKCOL", "/x/y/"), 409);
        assert_eq!(client.status("MKCOL", "/"), 405);
    });
}

fn lost_and_found(image: &MemoryImage) -> usize {
    usize::from(image.fs().lookup(image.fs().root(), b"lost+found").is_ok())
}

#[test]
fn a_destination_is_replaced_in_one_step() {
    served(&options(), |client, image| {
        for method in ["MOVE", "COPY"] {
            client.put("/from", b"new");
            client.put("/to", b"old");
            let old = Paths::new(image.fs()).metadata(b"/to").unwrap();
            assert_eq!(client.transfer(method, "/from", "/to", true), 204);
            assert_eq!(contents(image, "/to").unwrap(), b"new");
            assert_ne!(Paths::new(image.fs()).metadata(b"/to").unwrap().ino, old.ino);
        }
        // A directory replaces a file, and a file a directory.
        for method in ["COPY", "MOVE"] {
            assert_eq!(client.status("MKCOL", "/dir/"), 201);
            client.put("/dir/file", b"1");
            assert_eq!(client.transfer(method, "/dir/", "/to", true), 204, "{method}");
            assert_eq!(contents(image, "/to/file").unwrap(), b"1");
            client.put("/from", b"2");
            assert_eq!(client.transfer(method, "/from", "/to", true), 204, "{method}");
            assert_eq!(contents(image, "/to").unwrap(), b"2");
            client.status("DELETE", "/dir/");
        }
    });
}

#[test]
fn links_are_followed_within_the_image_or_hidden() {
    let prepare = |image: &MemoryImage| {
        let fs = image.fs();
        let new = NewInode { permissions: 0o755, ..Default::default() };
        let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
        Paths::new(fs).write(b"/dir/file", b"1", &new).unwrap();
        for (name, target) in [
            ("to-dir", &b"dir"[..]),
            ("to-file", b"/dir/file"),
            ("up", b"../../../../dir/file"),
            ("nowhere", b"/etc/passwd"),
            ("loop", b"loop"),
        ] {
            fs.symlink(fs.root(), name.as_bytes(), target, &new).unwrap();
        }
        for name in [b"self", b"more"] {
            fs.symlink(dir, name, b".", &new).unwrap();
        }
    };
    on_both(|image| {
        prepare(image);
        serve(image, &options(), |client| {
            for path in ["/to-dir/file", "/to-file", "/up", "/dir/self/self/more/file"] {
                assert_eq!(client.get(path).body, b"1", "{path}");
            }
            assert_eq!(client.get("/nowhere").status, 404, "not the file of the host");
            assert_eq!(client.get("/loop").status, 508);
            let listed = client.propfind("/", "1").text();
            assert!(listed.contains("/to-dir/") && listed.contains("/up<"), "{listed}");
            assert!(!listed.contains("nowhere") && !listed.contains("/loop"), "{listed}");
            client.put("/to-file", b"22");
            assert_eq!(contents(image, "/dir/file").unwrap(), b"22", "the link stays");
            assert_eq!(
                image
                    .fs()
                    .readlink(image.fs().lookup(image.fs().root(), b"to-file").unwrap())
                    .unwrap(),
                b"/dir/file"
            );
            // A copy contains links, so links that lead upwards do not multiply it.
            assert_eq!(client.transfer("COPY", "/dir/", "/copy/", true), 201);
            let copied = Paths::new(image.fs()).read_link(b"/copy/self").unwrap();
            assert_eq!(copied, b".");
            assert_eq!(client.status("DELETE", "/to-dir"), 204, "the link");
            assert_eq!(contents(image, "/dir/file").unwrap(), b"22");
        });
        serve(image, &WebdavOptions { symlinks: Symlinks::Hide, ..options() }, |client| {
            for path in ["/to-file", "/up", "/dir/self/file"] {
                assert_eq!(client.get(path).status, 404, "{path}");
            }
            let listed = client.propfind("/dir/", "1").text();
            assert!(listed.contains("/file") && !listed.contains("self"), "{listed}");
            assert_eq!(client.request("PUT", "/up", &[], b"x").status, 403, "the name is in use");
            assert_eq!(client.status("DELETE", "/dir/"), 204, "with the hidden links");
            assert_eq!(client.get("/dir/").status, 404);
        });
    });
}

#[test]
fn files_of_macos_are_rejected_on_request() {
    on_both(|image| {
        serve(image, &options(), |client| {
            client.status("MKCOL", "/dir/");
            for name in ["/dir/.DS_Store", "/dir/._file", "/dir/file"] {
                client.put(name, b"1");
            }
        });
        let options = WebdavOptions { reject_macos_files: true, ..options() };
        serve(image, &options, |client| {
            let listed = client.propfind("/dir/", "1").text();
            assert!(listed.contains("/file<") && !listed.contains("DS_Store"), "{listed}");
            assert!(!listed.contains("._"), "{listed}");
            assert_eq!(client.get("/dir/._file").status, 404);
            assert_eq!(client.request("PUT", "/dir/._new", &[], b"x").status, 403);
            assert_eq!(client.status("MKCOL", "/._dir/"), 403);
            assert_eq!(client.transfer("COPY", "/dir/", "/copy/", true), 201);
            assert!(
                contents(image, "/copy/file").is_ok() && contents(image, "/copy/._file").is_err()
            );
            assert_eq!(client.status("DELETE", "/dir/"), 204, "with the hidden files");
        });
    });
}
