//! Running the program and reading its reports.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns `diskwright-bench` with a line of arguments, in a directory.
pub(crate) fn workload(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright-bench"));
    command.current_dir(dir).args(line.split_whitespace());
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

pub(crate) fn run(dir: &Path, line: &str) -> Output {
    workload(dir, line).output().unwrap()
}

/// Runs a workload that must succeed. Returns standard output and standard error.
#[track_caller]
pub(crate) fn ok(dir: &Path, line: &str) -> (String, String) {
    let output = run(dir, line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {} {said}", output.status);
    (String::from_utf8(output.stdout).unwrap(), said)
}

/// Runs a workload that must succeed. Returns its report.
#[track_caller]
pub(crate) fn report(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(dir, &format!("{line} --json")).0).unwrap()
}

/// Returns a list in a report.
#[track_caller]
pub(crate) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[track_caller]
pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[track_caller]
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Returns the distinct values of a key in a list of objects.
pub(crate) fn all<'v>(values: &'v [Value], key: &str) -> BTreeSet<&'v str> {
    values.iter().map(|value| text(value, key)).collect()
}

/// Returns the names of a workload's contestants, in order.
pub(crate) fn contestants(workload: &Value) -> Vec<&str> {
    list(workload, "contestants").iter().map(|one| text(one, "name")).collect()
}

/// Returns the only workload of a report.
#[track_caller]
pub(crate) fn only(report: &Value) -> &Value {
    let [workload] = list(report, "workloads") else { panic!("not one workload: {report}") };
    workload
}
