//! Contention between operations on many processors, extrapolated from measurements on two processors.
//!
//! Threads with separate directories take turns, so that none waits for another ([`turns`]), and record each lock and
//! counter that they use. From that, the shared objects are derived ([`shared`]), and from those the throughput on a
//! machine with a processor for each thread ([`model`]). A trial with all threads at once shows whether queues form
//! ([`trial`]).

mod cases;
mod model;
mod shared;
mod trial;
mod turns;

use crate::measurements::options::{BuildFormat, ScalabilityOptions};
use crate::measurements::table::Table;
use shared::{ObjectUse, OperationUsage};
use turns::{CheckpointTime, Measured, TurnSettings};

/// Number of operations of a turn for time measurements, enough to fill the processor's caches.
const TURN: u32 = 64;

/// A table with its title.
pub(crate) type Titled = (&'static str, Table);

/// Measures both formats: the limits of each operation, hold times, and the trial.
pub(crate) fn run(options: &ScalabilityOptions) -> Result<Vec<Titled>, String> {
    if !cfg!(feature = "count-locks") {
        return Err(
            "locks are not counted in this program: build it with --features count-locks".into()
        );
    }
    let unseen_ns = turns::unseen_ns();
    cli::terminal::message(&format_args!("a note takes {unseen_ns:.0} ns that it does not see"));
    let mut bounds = bounds_table(options);
    let mut held = Table::new(&[
        "format",
        "operation",
        "what it locks and writes: times × ns held (lines moved)",
    ]);
    let mut checkpoints = Table::new(&[
        "format",
        "operation",
        "us",
        "of checkpoints, us",
        "of one thread alone, us",
        "its share, %",
        "with 8 processors, us",
        "most times one thread's rate",
    ]);
    let mut trials = Table::new(&[
        "format",
        "threads",
        "operations/s",
        "slowest to fastest thread",
        "longest, ms",
        "waits",
        "time waited",
        "most for",
    ]);
    for format in [BuildFormat::Xfs, BuildFormat::Ext4] {
        let mut runs = Vec::new();
        for &workers in &options.workers {
            cli::terminal::message(&format_args!("{}, {workers} threads in turn", format.name()));
            runs.push(measure(format, workers, (options, unseen_ns))?);
        }
        add_rows((&mut bounds, &mut held), format, &runs);
        add_checkpoints(&mut checkpoints, format, &runs);
        cli::terminal::message(&format_args!("{}, all threads at once", format.name()));
        trial::run(format, options, &mut trials)?;
    }
    Ok(vec![
        ("What bounds each operation", bounds),
        ("What each operation holds", held),
        ("Time of checkpoints", checkpoints),
        ("All threads at once", trials),
    ])
}

fn bounds_table(options: &ScalabilityOptions) -> Table {
    let mut columns = vec![
        "format",
        "operation",
        "us",
        "locks",
        "lines written",
        "lines moved",
        "held longest, ns",
        "what",
        "busiest, ns",
        "what",
    ];
    // Column names must live as long as the program. There are few, so they are leaked.
    let column = |workers: &u32| -> &'static str { format!("× {workers}").leak() };
    columns.extend(options.workers.iter().map(column));
    Table::new(&columns)
}

/// An operation, and the efficiency of a number of threads relative to one.
struct EfficiencyRow {
    name: &'static str,
    operation_ns: f64,
    /// Its share of the following checkpoint.
    checkpoint: CheckpointTime,
    usage: OperationUsage,
    efficiency: f64,
}

/// Measures each operation with a number of threads.
fn measure(
    format: BuildFormat,
    workers: u32,
    (options, unseen_ns): (&ScalabilityOptions, f64),
) -> Result<Vec<EfficiencyRow>, String> {
    let plan = TurnSettings { format, workers, files: options.operations, turn: 1, unseen_ns };
    let in_turn = turns::run(&plan)?;
    let timed = turns::run(&TurnSettings { turn: TURN, ..plan })?;
    let row = |(noted, timed): (Measured, Measured)| {
        let each = |measured: &Measured| measured.ns / measured.operations.max(1) as f64;
        let operation_ns = each(&timed);
        // Alternating threads find their caches filled by others, unlike threads with separate processors.
        let scale = operation_ns / each(&noted).max(1.0);
        let times = (noted.operations, operation_ns);
        let usage = OperationUsage::of(&noted.records, times, (scale, unseen_ns));
        let rate = model::throughput(&usage.demands, workers);
        let efficiency = (rate * operation_ns / f64::from(workers)).min(1.0);
        let checkpoint = timed.checkpoint.for_each_of(timed.operations);
        EfficiencyRow { name: noted.case.name, operation_ns, checkpoint, usage, efficiency }
    };
    Ok(in_turn.into_iter().zip(timed).map(row).collect())
}

/// Adds one row for each operation. Details are those with the maximum number of threads.
fn add_rows(
    (bounds, held): (&mut Table, &mut Table),
    format: BuildFormat,
    runs: &[Vec<EfficiencyRow>],
) {
    for (at, row) in runs.last().into_iter().flatten().enumerate() {
        let usage = &row.usage;
        let longest = usage.longest();
        let mut cells = vec![
            format.name().into(),
            row.name.into(),
            format!("{:.2}", row.operation_ns / 1e3),
            format!("{:.1}", usage.locks()),
            format!("{:.1}", usage.lines),
            format!("{:.1}", usage.moves()),
            format!("{:.0}", longest.map_or(0.0, |kind| kind.held_ns)),
            longest.map_or("", |kind| kind.name).into(),
            format!("{:.1}", usage.busiest.1),
            usage.busiest.0.into(),
        ];
        let said = |run: &Vec<EfficiencyRow>| match usage.writes_checkpoints() {
            true => "–".into(),
            false => format!("{:.2}", run[at].efficiency),
        };
        cells.extend(runs.iter().map(said));
        bounds.row(cells);
        let kinds: Vec<_> = usage.kinds.iter().filter_map(say).collect();
        held.row(vec![format.name().into(), row.name.into(), kinds.join(", ")]);
    }
}

/// Adds the share of a checkpoint in each modifying operation. Its threads write it while the others continue, so its
/// shortest duration limits the total throughput.
fn add_checkpoints(table: &mut Table, format: BuildFormat, runs: &[Vec<EfficiencyRow>]) {
    for row in runs.last().into_iter().flatten() {
        let CheckpointTime { all_ns, alone_ns } = row.checkpoint;
        let shortest_ns = row.checkpoint.with_processors();
        let all = row.operation_ns + all_ns;
        // The rest is only the cost of detecting that nothing must be written.
        if all_ns * 100.0 > row.operation_ns {
            table.row(vec![
                format.name().into(),
                row.name.into(),
                format!("{:.2}", all / 1e3),
                format!("{:.2}", all_ns / 1e3),
                format!("{:.2}", alone_ns / 1e3),
                format!("{:.1}", 100.0 * alone_ns / all),
                format!("{:.2}", shortest_ns / 1e3),
                format!("{:.1}", all / shortest_ns),
            ]);
        }
    }
}

/// Formats a kind for the table. Returns `None` if at most one in a hundred operations uses it.
fn say(kind: &ObjectUse) -> Option<String> {
    let uses = kind.exclusive + kind.shared;
    let moved = if kind.moves < 0.05 { String::new() } else { format!(" ({:.1})", kind.moves) };
    let shared =
        if kind.exclusive == 0.0 { " shared".into() } else { format!(" × {:.0}", kind.held_ns) };
    (uses > 0.01).then(|| format!("{} {uses:.1}{shared}{moved}", kind.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_every_thread_is_done_and_none_at_the_same_time() {
        let plan = TurnSettings {
            format: BuildFormat::Ext4,
            workers: 3,
            files: 32,
            turn: 5,
            unseen_ns: 0.0,
        };
        for format in [BuildFormat::Ext4, BuildFormat::Xfs] {
            let measured = turns::run(&TurnSettings { format, ..plan }).unwrap();
            assert_eq!(measured.len(), cases::CASES.iter().filter(|case| !case.is_between).count());
            for case in &measured {
                assert_eq!(
                    case.operations,
                    u64::from(3 * 32 / case.case.one_in),
                    "{}",
                    case.case.name
                );
                assert_eq!(case.records.len(), 3);
            }
        }
    }

    #[test]
    fn the_trial_has_a_row_for_each_number_of_threads() {
        let options = ScalabilityOptions { workers: vec![16], operations: 8, seconds: 0.05 };
        let mut table = Table::new(&["", "", "", "", "", "", "", ""]);
        trial::run(BuildFormat::Xfs, &options, &mut table).unwrap();
        let value: serde_json::Value = serde_json::from_str(&table.json()).unwrap();
        let threads: Vec<_> = value["rows"].as_array().unwrap().iter().map(|row| &row[1]).collect();
        assert_eq!(threads, ["1", "2", "16"]);
        for row in value["rows"].as_array().unwrap() {
            assert!(row[2].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{row}");
        }
    }

    #[cfg(feature = "count-locks")]
    #[test]
    fn operations_use_the_locks_that_the_lock_order_names() {
        let options = ScalabilityOptions { workers: vec![4], operations: 64, seconds: 0.0 };
        let rows = measure(BuildFormat::Xfs, 4, (&options, 0.0)).unwrap();
        let create = rows.iter().find(|row| row.name == "create").unwrap();
        for name in ["inode", "checkpoint lock", "group", "block", "shard of the cache"] {
            let kind = create.usage.kinds.iter().find(|kind| kind.name == name);
            let kind = kind.unwrap_or_else(|| panic!("no {name}: {:?}", create.usage.kinds));
            assert!(kind.exclusive + kind.shared >= 0.5, "{kind:?}");
        }
        assert!((0.0..=1.0).contains(&create.efficiency), "{}", create.efficiency);
    }
}
