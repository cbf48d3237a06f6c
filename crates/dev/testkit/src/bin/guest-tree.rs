//! Prints the tree of a directory as text, in the guest.

fn main() {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("usage: guest-tree DIRECTORY");
        std::process::exit(2);
    };
    print!("{}", diskwright_testkit::guest::write_tree(&diskwright_testkit::Tree::of(root)));
}
