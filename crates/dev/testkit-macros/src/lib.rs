//! The `#[test]` of test programs that use the judges.
//!
//! A test program begins with `#[macro_use] extern crate testkit;`. That puts this attribute in front of the one of the
//! standard library, so each `#[test]` of the program is this one. The test then runs within `testkit::run_test`, which
//! turns a missing judge into a skipped test.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Makes a function a test that ends as SKIPPED where a judge is missing.
#[proc_macro_attribute]
pub fn test(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let (Some(name), Some(TokenTree::Group(body))) = (name_of(&tokens), tokens.pop()) else {
        return error("a test is a function with a body");
    };
    if body.delimiter() != Delimiter::Brace || returns(&tokens) {
        return error("a test that uses judges has a body and returns nothing");
    }
    let mut run: TokenStream = parse("testkit::run_test");
    let mut arguments = parse(&format!("concat!(module_path!(), \"::{name}\"), move ||"));
    arguments.extend([TokenTree::Group(body)]);
    run.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, arguments))]);
    let body = TokenTree::Group(Group::new(Delimiter::Brace, run));
    let mut made = parse("#[::core::prelude::v1::test]");
    made.extend(tokens.into_iter().chain([body]));
    made
}

/// Returns the name of a function.
fn name_of(tokens: &[TokenTree]) -> Option<Ident> {
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let at = tokens.iter().position(is_fn)?;
    match tokens.get(at + 1) {
        Some(TokenTree::Ident(name)) => Some(name.clone()),
        _ => None,
    }
}

/// Returns whether a function has a `->` before its body.
fn returns(signature: &[TokenTree]) -> bool {
    let is = |token: &TokenTree, sign| matches!(token, TokenTree::Punct(found) if found.as_char() == sign);
    signature.windows(2).any(|pair| is(&pair[0], '-') && is(&pair[1], '>'))
}

fn parse(text: &str) -> TokenStream {
    text.parse().expect("this is Rust")
}

fn error(message: &str) -> TokenStream {
    parse(&format!("::core::compile_error!({message:?});"))
}
