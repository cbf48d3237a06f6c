//! The picture with tables of its numbers, as a self-contained page without scripts.

use std::fmt::Write;

use vfs::survey::BlockUse;

use crate::disk_map::histogram::Bucket;
use crate::disk_map::survey::Survey;
use crate::disk_map::words::{Escaped, count, log_words, path_text, share, size};
use crate::disk_map::{Options, svg, word};

const STYLE: &str = "\
:root{color-scheme:light dark}
body{margin:0;background:#fff;color:#1c2128;font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif}
main{max-width:1000px;margin:0 auto;padding:0 0 48px}
svg{display:block;width:100%;height:auto}
section{padding:0 28px}
h2{font-size:17px;margin:32px 0 8px}
table{border-collapse:collapse;width:100%}
th,td{padding:4px 12px 4px 0;text-align:left;border-bottom:1px solid #d8dee4;vertical-align:top}
th{font-weight:600}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.p{overflow-wrap:anywhere}
ul{margin:0;padding-left:20px;overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{background:#0f1318;color:#e6edf3}th,td{border-color:#30363d}}
";

/// Returns the page.
pub fn html(survey: &Survey, options: &Options) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_page(survey, options, &mut out);
    out
}

fn write_page(survey: &Survey, options: &Options, out: &mut String) -> std::fmt::Result {
    let title = path_text(options.title.as_bytes());
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}: disk map</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        Escaped(&title)
    )?;
    out.push_str(&svg(survey, options));
    kinds(survey, out)?;
    free(survey, out)?;
    files(survey, out)?;
    log(survey, out)?;
    remarks(survey, out)?;
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

/// Writes a table. Headings with a `#` belong to columns of numbers.
fn table(out: &mut String, title: &str, headings: &[&str]) -> std::fmt::Result {
    writeln!(out, "<section>\n<h2>{title}</h2>\n<table>\n<thead><tr>")?;
    for heading in headings {
        match heading.strip_prefix('#') {
            Some(heading) => writeln!(out, "<th scope=\"col\" class=\"n\">{heading}</th>")?,
            None => writeln!(out, "<th scope=\"col\">{heading}</th>")?,
        }
    }
    writeln!(out, "</tr></thead>\n<tbody>")
}

fn end(out: &mut String) {
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn row(out: &mut String, name: &str, numbers: &[String]) -> std::fmt::Result {
    write!(out, "<tr><td class=\"p\">{}</td>", Escaped(name))?;
    for number in numbers {
        write!(out, "<td class=\"n\">{}</td>", Escaped(number))?;
    }
    writeln!(out, "</tr>")
}

fn kinds(survey: &Survey, out: &mut String) -> std::fmt::Result {
    table(out, "Use of the disk", &["Kind", "#Blocks", "#Size", "#Share"])?;
    let totals = survey.cells.totals();
    let all = survey.shape.blocks;
    for (kind, blocks) in BlockUse::ALL.into_iter().zip(totals).filter(|(_, blocks)| *blocks > 0) {
        let bytes = size(survey.bytes(blocks));
        row(out, word(kind), &[count(blocks), bytes, share(blocks, all)])?;
    }
    row(out, "all", &[count(all), size(survey.bytes(all)), share(all, all)])?;
    end(out);
    Ok(())
}

fn free(survey: &Survey, out: &mut String) -> std::fmt::Result {
    let headings = ["Length of run", "#Runs", "#Blocks", "#Size", "#Share of free space"];
    table(out, "Free space", &headings)?;
    let all = survey.free.sum();
    let line = |name: &str, runs: u64, blocks: u64, out: &mut String| {
        let bytes = size(survey.bytes(blocks));
        row(out, name, &[count(runs), count(blocks), bytes, share(blocks, all)])
    };
    for Bucket { from, to, count, sum } in survey.free.buckets() {
        line(&format!("{from} to {to} blocks"), count, sum, out)?;
    }
    let longest = size(survey.bytes(survey.free.longest()));
    line(&format!("all; the longest is {longest}"), survey.free.count(), all, out)?;
    end(out);
    Ok(())
}

fn files(survey: &Survey, out: &mut String) -> std::fmt::Result {
    let files = &survey.files;
    let title = "Files and directories that have blocks";
    table(out, title, &["", "#All", "#In more than one piece", "#Share"])?;
    let pairs = [
        ("files", files.files, files.files_fragmented),
        ("directories", files.directories, files.directories_fragmented),
    ];
    for (name, all, fragmented) in pairs {
        row(out, name, &[count(all), count(fragmented), share(fragmented, all)])?;
    }
    end(out);
    table(out, "Files by number of pieces", &["Pieces", "#Files", "#Share", "#Pieces of all"])?;
    for Bucket { from, to, count: number, sum } in files.fragments.buckets() {
        let name = if from == to { from.to_string() } else { format!("{from} to {to}") };
        row(out, &name, &[count(number), share(number, files.files), count(sum)])?;
    }
    end(out);
    if files.worst.is_empty() {
        return Ok(());
    }
    let headings = ["Path", "#Inode", "#Pieces", "#Size"];
    table(out, "Most fragmented files and directories", &headings)?;
    for file in &files.worst {
        let path = file.path.as_deref().map_or("(no path was found)".to_owned(), path_text);
        let bytes = size(survey.bytes(file.blocks));
        row(out, &path, &[file.ino.to_string(), count(file.fragments), bytes])?;
    }
    end(out);
    Ok(())
}

fn log(survey: &Survey, out: &mut String) -> std::fmt::Result {
    let state = log_words(survey.shape.log).0;
    writeln!(out, "<section>\n<h2>Journal or log</h2>\n<p>State: {state}.</p>\n</section>")?;
    if survey.log.is_empty() {
        return Ok(());
    }
    table(out, "Location of the log", &["First block", "#Blocks", "#Size"])?;
    for (start, len) in &survey.log {
        row(out, &count(*start), &[count(*len), size(survey.bytes(*len))])?;
    }
    end(out);
    Ok(())
}

fn remarks(survey: &Survey, out: &mut String) -> std::fmt::Result {
    if survey.remarks.is_empty() && survey.is_complete {
        return Ok(());
    }
    writeln!(out, "<section>\n<h2>Unreadable parts</h2>\n<ul>")?;
    for remark in &survey.remarks {
        writeln!(out, "<li>{}</li>", Escaped(remark))?;
    }
    if survey.remarks_left_out > 0 {
        writeln!(out, "<li>and {} more</li>", count(survey.remarks_left_out))?;
    }
    if !survey.is_complete {
        writeln!(out, "<li>The survey was interrupted.</li>")?;
    }
    writeln!(out, "</ul>\n</section>")
}
