//! Parallel execution.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Context;
use crate::cost::{Cost, Stopwatch};
use crate::error::{Error, Result};

/// Executes `work` for every item, each in its own thread; a single one in this thread. Returns the results and the
/// cost, with the processor time of the work only. After an error the other threads end soon.
///
/// # Errors
/// Returns the error of the first item that failed by itself.
pub(super) fn on_all<I: Sync, R: Send>(
    items: &[I],
    context: &Context<'_>,
    work: impl Fn(&I, &Context<'_>) -> Result<R> + Sync,
) -> Result<(Vec<R>, Cost)> {
    if let [item] = items {
        return Cost::of(|| Ok(vec![work(item, context)?]));
    }
    let stop = AtomicBool::new(false);
    let progress = |operations| {
        if context.advance(operations).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let one = |item| {
        let result = Cost::of(|| work(item, &Context::new(context.seed, &stop, &progress)));
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        result
    };
    let watch = Stopwatch::start();
    let results: Vec<_> = thread::scope(|scope| {
        let start = |item| {
            thread::Builder::new().spawn_scoped(scope, {
                let one = &one;
                move || one(item)
            })
        };
        let threads: Vec<_> = items.iter().map(start).collect();
        if threads.iter().any(|started| started.is_err()) {
            stop.store(true, Ordering::Relaxed);
        }
        let result = |started: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match started {
            Ok(started) => started.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(error) => Err(Error::host("start a thread", error)),
        };
        threads.into_iter().map(result).collect()
    });
    let wall = watch.stop().wall;
    let (mut values, mut costs) = (Vec::with_capacity(items.len()), Vec::new());
    let mut outcome = Ok(());
    for result in results {
        match result {
            Ok((value, cost)) => {
                values.push(value);
                costs.push(cost);
            }
            // The threads that were cancelled have no error of their own.
            Err(Error::Interrupted) if outcome.is_err() => {}
            Err(error) if matches!(outcome, Ok(()) | Err(Error::Interrupted)) => {
                outcome = Err(error);
            }
            Err(_) => {}
        }
    }
    outcome.map(|()| (values, Cost::of_threads(wall, costs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_ends_the_others_and_is_the_one_that_is_told() {
        let stop = AtomicBool::new(false);
        let context = Context::new(1, &stop, &|_| ());
        let result = on_all(&[0, 1, 2], &context, |&item, context| {
            if item == 1 {
                return Err(Error::Wrong("it is".into()));
            }
            while context.advance(0).is_ok() {
                thread::yield_now();
            }
            Err::<(), _>(Error::Interrupted)
        });
        assert!(matches!(result, Err(Error::Wrong(_))), "{result:?}");
        assert!(!stop.load(Ordering::Relaxed));
        let doubled = on_all(&[3, 4], &context, |item, _| Ok(item * 2));
        assert_eq!(doubled.unwrap().0, [6, 8]);
        stop.store(true, Ordering::Relaxed);
        let result = on_all(&[0, 1], &context, |_, context| context.advance(1));
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    }
}
