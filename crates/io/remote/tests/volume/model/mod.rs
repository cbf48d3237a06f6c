//! Explores all interleavings of the bulk object protocol (`docs/design/volumes.md`). Each rule of the protocol is
//! also changed in turn, and the model finds the fault that the rule prevents.

mod protocol;
mod steps;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};

use protocol::{BulkProtocol, ChangedRule, MISSING, REPLACED, REPORTED};

/// Limits of an exploration: openings, writes, rounds of the collector, and faults.
type Limits = (u8, u8, u8, u8);

/// Limits of an exploration and its number of different states. `docs/design/volumes.md` has the same table.
const EXPLORED: [(Limits, usize); 8] = [
    ((2, 2, 1, 0), 26_159),
    ((3, 1, 2, 0), 12_406),
    ((2, 2, 0, 1), 215_872),
    ((2, 1, 1, 2), 186_052),
    ((2, 2, 2, 0), 51_472),
    ((3, 2, 1, 0), 89_674),
    ((2, 3, 1, 0), 280_751),
    ((2, 1, 1, 3), 332_778),
];

fn protocol(limits: Limits, changed: Option<ChangedRule>) -> BulkProtocol {
    let (openings, writes, rounds, faults) = limits;
    BulkProtocol { openings, writes, rounds, faults, changed }
}

#[test]
fn bulk_objects_lose_no_synced_write() {
    let explored = &EXPLORED[..testkit::effort(2, 4, EXPLORED.len())];
    for &(limits, states) in explored {
        let checker = protocol(limits, None).checker().spawn_bfs().join();
        for property in checker.model().properties() {
            if property.expectation.discovery_is_failure() {
                checker.assert_no_discovery(property.name);
            }
        }
        assert_eq!(checker.unique_state_count(), states, "{limits:?}");
    }
}

/// The exploration contains the situations that the protocol is for.
#[test]
fn bulk_objects_are_removed_shared_and_left_by_fenced_writers() {
    let checker = protocol(EXPLORED[0].0, None).checker().spawn_bfs().join();
    checker.assert_properties();
}

/// Changes one rule, and asserts that the model finds a violation of `property`.
fn fails(changed: ChangedRule, property: &'static str) {
    let protocol = protocol(EXPLORED[0].0, Some(changed));
    let end = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = protocol.checker().finish_when(end).spawn_bfs().join();
    let path = checker.discovery(property);
    assert!(path.is_some(), "{changed:?}: {property} holds");
}

#[test]
fn a_fenced_writer_replaces_data_if_ranges_name_objects() {
    fails(ChangedRule::NamesByRange, REPLACED);
}

#[test]
fn a_collector_of_the_current_epoch_removes_data() {
    fails(ChangedRule::CollectsCurrentEpoch, MISSING);
}

#[test]
fn a_collector_with_an_epoch_newer_than_its_references_removes_data() {
    fails(ChangedRule::ReferencesFirst, MISSING);
    fails(ChangedRule::EpochOfManifest, MISSING);
    // The order alone does not matter if epoch and references are of one state.
    let lists_last = protocol(EXPLORED[0].0, Some(ChangedRule::ListsLast));
    lists_last.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_collector_that_misses_a_checkpoint_removes_data() {
    fails(ChangedRule::CheckpointsFirst, MISSING);
    fails(ChangedRule::SkipsRemoved, MISSING);
    fails(ChangedRule::ReleasesPin, MISSING);
}

#[test]
fn a_writer_that_ignores_the_tables_removes_data() {
    fails(ChangedRule::IgnoresTables, MISSING);
}

#[test]
fn a_fenced_writer_reports_success_if_it_trusts_existing_log_objects() {
    fails(ChangedRule::TrustsExisting, REPORTED);
}
