//! Pictures and pages are well formed, contain the counts, and escape all text.

use diskwright::disk_map::{Curve, Figures, Options};
use vfs::survey::BlockUse;

use crate::disk_map::common::{GOLDEN, open_bytes, survey, unpack};

fn golden(wanted: &str, cells: usize) -> diskwright::disk_map::Survey {
    let (_, packed) = GOLDEN.into_iter().flatten().find(|(name, _)| *name == wanted).expect(wanted);
    survey(&*open_bytes(&unpack(packed)).expect("a sound image"), cells)
}

fn options(title: &str, curve: Curve) -> Options {
    Options { title: title.into(), format: "ext4".into(), curve }
}

/// Checks that all tags of a document are closed in the right order.
fn assert_well_formed(text: &str, is_html: bool) {
    const EMPTY: [&str; 2] = ["meta", "br"];
    let mut open = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').expect("an end of the tag") + at;
        let tag = &rest[at + 1..end];
        assert!(!tag.contains('<'), "{tag}");
        rest = &rest[end + 1..];
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{tag}");
        } else {
            let is_alone = is_html && EMPTY.contains(&name);
            if !(is_alone || tag.ends_with('/') || tag.starts_with('!')) {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!text.contains("<script") && !text.contains("NaN") && !text.contains("inf"));
}

#[test]
fn pictures_are_well_formed_whatever_names_are() {
    let title = "<script>alert('&\"')</script>\u{0}\u{202e}\n.img";
    for name in ["ext4/ext4", "xfs/shared", "ext4/ext2-rev0"] {
        for curve in [Curve::Rows, Curve::Hilbert] {
            for cells in [1, 2, 100, 4096] {
                let mut survey = golden(name, cells);
                survey.remarks.push("<b>odd</b> & \u{1}".into());
                let options = options(title, curve);
                let svg = diskwright::disk_map::svg(&survey, &options);
                assert_well_formed(&svg, false);
                assert!(
                    svg.contains("role=\"img\"") && svg.contains("<desc id=\"dm-desc\">A disk")
                );
                let html = diskwright::disk_map::html(&survey, &options);
                assert_well_formed(&html, true);
                assert!(html.contains("&lt;b&gt;odd&lt;/b&gt;"));
                assert!(!diskwright::disk_map::text(&survey, &options).contains('\u{202e}'));
            }
        }
    }
}

#[test]
fn each_kind_is_in_the_legend_with_its_size() {
    let survey = golden("xfs/shared", 4096);
    let svg = diskwright::disk_map::svg(&survey, &options("image", Curve::Rows));
    for (kind, total) in BlockUse::ALL.into_iter().zip(survey.cells.totals()) {
        let is_there = svg.contains(&format!(">{}<", diskwright::disk_map::word(kind)));
        assert_eq!(is_there, total > 0, "{kind:?}");
        let path = svg.contains(&format!("<path class=\"dm-k{}\"", kind as usize));
        assert!(path || total == 0, "{kind:?}");
    }
}

#[test]
fn figures_have_all_numbers() {
    let survey = golden("ext4/ext4", 50);
    let figures = Figures::new(&survey, &options("image", Curve::Rows));
    let json = serde_json::to_value(&figures).expect("figures");
    let cells = json["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), survey.cells.len());
    let of = |cell: &serde_json::Value| -> u64 {
        cell.as_array().expect("counts").iter().map(|count| count.as_u64().expect("a count")).sum()
    };
    assert_eq!(cells.iter().map(of).sum::<u64>(), survey.shape.blocks);
    let kinds = json["kinds"].as_array().expect("kinds");
    let blocks: u64 = kinds.iter().map(|kind| kind["blocks"].as_u64().expect("blocks")).sum();
    assert_eq!((kinds.len(), blocks), (BlockUse::COUNT, survey.shape.blocks));
    assert_eq!(json["log"]["state"], "none");
    assert_eq!(json["complete"], true);
}

#[test]
fn a_picture_of_an_almost_empty_disk_is_small() {
    let survey = golden("xfs/default", 4096);
    let svg = diskwright::disk_map::svg(&survey, &options("image", Curve::Rows));
    assert!(svg.len() < 600_000, "{} bytes", svg.len());
}
