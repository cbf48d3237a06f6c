//! A single run of a contestant.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Sampling interval of a process's peak memory. The kernel maintains the peak, so only growth in the last interval
/// before the exit is missed.
const MEMORY_INTERVAL: Duration = Duration::from_millis(1);

/// Runs a command that must succeed, and returns its time.
pub(crate) fn timed(command: &mut Command) -> Result<Duration, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let elapsed = start.elapsed();
    if output.status.success() {
        return Ok(elapsed);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed ({}): {}", output.status, errors.trim()))
}

/// Runs a command that must succeed, and returns its peak memory in bytes.
///
/// Sampling costs time, so this run is not timed.
pub(crate) fn peak_memory(command: &mut Command) -> Result<u64, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        // Between the exit of the process and the wait for it, the status file has no memory figures.
        peak = fs::read_to_string(&status_file)
            .ok()
            .and_then(|text| high_water(&text))
            .unwrap_or(peak);
        let ended = child.try_wait().map_err(|error| format!("{command:?}: {error}"))?;
        if let Some(status) = ended {
            break status;
        }
        sleep(MEMORY_INTERVAL);
    };
    if status.success() { Ok(peak) } else { Err(format!("{command:?} failed ({status})")) }
}

/// Returns the peak resident set size in bytes from `/proc/PID/status`.
fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{high_water, peak_memory, timed};

    #[test]
    fn memory_is_read_from_the_kernel() {
        assert_eq!(high_water("Name:\tx\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert!(peak_memory(Command::new("sleep").arg("0.05")).unwrap() > 1 << 16);
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_message() {
        let error = timed(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.contains("why"), "{error}");
    }
}
