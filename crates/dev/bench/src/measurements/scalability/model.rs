//! Throughput of many processors, computed from the demand of one operation for each shared object.
//!
//! The model is a closed queueing network: each thread does its own work and visits shared objects, each of which
//! serves one thread at a time. Mean value analysis is exact for exponentially distributed times. Actual times vary
//! less, so the queues are rather overestimated.

/// Mean demands of one operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    /// Time without shared objects, in nanoseconds.
    pub(super) own_ns: f64,
    /// Time at each object that serves one thread at a time, in nanoseconds.
    pub(super) shared_ns: Vec<f64>,
}

/// Returns the operations of all threads per nanosecond, with a processor for each thread.
pub(super) fn throughput(demands: &Demands, threads: u32) -> f64 {
    let mut queues = vec![0.0; demands.shared_ns.len()];
    let mut rate = 0.0;
    for present in 1..=threads {
        let stays: Vec<f64> = demands
            .shared_ns
            .iter()
            .zip(&queues)
            .map(|(need, queue)| need * (1.0 + queue))
            .collect();
        rate = f64::from(present) / (demands.own_ns + stays.iter().sum::<f64>());
        for (queue, stay) in queues.iter_mut().zip(stays) {
            *queue = rate * stay;
        }
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} for {expected}");
    }

    #[test]
    fn threads_without_shared_objects_scale_linearly() {
        let demands = Demands { own_ns: 500.0, shared_ns: Vec::new() };
        assert_near(throughput(&demands, 1), 1.0 / 500.0);
        assert_near(throughput(&demands, 128), 128.0 / 500.0);
    }

    #[test]
    fn shared_objects_limit_all_threads_together() {
        let demands = Demands { own_ns: 900.0, shared_ns: vec![100.0] };
        assert_near(throughput(&demands, 1), 1.0 / 1000.0);
        let many = throughput(&demands, 1000);
        assert!(many < 1.000_001 / 100.0 && many > 0.999 / 100.0, "{many}");
    }

    #[test]
    fn two_threads_at_one_queue_wait_for_each_other_as_theory_says() {
        // With D = Z = 1 and two threads: R(1) = 1, X(1) = 1/2, Q = 1/2, R(2) = 3/2, X(2) = 2/(1 + 3/2).
        let demands = Demands { own_ns: 1.0, shared_ns: vec![1.0] };
        assert_near(throughput(&demands, 2), 0.8);
    }

    #[test]
    fn lock_stripes_scale_better_than_one_lock() {
        let whole = Demands { own_ns: 900.0, shared_ns: vec![100.0] };
        let parts = Demands { own_ns: 900.0, shared_ns: vec![100.0 / 64.0; 64] };
        assert!(throughput(&parts, 64) > 4.0 * throughput(&whole, 64));
    }
}
