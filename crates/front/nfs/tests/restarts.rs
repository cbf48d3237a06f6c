//! Handles, verifiers and repeated requests across connections and restarts.

use testkit::require;

use crate::common::{self, *};

#[test]
fn handles_survive_a_restart_of_the_same_export() {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        let (mut root, mut file, mut gone, mut verifier) = (vec![], vec![], vec![], 0);
        common::serve(&image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            root = client.mount(EXPORT).unwrap();
            file = client.file(&root, "file");
            gone = client.file(&root, "gone");
            verifier = client.write(&file, 0, b"data", 0).unwrap();
            client.remove(&root, "gone").unwrap();
        });
        common::serve(&image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            assert_eq!(client.read(&file, 0, 9), Ok((b"data".to_vec(), true)));
            assert_eq!(client.lookup(&root, "file").unwrap().0, file);
            assert_eq!(client.getattr(&gone), Err(STALE));
            // A client writes its data again if the verifier changes.
            assert_ne!(client.commit(&file).unwrap(), verifier);
        });
        let other_path = nfs::NfsOptions { export: "/other".parse().unwrap(), ..options() };
        common::serve(&image, &other_path, |address| {
            let mut client = NfsClient::connect(address);
            assert_eq!(client.getattr(&file), Err(BADHANDLE));
        });
        let other_image = nfs::NfsOptions { uuid: [9; 16], ..options() };
        common::serve(&image, &other_image, |address| {
            let mut client = NfsClient::connect(address);
            assert_eq!(client.getattr(&file), Err(STALE));
        });
        image.judge();
    }
}

#[test]
fn repeated_changes_are_made_once() {
    on_both(|image| {
        common::serve(image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            client.file(&root, "file");
            let args = Message::default().opaque(&root).opaque(b"file");
            let remove = client.message(NFS, 3, 12, &args.0);
            let send = |client: &mut NfsClient| {
                client.send(&record(&remove));
                client.receive().unwrap()
            };
            let first = send(&mut client);
            // The status follows the transaction ID and five words.
            assert_eq!(first[24..28], OK.to_be_bytes());
            assert_eq!(send(&mut client), first, "on the same connection");
            let mut other = NfsClient::connect(address);
            assert_eq!(send(&mut other), first, "on another connection");
            // Another transaction with the same arguments is another request.
            assert_eq!(client.remove(&root, "file"), Err(NOENT));
            // A new file is not removed by a repeated request.
            client.file(&root, "file");
            assert_eq!(send(&mut client), first);
            assert!(client.lookup(&root, "file").is_ok());
        });
    });
}

#[test]
fn a_server_that_ends_syncs_everything() {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        let options = nfs::NfsOptions { sync: false, ..options() };
        let mut file = vec![];
        let outcome = common::serve(&image, &options, |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            file = client.file(&root, "file");
            client.write(&file, 0, b"unstable", 0).unwrap();
        });
        assert!(!outcome.is_damaged);
        let crashed = image.crashed();
        common::serve(&crashed, &options, |address| {
            let mut client = NfsClient::connect(address);
            assert_eq!(client.read(&file, 0, 99), Ok((b"unstable".to_vec(), true)));
        });
        crashed.judge();
        image.judge();
    }
}

#[test]
fn nothing_is_written_after_damage_was_found() {
    require!(Tool("debugfs"));
    let image = MemoryImage::ext4();
    common::serve(&image, &options(), |address| {
        let mut client = NfsClient::connect(address);
        let root = client.mount(EXPORT).unwrap();
        client.file(&root, "damaged");
        client.file(&root, "file");
    });
    // No file type has this mode.
    let image = image.changed_by_debugfs("set_inode_field damaged mode 0170644");
    let outcome = common::serve(&image, &options(), |address| {
        let mut client = NfsClient::connect(address);
        let root = client.mount(EXPORT).unwrap();
        let file = client.lookup(&root, "file").unwrap().0;
        client.write(&file, 0, b"before", 0).unwrap();
        assert_eq!(client.lookup(&root, "damaged").err(), Some(IO));
        assert_eq!(client.mkdir(&root, "dir", 0o755).err(), Some(ROFS));
        assert_eq!(client.write(&file, 0, b"after", 0), Err(ROFS));
        assert_eq!(client.commit(&file), Err(IO), "data that cannot become durable");
        assert_eq!(client.access(&file, 0x3f), Ok(0x01));
        assert_eq!(client.read(&file, 0, 99), Ok((b"before".to_vec(), true)));
    });
    assert!(outcome.is_damaged);
}
