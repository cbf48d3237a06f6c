//! Path substitutions (`file_contexts.subs`, `.subs_dist`): a tree is labelled like another one.

use crate::SourceError;
use crate::rule_file::fault::RuleFault;
use crate::rule_file::lines::{RuleFile, fields};

/// The lines of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitutions(Vec<(Vec<u8>, Vec<u8>)>);

impl Substitutions {
    pub(super) fn of(file: Option<&RuleFile>) -> Result<Self, SourceError> {
        let mut pairs = Vec::new();
        let Some(file) = file else { return Ok(Self(pairs)) };
        for (line, bytes) in file.lines() {
            let fields = fields(bytes);
            let [from, to] = fields[..] else {
                let fault =
                    RuleFault::expected("line", "a path and the path whose label it gets", bytes);
                return Err(file.fault(line, fault));
            };
            for field in [from, to] {
                if !field.starts_with(b"/") {
                    let fault = RuleFault::expected("path", "a path from the root", field);
                    return Err(file.fault(line, fault));
                }
            }
            // A trailing slash has no meaning.
            let trim = |path: &[u8]| {
                let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
                path[..end].to_vec()
            };
            pairs.push((trim(from), trim(to)));
        }
        // If several lines match a path, libselinux uses the last one.
        pairs.reverse();
        Ok(Self(pairs))
    }

    /// Returns the path whose label `path` gets, if a line matches.
    pub(super) fn apply(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(&from[..])?;
            if !rest.is_empty() && !rest.starts_with(b"/") {
                return None;
            }
            let whole = [&to[..], rest].concat();
            Some(if whole.is_empty() { b"/".to_vec() } else { whole })
        })
    }
}
