//! Lists of devices as text and JSON.

use std::io::Write;

use serde::Serialize;
use vfs::hint::Setting;

use super::Device;
use crate::text::{self, escaped};
use crate::{Error, Result};

/// Writes one line for each device, after a header.
///
/// # Errors
/// If the output cannot be written.
pub fn write_table(devices: &[Device], out: &mut dyn Write) -> Result<()> {
    let header = ["DEVICE", "SIZE", "FORMAT", "LABEL", "MOUNTED AT", "REMARK"].map(str::to_owned);
    let rows = std::iter::once(header).chain(devices.iter().map(row));
    text::write_columns(&rows.collect::<Vec<_>>(), &[1], out).map_err(Error::Output)
}

fn row(device: &Device) -> [String; 6] {
    let shown = |text: &Option<String>| match text {
        Some(text) => escaped(text.as_bytes()).to_string(),
        None => "-".to_owned(),
    };
    let path = escaped(device.path.as_os_str().as_encoded_bytes()).to_string();
    let points = device.mounted_at.iter().map(|point| escaped(point.as_bytes()).to_string());
    let points = points.collect::<Vec<_>>().join(", ");
    [
        match device.partition {
            Some(number) => format!("{path} --{} {number}", Setting::PARTITION.name()),
            None => path,
        },
        text::size(device.size),
        shown(&device.format),
        shown(&device.label),
        if points.is_empty() { "-".to_owned() } else { points },
        remark(device),
    ]
}

fn remark(device: &Device) -> String {
    let model = device.model.as_ref().map(|model| escaped(model.as_bytes()).to_string());
    let read_only = device.read_only.then(|| "read-only".to_owned());
    let problem = device.problem.as_ref().map(|problem| escaped(problem.as_bytes()).to_string());
    [model, read_only, problem].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[derive(Serialize)]
struct Report<'d> {
    devices: &'d [Device],
}

/// Writes one JSON object with the list `devices`, and a newline.
///
/// # Errors
/// If the output cannot be written.
pub fn write_json(devices: &[Device], out: &mut dyn Write) -> Result<()> {
    let json = serde_json::to_string(&Report { devices }).map_err(|e| Error::Output(e.into()))?;
    writeln!(out, "{}", disk::address::safe_json(json)).map_err(Error::Output)
}
