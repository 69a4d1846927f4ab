"""What a new user met in version 0.1.0, row by row, and the tests that would fail if it came back.

Somebody tried the first version as a newcomer would. Each row here stands for one of the observations of sections 1 to 3
and 6, and for one of the twenty defects that were ranked. The number says which: `1.3` is the third observation of
section 1, `rank 7` the seventh defect. A row names tests, or the reason why the behaviour stays as it is.
"""

# ruff: noqa: E501 - one line per row
from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
FIRST = "cli/test_first_use.py::"
READ = "data/test_unusual_inputs.py::test_it_is_read_as_it_was_meant"
REFUSED = "data/test_unusual_inputs.py::test_it_is_refused_in_one_message"
FRAMES = "data/test_unusual_inputs.py::test_frames_of_every_kind_are_read"
DOOR = "workflows/test_front_door.py::"
WHEEL = "test_wheel.py::test_the_wheel_works_after_a_plain_install"
BLOCKS = "test_docs.py::test_code_blocks_run"
FIGURES = "workflows/test_possible_figures.py::"


class Kept(NamedTuple):
    """Why something stays as it is."""

    reason: str


ROWS: dict[str, tuple[str, ...] | Kept] = {
    # installation
    "1.1 size and packages of a clean installation": (WHEEL,),
    "1.2 importing is quick, and a misspelt name is answered": ("test_package.py::test_import_is_light", "test_package.py::test_unknown_names_are_refused"),
    "1.3 the command starts beside the newest typer": (WHEEL, "test_package.py::test_every_import_is_declared"),
    "1.4 a wrong flag ends with 2, whichever click typer uses": (WHEEL, "cli/test_errors.py::test_wrong_usage_ends_with_two"),
    "1.5 the extra flower, whose typer is older": ("e2e/test_tutorial.py::test_the_page_works_as_printed", "cli/test_errors.py::test_wrong_usage_ends_with_two"),
    "1.6 an installation line in the README": ("test_docs.py::test_the_readme_begins_with_an_installation_and_a_command_that_needs_no_data",),
    "1.6 addresses in the metadata, in the bug message and of the README's links on PyPI": Kept("The project has no public address yet; an invented one would lead nowhere. SECURITY.md and the issue forms are in the repository."),
    "1.6 a documentation site and a notebook": ("test_site.py::test_the_site_is_whole", "test_notebooks.py::test_there_is_a_notebook"),
    "1.7 the flights name their extra before they begin": ("test_extras.py::test_the_flights_ask_for_their_data_before_they_begin",),
    "1.7 a command without its extra is no bug of ours": ("test_extras.py::test_the_command_line_says_what_to_install[certs]",),
    "1.7 Python without an extra": ("test_extras.py::test_python_says_what_to_install[sklearn]", "test_extras.py::test_python_says_what_to_install[cryptography]"),
    "1.8 the commands page lists what --help lists": ("test_docs.py::test_every_command_is_on_its_page",),
    "1.9 required flags, the help of files": (f"{FIRST}test_help_marks_what_is_required",),
    "1.9 shell completion": (f"{FIRST}test_a_shell_completes_words",),
    "1.9 a suggestion is made once": (f"{FIRST}test_a_misspelt_word_is_answered_by_the_right_one",),
    # README and pages as printed
    "2.1 README in an empty directory": (WHEEL, BLOCKS),
    "2.1 tutorials and how-to pages in an empty directory": (BLOCKS,),
    "2.2 pages that spend one budget in one folder": ("test_docs.py::test_no_two_pages_share_a_ledger",),
    "2.3 three sites over a network": ("e2e/test_tutorial.py::test_the_page_works_as_printed",),
    "2.3 a job writes artifact.json": Kept("A job may fit a calibrator, measure, or train a network, so its file is called what all of them are; calibrate writes a calibrator only."),
    "2.3 a job measures on the records that it fitted": Kept("Holding records out at sites would be another protocol: each site would have to keep its split between jobs. The page says on which records it measured, which workflows/test_sites.py checks."),
    "2.4 a first example in which noise looks like harm": ("cli/test_calibrate.py::test_verdicts_come_from_the_paired_change_and_the_headline_agrees", "cli/test_calibrate.py::test_what_does_not_change_is_unchanged_whatever_the_noise", f"{DOOR}test_a_classifier_that_is_left_as_it_is_says_so_and_nothing_changed"),
    # own data
    "3.1 truths, floats, byte order marks, tabs, gzip, missing numbers, accents": (f"{READ}[TRUE and FALSE]", f"{READ}[1.0 and 0.0]", f"{READ}[a byte order mark]", f"{READ}[tabs in a csv]", f"{READ}[gzip without a name]", f"{READ}[missing cells]", f"{READ}[Windows-1252]", "test_io.py::test_every_format_reads_as_the_frame_itself"),
    "3.2 labels that are words": (f"{READ}[yes and no]", f"{READ}[no and yes]", f"{REFUSED}[words as labels]"),
    "3.3 columns and labels by class name": (f"{READ}[columns by class]", f"{READ}[columns by class, ordered]", "cli/test_apply.py::test_class_names_travel_from_the_labels_to_the_calibrated_columns"),
    "3.4 percentages": (f"{READ}[percentages]", f"{REFUSED}[percentages]", "cli/test_apply.py::test_percentages_and_log_odds_are_applied"),
    "3.5 one column of log-odds": (f"{READ}[log-odds]", f"{REFUSED}[log-odds as a score]", "data/test_unusual_inputs.py::test_one_column_of_log_odds_is_two_classes"),
    "3.6 semicolons and decimal commas": (f"{READ}[semicolons and decimal commas]", f"{READ}[semicolons]"),
    "3.7 Latin-1": (f"{READ}[Windows-1252]", f"{READ}[Latin-1 far down]"),
    "3.8 workbooks": (f"{READ}[a workbook]", "test_extras.py::test_the_command_line_says_what_to_install[workbook]"),
    "3.8 feather and JSON lines": Kept("Refused by name with the list of what is read (data/test_unusual_inputs.py, JSON): a frame that pandas or Polars reads from them is taken as it is."),
    "3.9 labels 1 and 2, -1 and 1": (f"{READ}[1 and 2]", f"{READ}[-1 and 1]", f"{REFUSED}[labels 1 and 2]"),
    "3.10 a record without a site": (f"{READ}[a missing site]",),
    "3.11 people with several records": (f"{READ}[people with several records]", f"{READ}[people counted once]", f"{FIRST}test_notes_speak_of_flags_too"),
    "3.12 a forgotten --site in an evaluation": (f"{REFUSED}[no site]", f"{FIRST}test_nothing_shows_single_sites_by_default"),
    "3.13 a forgotten --site under noise": (f"{REFUSED}[no site]", f"{FIRST}test_messages_speak_of_flags"),
    "3.14 upper-case columns": ("test_io_bad_input.py::test_the_message_names_the_thing[missing label]", f"{FIRST}test_messages_speak_of_flags"),
    "3.15 a method by half of its name": (f"{FIRST}test_a_misspelt_word_is_answered_by_the_right_one",),
    "3.16 a missing clip": (f"{FIRST}test_a_missing_clip_is_a_flag_too",),
    "3.17 an epsilon for a privacy model without one": (f"{FIRST}test_messages_speak_of_flags",),
    "3.18 a changed file under the same name": ("cli/test_resume.py::test_another_command_or_other_data_is_another_run",),
    "3.18 a second release that no ledger counts": (f"{FIRST}test_a_release_that_no_ledger_counts_is_noted",),
    "3.19 the same file under another name": ("test_stability.py::test_a_hold_out_follows_from_the_key_and_not_from_a_file_name", "cli/test_seeds.py::test_a_seed_of_splits_repeats_the_split_and_not_the_noise"),
    "3.20 frames of every kind": (f"{FRAMES}[pandas]", f"{FRAMES}[Polars]", f"{FRAMES}[list of frames]", "data/test_unusual_inputs.py::test_anything_else_is_refused_without_showing_records", BLOCKS),
    "3.21 scikit-learn: a random state and the noise": ("test_sklearn.py::test_a_random_state_leaves_the_noise_alone", "test_sklearn.py::test_simulated_noise_is_asked_for_and_warned_of"),
    "3.21 scikit-learn: records as clients": ("test_sklearn.py::test_records_as_clients_are_warned_of",),
    "3.21 scikit-learn: a page, and Open as the default": Kept("It has a page of its own. Fitting an estimator holds all records in one process and sends nothing, which is what Open says; secure sums refuse the ten records of scikit-learn's own checks."),
    "3.22 tensors": (f"{FRAMES}[torch]", f"{FRAMES}[bfloat16]", "data/test_unusual_inputs.py::test_a_matrix_of_tensors_is_one_column_per_class", "data/test_unusual_inputs.py::test_a_calibrator_takes_columns_of_every_kind"),
    # Python
    "6.1 calibrators are functions, and files carry the privacy statement": ("data/test_unusual_inputs.py::test_a_calibrator_takes_columns_of_every_kind", "cli/test_calibrate.py::test_the_document_and_the_files_under_every_model"),
    "6.2 no repr prints records, and notebooks get HTML": (f"{DOOR}test_no_repr_prints_records", f"{DOOR}test_reprs_of_public_things_are_short", "workflows/test_same_numbers.py::test_an_evaluation_has_one_set_of_numbers"),
    "6.3 measured values are numbers": (f"{DOOR}test_a_measured_value_is_a_number",),
    "6.3 frames, dicts, plots, summaries and reports": (f"{DOOR}test_a_result_shows_itself", "workflows/test_notebook.py::test_a_calibration_equals_the_commands", "workflows/test_compare_monitor_plan.py::test_a_plan_is_that_of_the_command"),
    "6.4 run takes a federation and refuses a class": (f"{DOOR}test_run_takes_a_federation_or_a_frame", f"{DOOR}test_a_wrong_argument_is_told[a class of method]"),
    "6.5 measuring after a calibrator, with the names of sites": ("workflows/test_notebook.py::test_a_calibrator_is_applied_and_measured", "cli/test_calibrate.py::test_the_report_shows_single_sites_where_nothing_is_hidden"),
    "6.6 plan counts records, and the top has few names": ("cli/test_plan.py::test_solves_for_records_and_draws_the_curve", "test_package.py::test_public_names_are_sorted_and_few"),
    "6.6 artifact, over, cwece, CBPE, ECET, AccT, NLLT": Kept("Methods have the names of their papers, and names in files are a file format. docs/reference/vocabulary.md and names.md explain each; two classes no longer print cwece beside ece."),
    "6.7 docstrings with parameters and examples": ("test_doctests.py::test_names_at_the_top_have_parameters_and_an_example", "test_doctests.py::test_examples_run"),
    # the twenty defects
    "rank 1 the command does not start": (WHEEL,),
    "rank 2 small cells in reports": ("workflows/test_small_cells.py::test_no_file_of_a_command_holds_a_small_count", "report/test_any_result.py::test_a_small_cell_would_be_found"),
    "rank 3 a random state voids the noise": ("test_sklearn.py::test_a_random_state_leaves_the_noise_alone",),
    "rank 4 reading a frame": (f"{FRAMES}[pandas]",),
    "rank 5 a first minute": (WHEEL, "demo/test_hearts.py::test_the_demo_runs_the_command_that_it_shows", "test_docs.py::test_the_readme_begins_with_an_installation_and_a_command_that_needs_no_data"),
    "rank 6 one command, one set of numbers": ("workflows/test_same_numbers.py::test_an_evaluation_has_one_set_of_numbers", "workflows/test_same_numbers.py::test_a_calibration_has_one_set_of_numbers", "cli/test_evaluate_curves.py::test_writing_a_report_changes_nothing_that_is_asked"),
    "rank 7 the Brier score of two classes": ("methods/test_performance.py::test_functions_of_exact_sums_equal_scikit_learn", "metrics/test_losses.py::test_the_binary_brier_score_is_half_of_both_classes"),
    "rank 8 paired verdicts and a headline that agrees": ("cli/test_calibrate.py::test_verdicts_come_from_the_paired_change_and_the_headline_agrees", "methods/test_performance.py::test_a_paired_change_equals_that_of_pooled_records"),
    "rank 9 labels that are words": (f"{READ}[yes and no]",),
    "rank 10 impossible figures under noise": (f"{FIGURES}test_noise_moves_no_figure_out_of_its_range", f"{FIGURES}test_a_mean_prediction_over_time_is_a_probability_and_windows_are_dates"),
    "rank 11 semicolons and Latin-1": (f"{READ}[semicolons and decimal commas]", f"{READ}[Latin-1 far down]"),
    "rank 12 advice for log-odds and percentages": (f"{REFUSED}[log-odds as a score]", f"{REFUSED}[percentages]"),
    "rank 13 Open and one site by default": (f"{FIRST}test_nothing_shows_single_sites_by_default", f"{REFUSED}[no site]"),
    "rank 14 a hold-out that can be repeated": ("cli/test_seeds.py::test_a_seed_of_splits_repeats_the_split_and_not_the_noise", "test_stability.py::test_a_hold_out_follows_from_the_key_and_not_from_a_file_name"),
    "rank 15 the level of intervals": (f"{FIRST}test_tables_state_the_level_of_their_intervals",),
    "rank 15 date, classifier and held-out records in a report": (f"{FIGURES}test_a_report_states_its_date_classifier_period_level_and_held_out_records",),
    "rank 16 Platt scaling by exact sums": ("methods/test_platt.py::test_exact_sums_give_the_maximum_likelihood_fit_of_statsmodels",),
    "rank 16 log loss by exact sums": ("methods/test_performance.py::test_functions_of_exact_sums_equal_scikit_learn",),
    "rank 16 what ECE means": ("metrics/test_table.py::test_every_metric_is_defined_in_the_docs", "cli/test_evaluate.py::test_the_metrics_are_those_of_the_pooled_records"),
    "rank 17 slope, intercept and O:E are shown": ("metrics/test_table.py::test_an_evaluation_shows_the_metrics_of_the_table_by_their_titles", "workflows/test_same_numbers.py::test_an_evaluation_has_one_set_of_numbers"),
    "rank 18 the page of a comparison": ("browser/test_reports.py::test_a_report_opens_fits_and_prints", "workflows/test_compare_monitor_plan.py::test_a_page_of_a_comparison_says_what_its_lines_are", "cli/test_compare.py::test_methods_stand_side_by_side_and_say_that_it_is_a_simulation"),
    "rank 19 results in Python show themselves": (f"{DOOR}test_a_result_shows_itself", f"{DOOR}test_a_measured_value_is_a_number"),
    "rank 20 model, client and unit": ("test_language.py::test_a_model_is_the_classifier", "test_docs.py::test_ambiguous_words_are_in_the_vocabulary"),
    "rank 20 missing extras are no bug": ("test_extras.py::test_the_command_line_says_what_to_install",),
    "rank 20 flags instead of Python": (f"{FIRST}test_messages_speak_of_flags", f"{FIRST}test_a_missing_clip_is_a_flag_too"),
    "rank 20 a default method": (f"{FIRST}test_calibrate_needs_files_and_a_folder_only",),
    "rank 20 windows are dates": (f"{FIGURES}test_a_mean_prediction_over_time_is_a_probability_and_windows_are_dates",),
}  # fmt: skip


@cache
def names_in(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """The tests of a file, and every text in it: cases of a test are named by texts."""
    tree = list(ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8"))))
    functions = frozenset(node.name for node in tree if isinstance(node, ast.FunctionDef))
    return functions, frozenset(
        node.value for node in tree if isinstance(node, ast.Constant) if type(node.value) is str
    )


def missing(test: str) -> str:
    """What a test's address lacks; nothing if the test and its case are there."""
    file, _, name = test.partition("::")
    name, _, case = name.rstrip("]").partition("[")
    if not (TESTS / file).is_file():
        return "no such file"
    functions, texts = names_in(file)
    if name not in functions or not name.startswith("test_"):
        return "no such test"
    return "no such case" if case and case not in texts else ""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_tests_that_exist_or_a_reason(row: str) -> None:
    told = ROWS[row]
    if isinstance(told, Kept):
        assert len(told.reason) > 40 and told.reason.endswith(".")
    else:
        assert told and not {test: why for test in told if (why := missing(test))}


def test_what_is_not_there_is_found() -> None:
    assert missing("test_nowhere.py::test_nothing") == "no such file"
    assert missing("test_wheel.py::test_nothing") == "no such test"
    assert missing(f"{READ}[no such case]") == "no such case"


OBSERVED = {"1": 9, "2": 4, "3": 19 + 3, "6": 7}  # 3: the rows of a table, then frames, scikit-learn and tensors


def numbers(section: str) -> set[int]:
    return {int(row.partition(" ")[0].partition(".")[2]) for row in ROWS if row.startswith(f"{section}.")}


@pytest.mark.parametrize("section", OBSERVED)
def test_no_observation_of_a_section_is_left_out(section: str) -> None:
    assert numbers(section) == set(range(1, OBSERVED[section] + 1))


def test_no_ranked_defect_is_left_out() -> None:
    assert {int(row.split()[1]) for row in ROWS if row.startswith("rank ")} == set(range(1, 21))


@pytest.mark.shared
def test_the_numbers_are_those_of_the_finding(shared: Path) -> None:
    finding = shared.parent / "findings" / "first-use.md"
    if not finding.is_file():
        pytest.skip("the finding is not beside the data in ../shared")
    text = finding.read_text(encoding="utf-8")
    sections = {part[0]: part for part in re.split(r"^## (?=\d)", text, flags=re.M)[1:]}
    found = {name: len(re.findall(r"^- ", sections[name], re.M)) for name in ("1", "2", "6")}
    assert found == {name: OBSERVED[name] for name in found}
    assert len(re.findall(r"^\| ", sections["3"], re.M)) - 1 == OBSERVED["3"] - 3, "a row per line below the heading"
