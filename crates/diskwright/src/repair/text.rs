//! Plans as people read them.

use std::collections::BTreeSet;
use std::io::{self, Write};

use ::repair::{PAGE_BYTES, Plan, Step, pages_of};

use crate::text::{escaped, size};

/// Most lines of actions, and of paths. A plan has as many as an image has faults.
const LINES_MAX: usize = 200;

/// The absolute paths of all files that steps change, as far as they are known, in order.
pub fn paths_of(steps: &[Step]) -> BTreeSet<&[u8]> {
    let actions = steps.iter().flat_map(|step| &step.actions);
    actions.filter_map(|action| action.path.as_deref()).collect()
}

/// Writes what a plan would do, and to which paths.
///
/// # Errors
/// If it cannot be written.
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
            let code = action.code.map_or(String::new(), |code| format!(" [{}]", code.name));
            let path = action.path.as_deref().filter(|_| action.code.is_some());
            let path = path.map_or(String::new(), |path| format!(" {}", escaped(path)));
            writeln!(out, "  {number:>4} {}{code}{path}", escaped(action.what.as_bytes()))?;
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
    writeln!(out, "{steps}, {} of the image in all", size(bytes))
}

fn more(lines: usize, out: &mut dyn Write) -> io::Result<()> {
    match lines.checked_sub(LINES_MAX) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "       … and {more} more; --json has all"),
    }
}
