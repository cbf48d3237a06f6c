//! Copies of blocks in use: resumption, states and increments.

use std::cell::Cell;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use diskwright::block_copy::{CopyOptions, CopyReport, CopyState, Progress, copy, restore};
use diskwright::build::{BuildOptions, Format, Progress as BuildProgress, build};
use diskwright::{Error, Image, Outcome};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

struct Silent;

impl BuildProgress for Silent {
    fn made(&self, _: u64, _: u64) {}
}

fn on(_: &'static str, _: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Creates an image of 64 MiB with 20 MiB of files.
fn image(home: &TempDir, format: Format) -> PathBuf {
    let (tree, image) = (home.path().join("tree"), home.path().join("image.img"));
    fs::create_dir_all(tree.join("dir")).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for nth in 0..20 {
        let bytes: Vec<u8> = (0..MIB).map(|_| random.u8(..)).collect();
        fs::write(tree.join(format!("dir/{nth}")), bytes).unwrap();
    }
    let options = BuildOptions::new(&*tree, &image, format).size(64 * MIB);
    build(&options.small(format == Format::Xfs), &Silent).unwrap();
    image
}

fn options(home: &TempDir, out: &str) -> CopyOptions {
    CopyOptions::new(home.path().join("image.img"), home.path().join(out)).batch_bytes(MIB)
}

/// Copies until the given number of chunks was written.
fn interrupted(options: &CopyOptions, chunks: u64) {
    let count = Cell::new(0);
    let stop = |part: &'static str, _, _| {
        count.set(count.get() + u64::from(part == "blocks in use"));
        if count.get() > chunks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert!(matches!(copy(options, &stop), Err(Error::Stopped)));
}

fn done(options: &CopyOptions) -> CopyReport {
    copy(options, &on).unwrap()
}

/// Returns the message of a failed copy, which must have this outcome.
#[track_caller]
fn refused(options: &CopyOptions, outcome: Outcome) -> String {
    let error = copy(options, &on).unwrap_err();
    assert_eq!(error.outcome(), outcome, "{error}");
    error.to_string()
}

fn change(path: &Path, name: &str, byte: u8) {
    let image = Image::open_writable(path).unwrap();
    image.write(name, vec![byte; 100_000]).unwrap();
    image.close().unwrap();
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn an_interrupted_copy_is_resumed_wherever_it_ended() {
    for format in Format::ALL {
        let home = testkit::scratch();
        image(&home, format);
        let whole = done(&options(&home, "whole.img").state(home.path().join("whole.state")));
        let expected = fs::read(home.path().join("whole.img")).unwrap();
        for stop in [0, 1, 5, 12, 20] {
            let (out, state) = (home.path().join("a.img"), home.path().join("a.state"));
            let of = options(&home, "a.img").state(&state);
            interrupted(&of, stop);
            assert!(!out.exists() && !state.exists());
            let part = home.path().join("a.img.part");
            let marker = b"diskwright: unfinished copy ";
            assert!(fs::read(&part).unwrap().starts_with(marker));
            // Without --resume nothing is overwritten.
            assert!(refused(&of, Outcome::Usage).contains("--resume"));
            // A damaged chunk is copied again.
            let journal = fs::read_to_string(home.path().join("a.state.part")).unwrap();
            let is_chunk = |line: &&str| line.starts_with(|first: char| first.is_ascii_digit());
            if let Some(line) = journal.lines().find(is_chunk) {
                let number: u64 = line.split(' ').next().unwrap().parse().unwrap();
                flip(&part, number * MIB + 17);
            }
            let resumed = done(&of.clone().resume(true));
            assert_eq!(resumed.sha256, whole.sha256);
            assert_eq!(resumed.resumed_bytes + resumed.written_bytes, whole.written_bytes);
            assert!(stop < 5 || resumed.resumed_bytes >= MIB, "{resumed:?}");
            assert!(fs::read(&out).unwrap() == expected);
            assert_eq!(
                fs::read(&state).unwrap(),
                fs::read(home.path().join("whole.state")).unwrap()
            );
            assert!(!part.exists() && !home.path().join("a.state.part").exists());
            fs::remove_file(out).unwrap();
            fs::remove_file(state).unwrap();
        }
    }
}

#[test]
fn a_copy_of_a_changed_image_is_not_resumed() {
    for format in Format::ALL {
        let home = testkit::scratch();
        let image = image(&home, format);
        let of = options(&home, "a.img").state(home.path().join("a.state"));
        assert!(refused(&of.clone().resume(true), Outcome::Usage).contains("no interrupted copy"));
        interrupted(&of, 7);
        change(&image, "/dir/3", 7);
        assert!(refused(&of.clone().resume(true), Outcome::Image).contains("the image changed"));
        done(&of.clone().force(true));
        testkit::judge(home.path().join("a.img"));
        // The journal is verified.
        fs::remove_file(home.path().join("a.img")).unwrap();
        interrupted(&of.clone().force(true), 7);
        let journal = home.path().join("a.state.part");
        flip(&journal, 300);
        let said = refused(&of.clone().resume(true), Outcome::Image);
        assert!(said.contains("a.state.part: line "), "{said}");
        flip(&journal, 300);
        // Another file is not continued.
        let part = home.path().join("a.img.part");
        fs::write(&part, vec![9; 64 << 20]).unwrap();
        let said = refused(&of.clone().resume(true), Outcome::Usage);
        assert!(said.contains("not the interrupted copy"), "{said}");
        assert!(fs::read(&part).unwrap().iter().all(|&byte| byte == 9));
    }
}

#[test]
fn a_chain_of_increments_leads_to_the_last_state() {
    for format in Format::ALL {
        let home = testkit::scratch();
        let at = |name: &str| home.path().join(name);
        let image = image(&home, format);
        done(&options(&home, "a.img").state(at("0.state")));
        for day in 1..4_u8 {
            change(&image, &format!("/dir/{day}"), day);
            if day == 2 {
                let opened = Image::open_writable(&image).unwrap();
                (10..18).for_each(|nth| opened.remove_file(format!("/dir/{nth}")).unwrap());
                opened.close().unwrap();
            }
            let of = options(&home, &format!("{day}.inc"))
                .since(at(&format!("{}.state", day - 1)))
                .state(at(&format!("{day}.state")));
            let report = done(&of);
            assert!(report.written_bytes < 12 * MIB, "{report:?}");
            assert!(report.base_sha256.is_some());
        }
        // Out of order.
        let before = fs::read(at("a.img")).unwrap();
        let error = restore(&at("2.inc"), &at("a.img"), &on).unwrap_err();
        assert!(error.to_string().contains("nothing was changed"), "{error}");
        assert_eq!(error.outcome(), Outcome::Image);
        assert!(fs::read(at("a.img")).unwrap() == before);
        for day in 1..4 {
            let report = restore(&at(&format!("{day}.inc")), &at("a.img"), &on).unwrap();
            assert!(report.written_chunks > 0);
            // Again is harmless.
            let again = restore(&at(&format!("{day}.inc")), &at("a.img"), &on).unwrap();
            assert_eq!((again.written_chunks, again.sha256), (0, report.sha256));
        }
        let last = done(&options(&home, "last.img").state(at("last.state")));
        assert!(fs::read(at("last.img")).unwrap() == fs::read(at("a.img")).unwrap());
        assert_eq!(fs::read(at("last.state")).unwrap(), fs::read(at("3.state")).unwrap());
        let state = CopyState::parse(&fs::read(at("3.state")).unwrap()).unwrap();
        assert_eq!(diskwright::text::hex(&state.digest()), last.sha256);
        testkit::judge(at("a.img"));
    }
}

#[test]
fn damaged_increments_states_and_bases_change_nothing() {
    let home = testkit::scratch();
    let at = |name: &str| home.path().join(name);
    let image = image(&home, Format::Ext4);
    done(&options(&home, "a.img").state(at("0.state")));
    change(&image, "/dir/4", 4);
    done(&options(&home, "1.inc").since(at("0.state")));
    let before = fs::read(at("a.img")).unwrap();
    let increment = fs::read(at("1.inc")).unwrap();
    let len = increment.len() as u64;
    let try_restore = |expected: &str| {
        let error = restore(&at("1.inc"), &at("a.img"), &on).unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(error.outcome(), Outcome::Image);
    };
    // The title, contents, the index and the last line.
    for (place, expected) in [
        (3, "title"),
        (4096 + 2000, "SHA-256 of chunk 0"),
        (4096 + MIB + 5, "SHA-256 of chunk"),
        (len - 200, "digest of the index"),
        (len - 90, "last line"),
        (len - 80, "index"),
        (len - 10, "index"),
    ] {
        flip(&at("1.inc"), place);
        try_restore(expected);
        flip(&at("1.inc"), place);
    }
    for cut in [0, 100, 4096, len / 2, len - 1] {
        fs::write(at("1.inc"), &increment[..cut as usize]).unwrap();
        try_restore("increment: ");
    }
    fs::write(at("1.inc"), &increment).unwrap();
    assert!(fs::read(at("a.img")).unwrap() == before);
    // A base that differs in a chunk that does not change.
    let state = String::from_utf8(fs::read(at("0.state")).unwrap()).unwrap();
    let last = state.lines().rev().nth(2).unwrap().split(' ').next().unwrap();
    let last: u64 = last.parse().unwrap();
    flip(&at("a.img"), last * MIB);
    try_restore(&format!("bytes {} to", last * MIB));
    flip(&at("a.img"), last * MIB);
    fs::write(at("short.img"), &before[..1 << 20]).unwrap();
    let error = restore(&at("1.inc"), &at("short.img"), &on).unwrap_err();
    assert_eq!(error.outcome(), Outcome::Io);
    assert!(error.to_string().contains("exactly 67108864 bytes, found 1048576"), "{error}");
    // States.
    flip(&at("0.state"), 200);
    let said = refused(&options(&home, "2.inc").since(at("0.state")), Outcome::Image);
    assert!(said.contains("0.state: line ") && said.contains("make a full copy"), "{said}");
    assert!(!at("2.inc").exists());
    let other = testkit::scratch();
    self::image(&other, Format::Xfs);
    done(&options(&other, "b.img").state(at("other.state")));
    let said = refused(&options(&home, "2.inc").since(at("other.state")), Outcome::Image);
    assert!(said.contains("expected format ext4, found xfs"), "{said}");
    // After all this it still works.
    restore(&at("1.inc"), &at("a.img"), &on).unwrap();
    testkit::judge(at("a.img"));
}

#[test]
fn an_interrupted_restore_is_no_image_and_is_completed() {
    for format in Format::ALL {
        let home = testkit::scratch();
        let at = |name: &str| home.path().join(name);
        let image = image(&home, format);
        done(&options(&home, "a.img").state(at("0.state")));
        (0..9).for_each(|nth| change(&image, &format!("/dir/{nth}"), nth));
        done(&options(&home, "1.inc").since(at("0.state")));
        done(&options(&home, "expected.img"));
        for stop in [0, 1, 2] {
            fs::copy(at("a.img"), at("b.img")).unwrap();
            let count = Cell::new(0);
            let stopping: Progress<'_> = &|part, _, _| {
                count.set(count.get() + u64::from(part == "writing changes"));
                if count.get() > stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            assert!(matches!(restore(&at("1.inc"), &at("b.img"), stopping), Err(Error::Stopped)));
            assert!(Image::open(at("b.img")).is_err());
            restore(&at("1.inc"), &at("b.img"), &on).unwrap();
            assert!(fs::read(at("b.img")).unwrap() == fs::read(at("expected.img")).unwrap());
        }
    }
}

/// The log of an image after a crash is copied unchanged.
#[test]
fn a_dirty_image_and_its_copy_are_recovered_alike() {
    for format in Format::ALL {
        let home = testkit::scratch();
        let at = |name: &str| home.path().join(name);
        let image = image(&home, format);
        let opened = Image::open_writable(&image).unwrap();
        (0..300).for_each(|nth| opened.write(format!("/new{nth}"), [1]).unwrap());
        (0..10).for_each(|nth| opened.remove_file(format!("/dir/{nth}")).unwrap());
        opened.sync().unwrap();
        opened.abandon();
        assert!(Image::open(&image).unwrap().info().unwrap().needs_recovery);
        done(&options(&home, "a.img"));
        assert!(Image::open(at("a.img")).unwrap().info().unwrap().needs_recovery);
        let files = |path: &Path, norecovery| {
            let opened = Image::options().norecovery(norecovery).open(path).unwrap();
            let fs = opened.file_system().unwrap();
            testkit::fs_tree::FsTree::of(&*fs).map(|tree| format!("{tree:?}"))
        };
        assert_eq!(files(&at("a.img"), false), files(&image, false));
        assert_eq!(files(&at("a.img"), true), files(&image, true));
        Image::open_writable(at("a.img")).unwrap().close().unwrap();
        testkit::judge(at("a.img"));
    }
}
