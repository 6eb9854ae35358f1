"""Every seeded fault is caught: the guard named here fails with the fault in it, and passes without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerosum.audit.mistakes import FAULTS, seeded
from zerosum.audit.mistakes.fault import Edit, Fault
from zerosum.errors import BadParameter

ROOT = Path(__file__).parents[2]
CHARGED = "coordinator/test_conduct.py::test_every_scheme_runs_charges_every_ledger_and_comes_near_the_truth"
AUDIT = "audit/test_audit.py::test_every_scheme_reaches_its_claim_and_no_more"
SENSITIVITY = "statistics/test_sensitivity.py::test_no_neighbour_is_farther_than_the_sensitivity_and_one_is_as_far"

ROUNDED = "statistics/test_rounded_scatter.py::test"
MOMENTS = "algorithms/test_mixture.py::test_the_bounds_of_moments_are_reached_within_two_percent"
SPREADS = "algorithms/test_mixture.py::test_spreads_and_counts_cost_nothing"
DOCUMENTS = "statistics/test_topic_statistics.py::test_documents_are_as_far_apart_as_is_claimed_and_no_farther"
BEYOND = "site/test_site.py::test_a_sum_beyond_its_bound_is_scaled_to_it_and_nobody_outside_sees_that"
QUIET = "site/test_held_budget.py::test_a_study_that_was_quiet_too_long_takes_nothing_that_others_were_promised_since"
WITHDRAWN = "site/test_service_keys.py::test_a_withdrawn_key_is_refused_at_once_in_the_middle_of_a_study"
FORMER = "site/test_service_keys.py::test_a_former_key_serves_the_studies_that_pin_it_until_it_is_withdrawn"
TOLD = "site/test_disclosures.py::test"
DESK = "study/test_site_schema.py::test"
GUARDS = {
    "repeated-draws": "test_guards.py::test_no_draw_serves_two_numbers",
    "repeated-halves": f"{AUDIT}[4-1-secure-sum-100.0]",
    "one-key": "noise/test_sampler.py::test_every_system_sampler_has_a_stream_of_its_own",
    "one-key-a-site": f"{AUDIT}[4-1-secure-sum-100.0]",
    "one-key-a-round": f"{AUDIT}[4-1-local-100.0]",
    "correlated-rounds": f"{AUDIT}[4-1-secure-sum-100.0]",
    "less-noise": "test_guards.py::test_a_message_has_as_much_noise_as_its_law_says",
    "silent-places": f"{AUDIT}[4-1-secure-sum-100.0]",
    "half-noise-first": f"{AUDIT}[4-1-secure-sum-100.0]",
    "even-steps": f"{AUDIT}[4-1-secure-sum-100.0]",
    "short-key": "test_guards.py::test_every_byte_of_a_key_is_the_systems",
    "seed-without-round": "test_guards.py::test_a_seed_gives_every_round_noise_of_its_own",
    "forked-noise": "noise/test_sampler.py::test_a_forked_child_does_not_repeat_its_parents_noise",
    "vector-sum-sensitivity": SENSITIVITY,
    "histogram-sensitivity": SENSITIVITY,
    "second-moment-sensitivity": SENSITIVITY,
    "cluster-sums-sensitivity": SENSITIVITY,
    "scatter-sensitivity": SENSITIVITY,
    "product-of-one-column": SENSITIVITY,
    "rounded-scatter-sensitivity": f"{ROUNDED}_no_record_is_longer_than_claimed_and_no_neighbour_farther",
    "unmixing-score-sensitivity": SENSITIVITY,
    "band-scatter-sensitivity": SENSITIVITY,
    "user-sensitivity": SENSITIVITY,
    "augmented-scatter-sensitivity": MOMENTS,
    "third-moment-sensitivity": MOMENTS,
    "mixture-sums-sensitivity": SPREADS,
    "documents-sensitivity": DOCUMENTS,
    "uncounted-colluders": "kernel/test_view.py::test_the_worst_coalition_is_the_worst_of_all",
    "uncounted-dropouts": "kernel/test_view.py::test_dropouts_count_as_colluders",
    "extra-delta": "kernel/test_grid.py::test_the_whole_delta_is_what_was_asked_for",
    "whole-budget": "test_guards.py::test_several_releases_share_one_budget",
    "summation-slack": "test_guards.py::test_both_roundings_are_in_what_a_unit_moves",
    "rounding-slack": "test_guards.py::test_both_roundings_are_in_what_a_unit_moves",
    "scale-in-divisor": "test_guards.py::test_a_scaled_site_weighs_less_in_the_divisor_too",
    "composition": "site/test_ledger.py::test_totals_are_the_accountants",
    "unclipped-row": "test_guards.py::test_every_row_is_clipped_wherever_it_stands",
    "crowd-clip": "compute/backends/test_exact.py::test_one_extreme_row_leaves_the_bits_of_all_others",
    "crowd-clusters": "statistics/test_coupling.py::test_whole_blocks_of_clusters_and_projections",
    "crowd-projection": "statistics/test_coupling.py::test_whole_blocks_of_clusters_and_projections",
    "crowd-rounding": f"{ROUNDED}_a_record_contributes_the_same_alone_and_among_others",
    "rounded-length": f"{ROUNDED}_rows_that_rounding_makes_too_long_are_rounded_towards_zero",
    "refusal-by-data": "site/test_site.py::test_a_unit_that_fails_counts_as_one_of_zeros_and_the_others_as_they_are",
    "rows-for-people": SENSITIVITY,
    "observed-sums-sensitivity": SENSITIVITY,
    "observed-clip": "statistics/test_sensitivity.py::test_the_weight_of_observed_counts_is_as_large_as_it_may_be",
    "heavy-weight": "statistics/test_regression_statistics.py::test_a_weight_beyond_its_range_is_one_or_nothing",
    "weight-of-nothing": "statistics/test_regression_statistics.py::test_a_weight_lets_a_unit_be_nothing",
    "tensor-by-rows": MOMENTS,
    "spread-beyond-radius": SPREADS,
    "triple-norm": "statistics/test_topic_statistics.py::test_norms_from_power_sums_are_those_of_the_arrays",
    "whole-topics": DOCUMENTS,
    "documents-for-people": "statistics/test_topic_statistics.py"
    "::test_a_person_with_many_documents_takes_no_more_memory_than_many_people",
    "histogram-twice": SENSITIVITY,
    "ledger-after-masking": "test_guards.py::test_what_the_ledger_did_not_take_is_not_there_for_a_second_try",
    "half-the-spend": CHARGED,
    "no-distance": "test_guards.py::test_the_ledger_knows_how_far_the_noise_is_from_a_normal",
    "answered-again": "test_guards.py::test_a_site_prepares_a_round_once",
    "first-release-checked": "test_guards.py::test_a_site_agrees_to_what_all_releases_cost_together",
    "record-study": "test_guards.py::test_a_study_of_records_is_not_for_people_with_several_rows",
    "foreign-sensitivity": "test_guards.py::test_a_request_that_is_more_sensitive_than_planned_is_refused",
    "one-step-reserved": "kernel/test_phases.py::test_a_phase_is_reserved_once_and_drawn_down_step_by_step",
    "same-sample": "kernel/test_phases.py::test_samples_differ_from_step_to_step_and_have_the_planned_rate",
    "sampled-loss": "kernel/test_phases.py::test_a_plan_with_phases_costs_what_was_asked_for",
    "attempts-unpaid": "kernel/test_attempts.py::test_no_way_to_use_the_attempts_costs_more_than_was_planned[plain-2]",
    "attempt-for-nothing": "site/test_resume.py::test_attempts_are_charged_fresh_and_no_more_than_planned",
    "finished-round-again": "site/test_resume.py::test_a_finished_round_is_not_answered_again",
    "resumed-under-another-plan": "site/test_resume.py::test_a_reserved_phase_is_not_continued_under_another_plan",
    "sample-again": "site/test_resume.py::test_another_attempt_has_another_sample",
    "keys-again": "site/test_resume.py::test_every_attempt_has_keys_of_its_own",
    "published-unasked": "coordinator/test_publication.py::test_a_policy_must_allow_it",
    "published-for-a-sum": "coordinator/test_publication.py::test_a_sum_that_was_planned_is_not_published_instead",
    "nothing-held": "site/test_held_budget.py::test_consent_holds_budget_back_until_the_study_is_through",
    "held-unasked": QUIET,
    "withdrawn-key": WITHDRAWN,
    "withdrawn-in-the-middle": WITHDRAWN,
    "former-key-for-ever": FORMER,
    "one-noise-for-all-records": "audit/test_audit.py::test_a_publication_reaches_its_claim_and_no_more[local]",
    "published-order": "coordinator/test_publication.py::test_the_order_of_the_data_is_not_published",
    "published-class": "audit/test_audit.py::test_a_publication_reaches_its_claim_and_no_more[local]",
    "beyond-its-bound": BEYOND,
    "no-cap": "site/test_ledger.py::test_the_cap_may_be_reached_but_not_passed",
    "counter-stands-still": "site/test_ledger_damage.py::test_an_older_copy_is_refused",
    "not-on-disk": "site/test_ledger.py::test_a_commit_is_on_the_disk_when_it_returns",
    "broken-chain": "site/test_ledger_damage.py::test_a_changed_history_is_refused",
    "rows-per-person": "site/test_ledger.py::test_a_record_counts_towards_a_person_by_their_rows",
    "largest-distance": "test_guards.py::test_distances_of_several_releases_add_up",
    "unpinned-site": "test_guards.py::test_a_roster_wants_every_identity_pinned",
    "seed-on-private-data": "site/test_policy.py::test_private_data_are_not_for_reproductions",
    "too-few-units": "site/test_policy.py::test_few_units_are_refused",
    "shared-ledger": "test_guards.py::test_two_sites_of_one_study_cannot_charge_one_ledger",
    "threshold": "secagg/test_graph.py::test_thresholds",
    "sparse-threshold": "secagg/test_graph.py::test_thresholds",
    "signatures": "secagg/test_secagg_malicious.py::test_no_split_of_two_lists_opens_both",
    "shamir": "secagg/test_secagg_vectors.py::test_fewer_shares_say_nothing",
    "short-list": "secagg/test_secagg_malicious.py::test_lists_a_site_refuses",
    "second-list": "secagg/test_secagg_malicious.py::test_a_site_that_signed_one_list_does_not_open_another",
    "unsigned": "secagg/test_secagg_messages.py::test_every_message_in_every_bad_form",
    "unsigned-list": "secagg/test_secagg_malicious.py::test_warrants_that_do_not_hold",
    "copied-key": "secagg/test_secagg_malicious.py::test_a_copied_key_is_refused",
    "mask-again": "secagg/test_secagg_view.py::test_no_key_serves_twice",
    "mask-in-blocks": "secagg/test_secagg_vectors.py::test_a_mask_runs_on_over_blocks_and_never_repeats",
    "mask-in-parts": "secagg/test_secagg_vectors.py::test_a_mask_runs_on_over_blocks_and_never_repeats",
    "mask-without-context": "secagg/test_secagg_view.py::test_sites_that_were_asked_different_things_do_not_cancel",
    "undeclared-code-refuses": f"{TOLD}_code_outside_the_declared_ones_is_answered_like_any_other",
    "count-under-add-remove": f"{TOLD}_consent_under_add_remove_has_no_number_of_units",
    "attempt-at-half-rate": f"{TOLD}_attempt_of_a_sampled_phase_is_charged_at_the_planned_rate",
    "endless-reservation": "site/test_ledger_phases.py::test_a_phase_is_charged_once_and_drawn_down",
    "cell-refuses": f"{DESK}_answer_to_any_categories_tokens_rules_and_levels_is_the_same_for_neighbours",
    "level-refuses": f"{DESK}_answer_to_any_categories_tokens_rules_and_levels_is_the_same_for_neighbours",
    "missing-value-refuses": "study/test_missing_study.py"
    "::test_site_answer_with_missing_values_is_the_same_for_every_rule",
    "label-refuses": f"{DESK}_label_for_a_category_that_no_plan_names_is_skipped",
    "moved-and-dropped": "data/test_imaging.py::test_person_without_still_volumes_stays_as_a_unit_of_zeros",
    "unselected-and-dropped": "data/test_bids.py::test_person_without_a_selected_run_stays_as_a_unit_of_zeros",
    "run-refuses": f"{DESK}_run_that_does_not_fit_the_preprocessing_counts_as_zeros",
    "part-published": f"{TOLD}_publication_of_a_part_of_the_units_is_refused_before_any_data_are_used",
    "failure-for-nothing": f"{TOLD}_contribution_that_fails_is_charged_and_not_answered_again",
    "unconfirmed-schema": f"{DESK}_site_serves_only_by_a_confirmed_schema",
    "changed-data-served": f"{DESK}_data_changed_since_the_start_are_not_read",
}
# a fault that fails by itself proves nothing
UNFIT = ("NameError", "SyntaxError", "AttributeError", "a fault needs it once")


def test_every_fault_has_a_guard_and_fits_the_code() -> None:
    assert set(GUARDS) == set(FAULTS)
    for name in FAULTS:
        with seeded(name):
            pass


def test_a_fault_is_gone_after_its_block_and_one_that_does_not_fit_is_refused() -> None:
    from zerosum.kernel.accountant import compose

    with seeded("composition"):
        assert compose([3.0, 4.0]) == 4.0
    assert compose([3.0, 4.0]) == 5.0
    with pytest.raises(BadParameter, match="unknown fault"):
        seeded("none")
    edit = Edit("kernel.accountant:compose", "words that are not there", "")
    with pytest.raises(BadParameter, match="0 times"), Fault("stale", "", (edit,)).seeded():
        pass


def run_guards(nodes: list[str], fault: str | None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    environment |= {} if fault is None else {"ZEROSUM_MISTAKE": fault}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *nodes]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_guard_passes_without_a_fault() -> None:
    done = run_guards(sorted({f"tests/{guard}" for guard in GUARDS.values()}), None)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_caught(name: str) -> None:
    done = run_guards([f"tests/{GUARDS[name]}"], name)
    assert done.returncode == 1, f"{name} was not caught:\n{done.stdout}"
    assert not any(word in done.stdout for word in UNFIT), done.stdout


@pytest.mark.slow
def test_the_table_of_the_documentation_is_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"| `{f.name}` | {f.wrong} | `{f.where}` | `{GUARDS[f.name]}` |" for f in FAULTS.values()]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    assert [line for line in lines if line not in text] == []
