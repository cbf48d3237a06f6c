//! The part of a page about the contestants.

use maud::{Markup, html};

use crate::contestant::Description;
use crate::report::everybody::{CommonProperty, features, kinds, remarks};
use crate::report::plot::Looks;

/// Returns the section with the contestants, and remarks on their comparability.
pub(super) fn section(all: &[&Description], looks: &Looks<'_>) -> Markup {
    let part = |title: &str, shared: Vec<CommonProperty<'_>>, class: &str| {
        html! {
            @if !shared.is_empty() {
                h3 { (title) }
                dl { @for one in &shared {
                    dt { (names(one, all, looks)) }
                    dd class=(class) { (one.what) }
                } }
            }
        }
    };
    html! {
        section {
            h2 id="contestants" { "Contestants" }
            ul class="legend" { @for one in all {
                @let look = looks.of(&one.name);
                li { (look.swatch()) " " b { (look.letter()) } " " span class="who" { (one.name) } }
            } }
            (part("Contestants", kinds(all), ""))
            (part("Features", features(all), "who"))
            (part("Not comparable", remarks(all), ""))
        }
    }
}

/// Returns the letters of a group of contestants; their names are in the legend.
fn names(shared: &CommonProperty<'_>, all: &[&Description], looks: &Looks<'_>) -> Markup {
    html! {
        @if shared.names.len() == all.len() && all.len() > 1 { b { "all" } }
        @else { @for name in &shared.names {
            @let look = looks.of(name);
            span class="letter" title=(name) { (look.swatch()) " " b { (look.letter()) } } " "
        } }
    }
}
