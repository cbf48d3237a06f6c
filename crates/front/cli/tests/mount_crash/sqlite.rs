//! A database on the mount, which reports for each transaction whether it is committed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use testkit::{Need, satisfied, wait_until};

use crate::mount_crash::{Crash, mount_after_crash, prove_through_crashes, rounds};
use crate::place::{Format, Place, prove, run, tool};

/// Contents of the row with a given ID. It is changed once, by the transaction that adds the third
/// row after it.
const PAYLOAD: &str = "printf('%0*d', 100 + (id * 7919) % 3000, id * id)";

struct Database {
    program: Child,
    input: ChildStdin,
}

impl Database {
    fn open(path: &Path, journal: &str) -> Self {
        let mut command = tool("sqlite3");
        // After an error it ends, and does not execute the rest of the script.
        command.args(["-batch", "-bail"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.stderr(Stdio::null()).spawn().unwrap();
        let mut input = program.stdin.take().unwrap();
        // With FULL, a rollback journal that was deleted last may reappear.
        let durability = if journal == "WAL" { "FULL" } else { "EXTRA" };
        let settings = format!(
            ".timeout 10000\nPRAGMA journal_mode = {journal};\nPRAGMA synchronous = {durability};\n\
             PRAGMA wal_autocheckpoint = 30;\n\
             CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, payload TEXT, seen INTEGER);\n\
             CREATE INDEX IF NOT EXISTS payloads ON rows (payload);\n"
        );
        input.write_all(settings.as_bytes()).unwrap();
        Self { program, input }
    }

    /// Adds rows from a number on until the mount is gone. Records each acknowledged row.
    ///
    /// Rows acknowledged after the crash begins do not count: if SQLite cannot open a directory, it
    /// assumes that no sync is needed.
    fn append(mut self, mut next: u64, acknowledged: &AtomicU64, crashes: &AtomicBool) {
        let mut output = BufReader::new(self.program.stdout.take().unwrap()).lines();
        'rows: loop {
            let row = format!(
                "BEGIN;\nINSERT INTO rows (id) VALUES ({next});\n\
                 UPDATE rows SET payload = {PAYLOAD} WHERE id = {next};\n\
                 UPDATE rows SET seen = 1 WHERE id = {next} - 3;\nCOMMIT;\nSELECT 'done', {next};\n"
            );
            if self.input.write_all(row.as_bytes()).is_err() {
                break;
            }
            // The journal mode is printed, too.
            loop {
                match output.next() {
                    Some(Ok(line)) if line == format!("done|{next}") => break,
                    Some(Ok(_)) => {}
                    _ => break 'rows,
                }
            }
            if crashes.load(Ordering::SeqCst) {
                break;
            }
            acknowledged.store(next, Ordering::SeqCst);
            next += 1;
        }
        let _ = self.program.kill();
        self.program.wait().unwrap();
    }
}

fn query(database: &Path, text: &str) -> String {
    run(tool("sqlite3").args(["-batch", "-bail"]).arg(database).arg(text)).trim().to_owned()
}

fn keeps_what_it_acknowledged(name: &str, format: Format, crash: Crash, journal: &str) {
    if !satisfied(name, &[Need::Tool("sqlite3")]) {
        return;
    }
    prove(name, crash.wanted(format), |place| {
        let mut random = fastrand::Rng::with_seed(11);
        let mut last = 0;
        for round in 0..rounds() {
            let (acknowledged, crashes) = (AtomicU64::new(last), AtomicBool::new(false));
            // The first crash may come before any row, the others at a random moment after some of
            // them.
            let wanted = last + if round == 0 { 0 } else { random.u64(5..80) };
            let delay = Duration::from_millis(random.u64(0..30));
            thread::scope(|scope| {
                let database = Database::open(&place.join("database"), journal);
                let writer = scope.spawn(|| database.append(last + 1, &acknowledged, &crashes));
                wait_until("rows to be acknowledged", || {
                    acknowledged.load(Ordering::SeqCst) >= wanted || writer.is_finished()
                });
                thread::sleep(delay);
                crashes.store(true, Ordering::SeqCst);
                place.crash();
                writer.join().unwrap();
            });
            mount_after_crash(place, round % 3 == 2);
            last = check(place, acknowledged.into_inner(), last);
        }
        println!("{last} transactions in {} rounds", rounds());
        assert!(last > 20, "too few transactions to prove anything");
    });
}

/// Asserts that all acknowledged rows are present, complete and in order. Returns the last row.
fn check(place: &Place, acknowledged: u64, before: u64) -> u64 {
    let database = place.join("database");
    if acknowledged == 0 && !database.exists() {
        return before;
    }
    assert_eq!(query(&database, "PRAGMA integrity_check;"), "ok");
    let tables = query(&database, "SELECT count(*) FROM sqlite_master WHERE name = 'rows';");
    if acknowledged == 0 && tables == "0" {
        return before;
    }
    let found = query(&database, "SELECT count(*), coalesce(max(id), 0) FROM rows;");
    let (count, last) = found.split_once('|').unwrap();
    let [count, last] = [count, last].map(|text| text.parse::<u64>().unwrap());
    assert_eq!(count, last, "a row is missing");
    // The pending transaction may have been committed.
    assert!(
        last == acknowledged || last == acknowledged + 1,
        "{last}, acknowledged {acknowledged}"
    );
    let wrong = format!("SELECT count(*) FROM rows WHERE payload <> {PAYLOAD} OR payload IS NULL;");
    assert_eq!(query(&database, &wrong), "0");
    let unseen = format!("SELECT count(*) FROM rows WHERE seen IS NULL AND id <= {last} - 3;");
    assert_eq!(query(&database, &unseen), "0");
    last
}

fn a_write_ahead_log(name: &str, format: Format, crash: Crash) {
    keeps_what_it_acknowledged(name, format, crash, "WAL");
}

fn a_rollback_journal(name: &str, format: Format, crash: Crash) {
    keeps_what_it_acknowledged(name, format, crash, "DELETE");
}

prove_through_crashes!(a_write_ahead_log, a_rollback_journal);
