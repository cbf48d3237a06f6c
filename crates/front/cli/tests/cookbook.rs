//! The recipes of `docs/cookbook.md`, run as printed there.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::Need::{self, Fuse, Tool};

/// The page.
const PAGE: &str = include_str!("../../../../docs/cookbook.md");

/// A recipe: its commands and their output.
struct Recipe {
    title: &'static str,
    commands: &'static str,
    printed: &'static str,
}

/// Returns the text of the first fenced block of this kind.
fn fenced(section: &'static str, kind: &str) -> Option<&'static str> {
    let (_, rest) = section.split_once(&format!("\n```{kind}\n"))?;
    rest.split_once("```").map(|(inside, _)| inside)
}

/// Returns all recipes, numbered from 1.
fn recipes() -> Vec<Recipe> {
    let sections = PAGE.split("\n## ").skip(1);
    let numbered = sections.filter(|section| section.starts_with(|c: char| c.is_ascii_digit()));
    let recipe = |section: &'static str| Recipe {
        title: section.lines().next().unwrap(),
        commands: fenced(section, "sh").expect(section),
        printed: fenced(section, "text").expect(section),
    };
    numbered.map(recipe).collect()
}

/// Returns the requirements of commands that not every machine meets.
pub(super) fn needs(commands: &str) -> Vec<Need> {
    let mut needs = vec![Tool("sh")];
    for name in ["ddrescue", "e2fsck", "fakeroot", "genimage", "nfs-cat", "sfdisk", "tar"] {
        if commands.split_whitespace().any(|word| word.trim_matches('\'') == name) {
            needs.push(Tool(name));
        }
    }
    if commands.contains("diskwright mount") {
        needs.push(Fuse);
    }
    needs
}

/// Creates the initial files for recipes in a directory.
pub(super) fn kitchen(dir: &Path) {
    for (path, text) in
        [("etc/hostname", "box\n"), ("etc/motd", "Welcome.\n"), ("usr/bin/app", "app\n")]
    {
        let file = dir.join("rootfs").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

/// Runs commands in a directory, with the program first in `PATH`. Ends at the first command that fails.
pub(super) fn shell(dir: &Path, commands: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_diskwright")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}:/usr/sbin:/sbin", program.display());
    let mut command = Command::new("sh");
    command.current_dir(dir).env("PATH", path).env("LC_ALL", "C").env_remove("SOURCE_DATE_EPOCH");
    command.args(["-ec", commands]).stdin(Stdio::null()).output().unwrap()
}

fn cook(number: usize) {
    let recipe = &recipes()[number - 1];
    assert!(recipe.title.starts_with(&format!("{number}. ")), "{}", recipe.title);
    if !testkit::satisfied(&format!("cookbook::recipe {}", recipe.title), &needs(recipe.commands)) {
        return;
    }
    let home = testkit::scratch();
    kitchen(home.path());
    let output = shell(home.path(), recipe.commands);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, messages) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {} {out}{messages}", recipe.title, output.status);
    assert_eq!(out.trim_end(), recipe.printed.trim_end(), "{}: {messages}", recipe.title);
}

/// Defines one test per recipe.
macro_rules! recipes {
    ($($name:ident $number:literal),+ $(,)?) => {
        const COUNT: usize = [$($number),+].len();
        $(
            #[test]
            fn $name() {
                cook($number);
            }
        )+
    };
}

recipes! {
    recipe_1 1, recipe_2 2, recipe_3 3, recipe_4 4, recipe_5 5, recipe_6 6, recipe_7 7, recipe_8 8, recipe_9 9,
    recipe_10 10, recipe_11 11, recipe_12 12, recipe_13 13, recipe_14 14, recipe_15 15, recipe_16 16, recipe_17 17,
    recipe_18 18, recipe_19 19, recipe_20 20,
}

#[test]
fn each_recipe_is_run() {
    assert_eq!(recipes().len(), COUNT);
}
