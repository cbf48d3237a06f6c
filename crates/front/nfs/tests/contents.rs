//! READ, WRITE and COMMIT.

use crate::common::{self, *};

#[test]
fn contents_are_read_as_written() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        let data: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
        client.write(&file, 5000, &data, 0).unwrap();
        let after = client.wcc[0].after.unwrap();
        assert_eq!((client.wcc[0].before.unwrap().0, after.size), (0, 1_005_003));
        client.commit(&file).unwrap();
        assert_eq!(client.read(&file, 0, 5000), Ok((vec![0; 5000], false)));
        assert_eq!(client.read(&file, 5000, 1 << 20), Ok((data.clone(), true)));
        assert_eq!(client.read(&file, 5001, 3), Ok((data[1..4].to_vec(), false)));
        assert_eq!(client.read(&file, 1_005_002, u32::MAX), Ok((data[1_000_002..].to_vec(), true)));
        for offset in [1_005_003, 1 << 40, u64::MAX] {
            assert_eq!(client.read(&file, offset, 7), Ok((vec![], true)), "{offset}");
        }
        assert_eq!(client.read(&file, 0, 0), Ok((vec![], false)));
        assert!(client.getattr(&file).unwrap().used >= 1_000_003);
        assert_eq!(client.read(root, 0, 1), Err(ISDIR));
        assert_eq!(client.write(root, 0, b"x", 0), Err(ISDIR));
        assert_eq!(client.commit(root), Err(ISDIR));
        for offset in [u64::MAX, i64::MAX as u64] {
            assert_eq!(client.write(&file, offset, b"x", 0), Err(FBIG), "{offset}");
        }
        client.write(&file, 0, b"", 0).unwrap();
    });
}

#[test]
fn more_data_than_the_count_is_cut() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        let args = Message::default().opaque(&file).u64(0).u32(2).u32(0).opaque(b"abc");
        assert_eq!(client.call(NFS, 7, &args).u32(), OK);
        assert_eq!(client.read(&file, 0, 9), Ok((b"ab".to_vec(), true)));
        let args = Message::default().opaque(&file).u64(0).u32(4).u32(0).opaque(b"abc");
        assert_eq!(client.call(NFS, 7, &args).u32(), INVAL);
    });
}

#[test]
fn committed_data_survives_a_crash() {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        common::serve(&image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let committed = client.file(&root, "committed");
            let verifier = client.write(&committed, 0, b"committed", 0).unwrap();
            assert_eq!(client.commit(&committed), Ok(verifier));
            let stable = client.file(&root, "stable");
            client.write(&stable, 0, b"stable", 2).unwrap();
            let data = client.file(&root, "data");
            client.write(&data, 0, b"data", 1).unwrap();
            let crashed = image.crashed();
            common::serve(&crashed, &options(), |address| {
                let mut client = NfsClient::connect(address);
                for name in ["committed", "stable", "data"] {
                    let (file, _) = client.lookup(&root, name).unwrap();
                    let expected = (name.as_bytes().to_vec(), true);
                    assert_eq!(client.read(&file, 0, 100), Ok(expected), "{}", image.name);
                }
            });
            crashed.judge();
        });
        image.judge();
    }
}

#[test]
fn names_are_durable_when_they_are_answered() {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        common::serve(&image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let dir = client.mkdir(&root, "dir", 0o755).unwrap().0;
            client.file(&dir, "old");
            client.rename((&dir, "old"), (&dir, "new")).unwrap();
            let crashed = image.crashed();
            common::serve(&crashed, &options(), |address| {
                let mut client = NfsClient::connect(address);
                assert!(client.lookup(&dir, "new").is_ok());
                assert_eq!(client.lookup(&dir, "old").err(), Some(NOENT));
            });
            crashed.judge();
        });
        image.judge();
    }
}

#[test]
fn several_connections_write_at_the_same_time() {
    on_both(|image| {
        common::serve(image, &options(), |address| {
            std::thread::scope(|scope| {
                for number in 0..4_u8 {
                    scope.spawn(move || {
                        let mut client = NfsClient::connect(address);
                        let root = client.mount(EXPORT).unwrap();
                        let dir = client.mkdir(&root, &format!("d{number}"), 0o755).unwrap().0;
                        for round in 0..20 {
                            let file = client.file(&dir, &format!("f{round}"));
                            client.write(&file, 0, &[number; 9000], 0).unwrap();
                            let expected = (vec![number; 9000], true);
                            assert_eq!(client.read(&file, 0, 10_000), Ok(expected));
                        }
                    });
                }
            });
        });
    });
}

/// Requests that are sent without waiting are answered, in any order.
#[test]
fn one_connection_has_several_requests_in_progress() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        let mut expected = Vec::new();
        for number in 0..100_u64 {
            let args = Message::default().opaque(&file).u64(number * 4).u32(4).u32(0);
            let message = client.message(NFS, 3, 7, &args.opaque(b"data").0);
            expected.push(message[..4].to_vec());
            client.send(&record(&message));
        }
        let replies = (0..100).map(|_| client.receive().unwrap()[..4].to_vec());
        let mut replies: Vec<_> = replies.collect();
        replies.sort();
        assert_eq!(replies, expected);
        assert_eq!(client.read(&file, 0, 1000), Ok((b"data".repeat(100), true)));
    });
}
