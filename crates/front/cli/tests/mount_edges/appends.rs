//! Several writers of one file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;
use std::thread;

use crate::place::{Place, prove_on_both};

const WRITERS: usize = 4;
const LINES: usize = 1500;

/// Lines appended by several processes are all present and complete, each process's in order.
fn appends_of_processes_do_not_mix(place: &mut Place) {
    let log = place.join("log");
    File::create(&log).unwrap();
    let script = r#"for ((i = 0; i < $2; i++)); do
        printf 'writer %d line %d %0*d.\n' "$1" "$i" $((i * 37 % 200)) 0 || exit 1
    done >> "$3""#;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let numbers = [writer, LINES].map(|number| number.to_string());
            let mut command = Command::new("bash");
            command.args(["-c", script, "bash"]).args(numbers).arg(&log).spawn().unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let check = |text: String| {
        let mut next = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let ["writer", writer, "line", number, filling] = words[..] else {
                panic!("a mixed line: {line}")
            };
            let number: usize = number.parse().unwrap();
            let expected = next.entry(writer.to_owned()).or_insert(0);
            assert_eq!(number, *expected, "writer {writer}");
            assert_eq!(filling.len(), (number * 37 % 200).max(1) + 1, "a torn line: {line}");
            *expected += 1;
        }
        assert!(next.len() == WRITERS && next.values().all(|&lines| lines == LINES), "{next:?}");
    };
    check(fs::read_to_string(&log).unwrap());
    place.remount();
    check(fs::read_to_string(place.join("log")).unwrap());
}

/// Threads write separate blocks of one file, and another thread changes its length beyond them.
fn writers_of_parts_do_not_disturb_each_other(place: &mut Place) {
    use std::os::unix::fs::FileExt;
    const PART: usize = 3000;
    const PARTS: u64 = 400;
    let end = WRITERS as u64 * PARTS * PART as u64;
    let path = place.join("parts");
    let file = File::options().create(true).truncate(true).write(true).open(path).unwrap();
    file.set_len(end).unwrap();
    let byte = |part: u64| (part % 251) as u8 + 1;
    thread::scope(|scope| {
        for writer in 0..WRITERS as u64 {
            let file = &file;
            scope.spawn(move || {
                // Every fourth part, so that neighbours in a page have different writers.
                for part in (0..PARTS).map(|part| part * WRITERS as u64 + writer) {
                    file.write_all_at(&[byte(part); PART], part * PART as u64).unwrap();
                    if part % 64 == 0 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..100 {
                file.set_len(end + (round % 7) * 100_000).unwrap();
            }
            file.set_len(end).unwrap();
        });
    });
    drop(file);
    place.remount();
    let found = fs::read(place.join("parts")).unwrap();
    assert_eq!(found.len() as u64, end);
    for (part, bytes) in found.chunks(PART).enumerate() {
        assert!(bytes.iter().all(|&found| found == byte(part as u64)), "part {part}");
    }
}

prove_on_both!(appends_of_processes_do_not_mix, writers_of_parts_do_not_disturb_each_other);
