//! Converts the text after a command's help to sections of a page.
//!
//! The text is formatted manually: a line that ends with a colon and is followed by indented lines is a heading.
//! Indented lines are examples and tables, which are copied verbatim. Everything else is prose.

use std::io::{self, Write};

/// Default heading.
const NOTES: &str = "Notes";

/// Writes the sections.
pub(crate) fn render(text: &str, out: &mut impl Write) -> io::Result<()> {
    let mut section = "";
    for block in text.trim_end().split("\n\n") {
        let (heading, rest) = split_heading(block);
        let is_table = block.starts_with(' ');
        match heading {
            Some(heading) => section = heading,
            None if section == NOTES || (is_table && !section.is_empty()) => {
                writeln!(out, ".PP")?;
                lines(rest, out)?;
                continue;
            }
            None => section = NOTES,
        }
        writeln!(out, ".SH \"{}\"", escaped(&section.to_uppercase()))?;
        lines(rest, out)?;
    }
    Ok(())
}

/// Splits off the heading of a block, if it has one.
fn split_heading(block: &str) -> (Option<&str>, &str) {
    match block.split_once('\n') {
        Some((first, rest)) if first.ends_with(':') && rest.starts_with(' ') => {
            (Some(first.trim_end_matches(':')), rest)
        }
        _ => (None, block),
    }
}

/// Writes the lines of a block: indented ones verbatim, others as prose.
fn lines(block: &str, out: &mut impl Write) -> io::Result<()> {
    let mut is_verbatim = false;
    for line in block.lines() {
        let is_indented = line.starts_with(' ');
        if is_indented != is_verbatim {
            writeln!(out, "{}", if is_indented { ".nf" } else { ".fi" })?;
            is_verbatim = is_indented;
        }
        writeln!(out, "{}", escaped(line))?;
    }
    if is_verbatim { writeln!(out, ".fi") } else { Ok(()) }
}

/// Escapes a line for roff: no requests or escapes, and hyphens that can be copied.
pub(crate) fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut out = Vec::new();
        render(text, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn headings_prose_and_examples_are_distinguished() {
        let page = rendered(
            "Examples:\n  a --b\n\nProse of\ntwo lines.\n\n.dots, too\n\nExit status:\n  0  done",
        );
        assert_eq!(
            page,
            ".SH \"EXAMPLES\"\n.nf\n  a \\-\\-b\n.fi\n.SH \"NOTES\"\nProse of\ntwo lines.\n.PP\n\\&.dots, too\n\
             .SH \"EXIT STATUS\"\n.nf\n  0  done\n.fi\n"
        );
    }

    #[test]
    fn text_without_a_heading_is_a_note() {
        assert_eq!(rendered("One: two"), ".SH \"NOTES\"\nOne: two\n");
        assert_eq!(
            rendered("Of these:\n  a\n\n  b\n"),
            ".SH \"OF THESE\"\n.nf\n  a\n.fi\n.PP\n.nf\n  b\n.fi\n"
        );
    }
}
