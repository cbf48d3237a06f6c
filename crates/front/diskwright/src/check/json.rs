//! Reports and findings as JSON. `docs/check.md` describes the format.

use std::path::Path;

use serde::Serialize;
use vfs::check::{Code, Finding, Severity, Summary};

use super::{DamagedFiles, FindingsOfKind, Report};
use crate::damaged::DamagedFile;
use crate::text::{lossy, not_utf8};
use crate::{Error, Outcome};

/// The image file.
#[derive(Serialize)]
pub(crate) struct ImageName {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
}

impl ImageName {
    pub(crate) fn new(image: &Path) -> Self {
        let image = crate::text::public(image);
        let bytes = image.as_os_str().as_encoded_bytes();
        Self { image: lossy(bytes), image_bytes: not_utf8(bytes) }
    }
}

/// Finding code. The meaning is omitted in some records.
#[derive(Serialize)]
struct CodeRecord {
    code: &'static str,
    severity: &'static str,
    structure: &'static str,
}

impl CodeRecord {
    fn new(code: &'static Code) -> Self {
        Self { code: code.name, severity: code.severity.word(), structure: code.structure }
    }
}

/// Properties of a single finding.
#[derive(Serialize)]
struct FindingRecord<'f> {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'f str>,
}

impl<'f> FindingRecord<'f> {
    fn new(finding: &'f Finding) -> Self {
        let Finding { code: _, place, detail, expected, found, path } = finding;
        Self {
            group: place.group,
            block: place.block,
            inode: place.inode,
            field: place.field,
            name: place.name.as_deref().map(lossy),
            name_bytes: place.name.as_deref().and_then(not_utf8),
            path: path.as_deref().map(lossy),
            path_bytes: path.as_deref().and_then(not_utf8),
            expected: expected.as_deref(),
            found: found.as_deref(),
            detail: detail.as_deref(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct KindRecord<'r> {
    #[serde(flatten)]
    code: CodeRecord,
    meaning: &'static str,
    repair: &'static str,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<Vec<FindingRecord<'r>>>,
}

impl<'r> KindRecord<'r> {
    pub(crate) fn new(kind: &'r FindingsOfKind, with_findings: bool) -> Self {
        Self {
            code: CodeRecord::new(kind.code),
            meaning: kind.code.meaning,
            repair: kind.code.repair,
            count: kind.count,
            left_out: with_findings.then(|| kind.left_out()),
            findings: with_findings.then(|| kind.findings.iter().map(FindingRecord::new).collect()),
        }
    }
}

#[derive(Serialize)]
struct SummaryRecord {
    inodes: u64,
    directories: u64,
    blocks_used: u64,
    blocks: u64,
    transactions_replayed: u64,
}

impl SummaryRecord {
    fn new(summary: &Summary) -> Self {
        let &Summary { inodes, directories, blocks_used, blocks, transactions_replayed, .. } =
            summary;
        Self { inodes, directories, blocks_used, blocks, transactions_replayed }
    }
}

/// Number of findings by severity.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Counts {
    unusable: u64,
    at_risk: u64,
    harmless: u64,
}

/// Report, or the summary line after single findings.
#[derive(Serialize)]
struct ReportRecord<'r> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    line_type: Option<&'static str>,
    #[serde(flatten)]
    image: ImageName,
    format: &'static str,
    verdict: &'static str,
    is_complete: bool,
    is_interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_error: Option<&'r str>,
    summary: SummaryRecord,
    counts: Counts,
    kinds: Vec<KindRecord<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_files: Option<DamagedFilesRecord<'r>>,
}

/// Files on bad areas.
#[derive(Serialize)]
struct DamagedFilesRecord<'r> {
    count: u64,
    left_out: u64,
    is_complete: bool,
    files: &'r [DamagedFile],
}

impl<'r> DamagedFilesRecord<'r> {
    fn new(damaged: &'r DamagedFiles) -> Self {
        let DamagedFiles { count, files, is_complete } = damaged;
        let left_out = count.saturating_sub(files.len() as u64);
        Self { count: *count, left_out, is_complete: *is_complete, files }
    }
}

#[derive(Serialize)]
struct FindingLine<'f> {
    #[serde(rename = "type")]
    line_type: &'static str,
    #[serde(flatten)]
    image: ImageName,
    #[serde(flatten)]
    code: CodeRecord,
    #[serde(flatten)]
    finding: FindingRecord<'f>,
}

#[derive(Serialize)]
struct ErrorRecord {
    #[serde(rename = "type")]
    line_type: &'static str,
    #[serde(flatten)]
    image: ImageName,
    status: u8,
    error: String,
}

impl Report {
    /// Returns the report as one line of JSON, with all kept findings.
    pub fn json_line(&self) -> String {
        line(&self.record(None))
    }

    /// Returns the summary line that follows the findings of an image: the report without findings.
    pub fn json_summary_line(&self) -> String {
        line(&self.record(Some("summary")))
    }

    fn record(&self, line_type: Option<&'static str>) -> ReportRecord<'_> {
        let with_findings = line_type.is_none();
        let kinds = self.kinds.iter().map(|kind| KindRecord::new(kind, with_findings));
        ReportRecord {
            line_type,
            image: ImageName::new(&self.image),
            format: self.format.name(),
            verdict: self.verdict().word(),
            is_complete: self.summary.is_complete && !self.is_interrupted,
            is_interrupted: self.is_interrupted,
            device_error: self.device_error.as_deref(),
            summary: SummaryRecord::new(&self.summary),
            counts: Counts {
                unusable: self.count_of(Severity::Unusable),
                at_risk: self.count_of(Severity::AtRisk),
                harmless: self.count_of(Severity::Harmless),
            },
            kinds: kinds.collect(),
            damaged_files: self.damaged_files.as_ref().map(DamagedFilesRecord::new),
        }
    }
}

/// Returns a finding as one line of JSON.
pub fn finding_line(image: &Path, finding: &Finding) -> String {
    line(&FindingLine {
        line_type: "finding",
        image: ImageName::new(image),
        code: CodeRecord::new(finding.code),
        finding: FindingRecord::new(finding),
    })
}

/// Returns the error for an image that cannot be checked as one line of JSON.
pub fn error_line(image: &Path, error: &Error) -> String {
    let outcome: Outcome = error.outcome();
    line(&ErrorRecord {
        line_type: "error",
        image: ImageName::new(image),
        status: outcome as u8,
        error: error.with_advice(),
    })
}

pub(crate) fn line(record: &impl Serialize) -> String {
    // Serialisation cannot fail, because records contain only strings and numbers under fixed keys.
    let mut line = disk::address::safe_json(serde_json::to_string(record).unwrap_or_default());
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::io;
    #[cfg(unix)]
    use std::os::unix::ffi::OsStrExt;

    use serde_json::{Value, json};

    use super::*;
    use crate::check::samples;

    fn parse(line: &str) -> Value {
        assert!(line.ends_with('\n') && line.trim_end().lines().count() == 1, "{line}");
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_report_has_kinds_with_their_findings() {
        let report = parse(&samples::report().json_line());
        let expected = json!({
            "image": "dir/a.img",
            "format": "ext4",
            "verdict": "damaged",
            "is_complete": true,
            "is_interrupted": false,
            "summary": {
                "inodes": 12, "directories": 3, "blocks_used": 70, "blocks": 100, "transactions_replayed": 2
            },
            "counts": { "unusable": 1, "at-risk": 0, "harmless": 5 },
            "kinds": [
                {
                    "code": "ext4-tree-gone", "severity": "unusable", "structure": "extent tree",
                    "meaning": "It is gone.", "repair": "Nothing can be done.",
                    "count": 1, "left_out": 0,
                    "findings": [{
                        "inode": 12, "block": 77, "field": "eh_magic",
                        "name": "n\u{fffd}me\n", "name_bytes": "6eff6d650a",
                        "path": "/dir/n\u{fffd}me\n", "path_bytes": "2f6469722f6eff6d650a",
                        "expected": "0xf30a", "found": "0", "detail": "a \"detail\"\u{1b}"
                    }]
                },
                {
                    "code": "ext4-count-off", "severity": "harmless", "structure": "group descriptor",
                    "meaning": "It is off.", "repair": "It is counted.",
                    "count": 5, "left_out": 3,
                    "findings": [{ "group": 0 }, { "group": 1 }]
                }
            ]
        });
        assert_eq!(report, expected);
    }

    #[test]
    fn a_summary_has_no_findings() {
        let report = samples::report();
        let (summary, mut expected) =
            (parse(&report.json_summary_line()), parse(&report.json_line()));
        expected["type"] = "summary".into();
        for kind in expected["kinds"].as_array_mut().unwrap() {
            kind.as_object_mut().unwrap().retain(|key, _| key != "left_out" && key != "findings");
        }
        assert_eq!(summary, expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_finding_by_itself_names_its_image() {
        let report = samples::report();
        let image = Path::new(std::ffi::OsStr::from_bytes(b"b\xff.img"));
        let found = parse(&finding_line(image, &report.kinds[1].findings[1]));
        let expected = json!({
            "type": "finding", "image": "b\u{fffd}.img", "image_bytes": "62ff2e696d67",
            "code": "ext4-count-off", "severity": "harmless", "structure": "group descriptor",
            "group": 1
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn unchecked_images_have_the_status_of_a_single_check() {
        let error = Error::host("open", "a.img", io::Error::from(io::ErrorKind::NotFound));
        let found = parse(&error_line("a.img".as_ref(), &error));
        assert_eq!((&found["type"], &found["status"]), (&json!("error"), &json!(4)));
        assert!(found["error"].as_str().unwrap().starts_with("cannot open a.img"), "{found}");
    }
}
