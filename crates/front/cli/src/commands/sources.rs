//! Sources of a build and their target directories. The order of the arguments assigns them to each
//! other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The arguments as they are declared.
#[derive(Debug, Args)]
struct Declared {
    /// Sources, then the image to create. A source is a directory, a tar archive (plain, gzip or zstd; - for standard
    /// input), a container image (oci:DIR[:REF], oci-archive:FILE[:REF] or docker-archive:FILE[:TAG]) or a file-system image
    /// (image:FILE[:PARTITION]). Files of later sources replace those of earlier ones
    #[arg(value_name = "SOURCE… IMAGE", required = true)]
    words: Vec<PathBuf>,

    /// Put the next source into this directory of the image [default: /]
    #[arg(long, value_name = "PATH")]
    at: Vec<OsString>,
}

/// Sources in order, and the image to build.
#[derive(Debug)]
pub(crate) struct SourceArgs {
    sources: Vec<SourceArg>,
    image: PathBuf,
}

/// A source and its target directory.
#[derive(Clone, Debug)]
pub(crate) struct SourceArg {
    pub(crate) source: PathBuf,
    /// Target directory: names separated by slashes.
    pub(crate) at: Vec<u8>,
}

impl SourceArgs {
    pub(crate) fn all(&self) -> &[SourceArg] {
        &self.sources
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }
}

impl FromArgMatches for SourceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Declared { mut words, at } = Declared::from_arg_matches(matches)?;
        let (Some(image), false) = (words.pop(), words.is_empty()) else {
            return Err(error("expected at least one source, followed by the image to create"));
        };
        let indices = |name| matches.indices_of(name).into_iter().flatten();
        let places = indices("at").zip(&at).collect::<Vec<_>>();
        let mut before = 0;
        let mut sources = Vec::with_capacity(words.len());
        for (index, source) in indices("words").zip(words) {
            let of_this = |(at, _): &&(usize, _)| (before..index).contains(at);
            let mut places = places.iter().filter(of_this);
            let at = places
                .next()
                .map_or(Ok(Vec::new()), |(_, place)| plain(place.as_encoded_bytes()))?;
            if let Some((_, place)) = places.next() {
                return Err(misplaced(place));
            }
            (before, _) = (index, sources.push(SourceArg { source, at }));
        }
        match places.iter().find(|(at, _)| *at > before) {
            Some((_, place)) => Err(misplaced(place)),
            None => Ok(Self { sources, image }),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SourceArgs {
    fn augment_args(command: Command) -> Command {
        Declared::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Declared::augment_args_for_update(command)
    }
}

/// Normalises a path: removes empty and `.` components.
fn plain(path: &[u8]) -> Result<Vec<u8>, clap::Error> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names = names.collect::<Vec<_>>();
    if names.contains(&&b".."[..]) {
        let path = String::from_utf8_lossy(path);
        return Err(error(&format!("--at {path}: the path must not contain \"..\"")));
    }
    Ok(names.join(&b'/'))
}

fn misplaced(place: &OsString) -> clap::Error {
    let place = place.to_string_lossy();
    error(&format!("--at {place}: write it before its source, once for each source"))
}

fn error(problem: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{problem}\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        sources: SourceArgs,
        #[arg(long)]
        label: Option<String>,
    }

    fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
        let words = std::iter::once("build").chain(text.split(' '));
        let parsed = Arguments::try_parse_from(words).map_err(|e| e.to_string())?;
        assert_eq!(parsed.sources.image(), Path::new("IMAGE"));
        let shown = |source: &SourceArg| {
            let at = String::from_utf8_lossy(&source.at).into_owned();
            (source.source.display().to_string(), at)
        };
        Ok(parsed.sources.all().iter().map(shown).collect())
    }

    fn placed(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(source, at)| (source.into(), at.into())).collect()
    }

    #[test]
    fn a_place_belongs_to_the_source_after_it() {
        assert_eq!(parse("a IMAGE").unwrap(), placed(&[("a", "")]));
        assert_eq!(parse("a b IMAGE --label x").unwrap(), placed(&[("a", ""), ("b", "")]));
        let expected = placed(&[("a", ""), ("b", "srv/www"), ("c", "")]);
        assert_eq!(parse("a --at srv/www b c IMAGE").unwrap(), expected);
        assert_eq!(parse("--label x a --at=/srv//./www/ b c IMAGE").unwrap(), expected);
        let expected = placed(&[("a", "x"), ("b", "y")]);
        assert_eq!(parse("--at x a --label l --at y b IMAGE").unwrap(), expected);
        assert_eq!(parse("--at / a IMAGE").unwrap(), placed(&[("a", "")]));
        assert_eq!(parse("a --label x IMAGE").unwrap(), placed(&[("a", "")]));
        assert_eq!(
            parse("a b --label x --at y -- c IMAGE").unwrap(),
            placed(&[("a", ""), ("b", ""), ("c", "y")])
        );
    }

    #[test]
    fn places_without_a_source_are_refused() {
        for text in ["a --at x IMAGE", "a IMAGE --at x", "--at x --at y a IMAGE"] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains("--at") && problem.contains("before"), "{text}: {problem}");
        }
        for text in ["--at .. a IMAGE", "--at x/../../y a IMAGE"] {
            assert!(parse(text).unwrap_err().contains("\"..\""), "{text}");
        }
        assert!(parse("a").unwrap_err().contains("the image to create"));
        assert!(parse("--label x").is_err());
    }
}
