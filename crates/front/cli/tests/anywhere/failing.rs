//! Servers that fail while a command reads. The command must not report damage.

use std::path::Path;

use serde_json::Value;
use testkit::{WebFault, WebServer, effort, scratch};

use super::{run, served};

/// Commands that read an image.
const COMMANDS: [&str; 8] = [
    "check --json URL",
    "repair --plan --json URL",
    "extract --salvage --force URL salvaged",
    "extract --force URL extracted",
    "extract --force --keep-going URL kept",
    "ls -R URL",
    "info URL",
    "find URL",
];

/// Faults of a server after some correct responses. A server whose image was replaced answers 412.
const FAULTS: [WebFault; 2] = [WebFault::Status(412), WebFault::Status(403)];

/// Runs a command on a server that fails after `right` responses. Returns the number of requests.
fn try_command(dir: &Path, server: &WebServer, line: &str, right: usize, fault: WebFault) -> usize {
    server.fail_after(right, Some(fault));
    let _ = server.take_requests();
    let output = run(dir, line);
    server.fail_after(0, None);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!(
        "{line}, {fault:?} after {right}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    let requests = server.take_requests().len();
    // A few for each file and directory, none for each unit of a file.
    let is_bounded = !line.starts_with("extract") || requests < right + 600;
    assert!(is_bounded, "{requests} requests: {said}");
    let status = output.status.code().unwrap();
    // A failed prefetch does not matter.
    assert!(status == 4 || (status == 0 && right > 0), "status {status}: {said}");
    if status == 4 && line.contains("--json") && right > 0 {
        let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
        assert_eq!(report["verdict"], "incomplete", "{said}");
        assert!(report["device_error"].is_string(), "{said}");
        assert!(report.get("steps").is_none_or(|steps| steps == &Value::Array(vec![])), "{said}");
    }
    requests
}

/// No command reports a failed request as damage, whichever request fails first.
#[test]
fn a_failing_server_is_not_reported_as_damage() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    let mut failed = 0;
    for format in images {
        for line in COMMANDS {
            let line = line.replace("URL", &server.url(format));
            let _ = server.take_requests();
            assert!(run(dir.path(), &line).status.success(), "{line}");
            let healthy = server.take_requests().len();
            let step = healthy.div_ceil(effort(6, 6, healthy));
            for fault in FAULTS.into_iter().take(effort(1, 2, 2)) {
                for right in (0..healthy).step_by(step) {
                    let requests = try_command(dir.path(), &server, &line, right, fault);
                    if requests <= right {
                        break;
                    }
                    failed += 1;
                }
            }
        }
    }
    assert!(failed > 20, "{failed}");
}
