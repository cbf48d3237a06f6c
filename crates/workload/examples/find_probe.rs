#[path = "../tests/common/memory.rs"]
mod common;
use std::sync::atomic::AtomicBool;
use workload::contestant::Session;
use workload::jobs::{Context, Find, FindTree, Job};
#[global_allocator]
static A: alloc_tracker::Allocator<std::alloc::System> = alloc_tracker::Allocator::system();
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let tree = match args[2].parse::<u64>() {
        Ok(files) => FindTree::Generated { files },
        Err(_) if args[2] == "-" => FindTree::Existing,
        Err(_) => FindTree::Like(args[2].clone().into()),
    };
    let find = Find { tree, walks: args[3].parse().unwrap() };
    let mut session: Box<dyn Session> = match &args[1][..] {
        "ext4" => Box::new(common::Memory::ext4(4 << 30)),
        "xfs" => Box::new(common::Memory::xfs(4 << 30)),
        "model" => Box::new(common::Memory::model()),
        dir => Box::new(common::Directory::new(dir.as_ref())),
    };
    let stop = AtomicBool::new(false);
    let case = find.cases()[0];
    println!("{case:?}");
    for step in find.run(&case, &mut *session, &Context::new(1, &stop, &|_| ())).unwrap() {
        print!("{} {:?}:", step.name, step.cost);
        for e in step.extras {
            print!(" {} {:.4} {};", e.name, e.value, e.unit);
        }
        println!();
    }
}
