//! Plans as text.

use std::collections::BTreeSet;
use std::io::{self, Write};

use operations::repair::{Action, PAGE_BYTES, Plan, Step, pages_of};

use crate::check::text::where_it_is;
use crate::text::{escaped, size};

/// Maximum number of lines for actions and for paths. Plans of heavily damaged images are long.
const LINES_MAX: usize = 200;

/// Returns the absolute paths of all files that steps change, as far as known, in order.
pub(crate) fn paths_of(steps: &[Step]) -> BTreeSet<&[u8]> {
    let actions = steps.iter().flat_map(|step| &step.actions);
    actions.filter_map(|action| action.path.as_deref()).collect()
}

/// Writes the actions of a plan and the affected paths.
///
/// # Errors
/// If writing fails.
pub fn write_plan(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    if plan.steps.is_empty() {
        return Ok(());
    }
    writeln!(out, "plan:")?;
    let mut lines = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        for (nth, action) in step.actions.iter().enumerate() {
            lines += 1;
            if lines > LINES_MAX {
                continue;
            }
            let number = if nth == 0 { format!("{}.", number + 1) } else { String::new() };
            writeln!(out, "  {number:>4} {}", line(action))?;
        }
    }
    more(lines, out)?;
    let paths = paths_of(&plan.steps);
    if !paths.is_empty() {
        writeln!(out, "paths that change:")?;
        for path in paths.iter().take(LINES_MAX) {
            writeln!(out, "  {}", escaped(path))?;
        }
        more(paths.len(), out)?;
    }
    let bytes = pages_of(&plan.steps).len() as u64 * PAGE_BYTES;
    let steps = match plan.steps.len() {
        1 => "1 step".into(),
        count => format!("{count} steps"),
    };
    writeln!(out, "{steps}, {} of the image in total", size(bytes))
}

/// Formats an action with its code, and the path of the file or the location of the structure.
fn line(action: &Action) -> String {
    let what = escaped(action.what.as_bytes());
    let Some(code) = action.code else { return what.to_string() };
    let place = match &action.path {
        Some(path) => Some(escaped(path).to_string()),
        None => where_it_is(&action.place),
    };
    let place = place.map_or(String::new(), |place| format!(" {place}"));
    format!("{what} [{}]{place}", code.name)
}

fn more(lines: usize, out: &mut dyn Write) -> io::Result<()> {
    match lines.checked_sub(LINES_MAX) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "       … and {more} more; --json has all"),
    }
}
