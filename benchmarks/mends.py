"""Whether each mend of fairseq does something that a test sees: without it, its test has to fail.

    python benchmarks/mends.py [NAME...]

Each test runs twice, with all mends and with FAIRSEQ_RELPOS_MENDS=-NAME. The exit code is 1 if one fails with all of
them, or passes without its mend. All of them take half an hour on two cores.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]

#: name of a mend -> the test that fails without it
TESTS = {
    "switches": "test_mends.py::test_help_shows_the_flag",
    "numpy-compat": "test_compat.py::test_each_epoch_is_logged_once",
    "length-buckets": "test_compat.py::test_lengths_are_bucketed",
    "checkpoint-classes": "test_compat.py::test_from_pretrained_loads_a_checkpoint",
    "bf16-without-tpu": "test_compat.py::test_bf16_means_a_tpu_only_if_one_is_asked_for",
    "whole-word-masks": "test_mends.py::test_the_vocabulary_of_whole_words_is_found_beside_the_data",
    "permute-sentences": "tasks/test_denoising.py::test_the_share_of_sentences_is_no_whole_number",
    "blocked-ngrams": "models/test_decoding.py::test_other_searches_find_what_full_recomputation_finds",
    "bart-from-pretrained": "tasks/test_denoising.py::test_from_pretrained_chooses_the_bpe_of_a_bart",
    "launcher": "test_compat.py::test_torchrun_with_one_gpu_per_node_joins_the_ranks",
    "new-masks": "training/test_saving.py::test_loaders_of_their_own_draw_the_same_new_masks_in_every_epoch",
    "context-window": "models/test_language_model.py::test_eval_lm_gives_a_text_more_context",
    "same-noise": "tasks/test_denoising.py::test_the_noise_of_a_sample_depends_on_seed_epoch_and_sample_alone",
    "beams-of-a-search": "models/test_bart.py::test_a_batch_after_a_search_is_no_beam",
    "same-batches": "training/test_saving.py::"
    "test_a_translation_that_stopped_in_a_later_epoch_goes_on_with_the_same_batches",
    "every-batch-counts": "training/test_launching.py::"
    "test_the_last_update_of_an_epoch_counts_the_batches_that_there_are",
    "given-adam-settings": "training/test_torch_adamw.py::test_a_resume_takes_the_settings_of_the_command",
    "full-weights": "training/test_saving.py::test_half_precision_goes_on_from_the_weights_that_it_had",
    "unscale-once": "training/test_torch_adamw.py::test_gradients_are_divided_by_the_loss_scale_once",
    "loss-scaler": "training/test_saving.py::test_the_loss_scale_grows_as_if_the_run_had_not_stopped",
    "half-precision-on-cpus": "training/test_stopping.py::test_amp_on_a_cpu_computes_in_bfloat16",
    "patience": "training/test_saving.py::test_patience_goes_on",
    "no-more-updates": "training/test_saving.py::test_a_finished_run_makes_no_further_update",
    "nonfinite": "training/test_stopping.py::test_nan_names_update_rank_sentences_and_module",
    "join": "training/test_launching.py::test_ranks_that_do_not_come_are_named",
    "agreement": "training/test_launching.py::test_ranks_with_other_settings_are_named",
    "read-together": "training/test_launching.py::"
    "test_what_fails_on_one_rank_ends_the_others_in_one_line_that_names_it",
    "validate-on-ranks": "test_compat.py::test_validation_on_two_ranks_equals_one_rank",
    "whole-files": "training/test_saving.py::test_a_full_disk_is_named_and_leaves_what_was_there",
    "averaged-versions": "models/test_transformer.py::test_averaged_weights_keep_the_norm_after_the_last_layer",
    "last-whole-checkpoint": "training/test_saving.py::test_a_damaged_last_checkpoint_is_replaced_by_the_one_before",
    "checked-checkpoints": "test_compat.py::test_training_from_a_hostile_checkpoint_ends_in_one_line",
    "safe-archives": "checkpoints/test_archives.py::test_an_archive_writes_nothing_outside_its_folder_and_stays",
    "order-of-data": "training/test_saving.py::test_resuming_with_other_batches_in_an_epoch_is_refused",
    "other-adam": "training/test_torch_adamw.py::test_a_training_goes_on_with_the_other",
    "restarts": "training/test_saving.py::test_a_restart_overwrites_nothing_where_the_command_names_another_start",
    "signals": "training/test_stopping.py::test_a_signal_saves_and_the_run_goes_on_as_if_nothing_had_been",
    "broken-off-validations": "training/test_stopping.py::test_a_validation_that_is_broken_off_leaves_nothing_behind",
    "end-threads": "training/test_ending.py",
    "compiled-forms": "models/test_torch_compile.py::test_every_form_of_a_batch_is_compiled",
    "position-log": "training/test_watching.py::test_tensorboard_has_speed_scale_gradients_norms_and_pictures",
    "one-line-errors": "test_compat.py::test_missing_data_is_one_line",
    "logging": "test_compat.py::test_importing_the_plugin_leaves_logging_as_it_was",
    "not-alone": "test_compat.py::test_training_alone_in_each_rank_is_refused",
    "lost-samples": "test_compat.py::test_samples_that_validation_loses_are_reported_once",
    "ignored-flags": "tasks/test_denoising.py::test_the_command_refuses_noise_that_hides_everything",
    "starting-file": "test_wrong_input.py::"
    "test_a_missing_file_to_start_from_is_an_error_and_a_missing_last_checkpoint_is_none",
    "nearest-names": "test_wrong_input.py::test_an_unknown_name_or_flag_is_one_line_with_the_nearest",
    "overrides": "wrong_input/test_values.py::test_a_command_that_is_given_one_ends_in_one_line",
    "texts": "test_wrong_input.py::test_preprocess_refuses_what_is_no_text_before_it_writes_anything",
    "damaged-data": "test_wrong_input.py::test_damaged_data_ends_training_and_translating_in_one_line",
}


def passes(test, mends):
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "--no-header", f"tests/{test}"]
    given = {**os.environ, "FAIRSEQ_RELPOS_MENDS": mends, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: tests have failed
        raise SystemExit(f"mends: {test} cannot be run with {mends}: {done.stdout[-2000:]}")
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mends alone (default: all)")
    args = parser.parse_args()
    failed = 0
    names = args.names or list(TESTS)
    for name in tqdm(names, unit="mend"):
        with_all, without = passes(TESTS[name], "all"), passes(TESTS[name], f"-{name}")
        if not with_all or without:
            failed += 1
            tqdm.write(f"{name}: passes with all: {with_all}, without it: {without} ({TESTS[name]})")
    print(f"{len(names) - failed} of {len(names)} tests pass with all mends and fail without theirs")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
