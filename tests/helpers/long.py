"""Tests that take more than about a second of a processor: `make check` leaves them out, `make test` runs them."""

LONG = {
    "cli/test_cli.py": "test_the_command_in_a_process_of_its_own",
    "papers/test_cli_heads.py": "test_a_mask_is_found_written_drawn_and_used",
    "cli/test_cli_tokens.py": "test_what_was_left_out_is_said test_the_words_that_a_model_relies_on",
    "papers/test_cli_words.py": "test_tables_are_printed_written_and_drawn test_weights",
    "cli/test_cost.py": "test_the_command test_json",
    "cli/test_terminal.py": (
        "test_an_evaluation_is_printed_whatever_the_encoding test_closed_and_full_streams_are_one_line "
        "test_a_whole_process_on_a_terminal test_ctrl_c_is_one_line_whenever_it_comes"
    ),
    "contract/test_architectures.py": "test_a_compiled_model_is_explained_as_the_model_it_was_made_from",
    "contract/test_image_architectures.py": (
        "test_no_method_fails_without_a_name test_what_has_no_one_stack_is_explained_by_its_patches "
        "test_recorded_logits_are_the_models_own"
    ),
    "contract/test_odd_uses.py": "test_a_run_is_forgotten_with_its_scores",
    "contract/test_package.py": (
        "test_importing_the_package_does_not_import_what_it_may_not_need "
        "test_methods_and_metrics_are_functions_whatever_is_imported_first"
    ),
    "contract/test_plugins.py": (
        "test_a_toy_task_input_hide_and_format_explain test_methods_and_metrics_are_used_and_listed "
        "test_a_broken_plug_in_is_named_and_the_rest_goes_on "
        "test_plug_ins_are_not_imported_before_they_are_needed"
    ),
    "contract/test_prefixes.py": (
        "test_nor_are_states_of_recurrent_layers test_methods_give_the_same_scores_of_padded_texts"
    ),
    "contract/test_real_model.py": "test_half_precision_ranks_units_as_float32_does",
    "contract/test_rounding.py": "test_other_arithmetics",
    "contract/test_running.py": "test_memory_is_that_of_a_plain_gradient",
    "contract/test_threads.py": "test_a_model_predicts_while_another_thread_explains_it",
    "datasets/test_dataset_recipes.py": "test_importing_does_not_import_the_extra",
    "datasets/test_reading_datasets.py": "test_memory_does_not_grow_with_the_rows",
    "evaluation/test_best_layer.py": "test_by_the_keyword_of_recommend_and_of_an_explainer test_the_command",
    "evaluation/test_evaluate.py": (
        "test_adding_the_ceiling_computes_only_that test_the_same_rows_in_other_formats_give_the_same_table "
        "test_a_method_added_to_half_a_run_ends_as_a_whole_one test_an_interrupted_run_goes_on_as_if_nothing_had_been "
        "test_numbers_that_do_not_go_with_those_in_the_folder_are_refused "
        "test_a_run_that_is_complete_does_nothing_more test_the_table_is_that_of_the_records"
    ),
    "evaluation/test_image_data.py": (
        "test_a_journal_is_gone_on_with test_images_have_a_ceiling_and_a_chance "
        "test_a_table_has_the_numbers_of_the_metrics"
    ),
    "evaluation/test_journal.py": (
        "test_chunks_are_streamed test_a_tail_torn_at_any_byte_is_cut_off "
        "test_killed_at_random_moments_nothing_is_lost_or_doubled"
    ),
    "evaluation/test_kept_scores.py": "test_what_comes_back_is_what_compare_shows",
    "evaluation/test_keys.py": "test_code_has_one_hash_in_all_processes",
    "evaluation/test_shortcuts.py": (
        "test_a_planted_word_comes_first test_a_planted_word_of_one_side_comes_first "
        "test_effects_are_those_of_deleting_the_word"
    ),
    "papers/test_reproduce.py": (
        "test_a_table_is_what_evaluate_measures test_importing_is_cheap test_words_that_classes_share "
        "test_differences_are_between_shares"
    ),
    "papers/test_reproduce_all.py": (
        "test_one_page_of_what_can_be_run test_recipes_of_the_same_data_share_a_journal "
        "test_what_was_measured_elsewhere test_the_command"
    ),
    "papers/test_reproduce_decoded.py": (
        "test_the_command test_the_models_own_head_needs_no_option test_numbers_of_decoded_rows_are_those_of_evaluate"
    ),
    "papers/test_reproduce_heads.py": (
        "test_the_command test_a_run_goes_on_with_more_texts_and_another_mask test_rows_are_what_evaluate_measures"
    ),
    "evaluation/test_stepwise_pitfalls.py": "test_recommend_measures_more_effort",
    "evaluation/test_stepwise_trust.py": "test_the_bundled_model_in_float32 test_a_saved_explanation_is_trusted_alike",
    "evaluation/test_trust.py": (
        "test_the_command_line_with_a_file test_it_is_the_same_again_alone_and_beside_others test_the_command_line "
        "test_a_long_text_has_no_ceiling test_the_command_line_compares "
        "test_a_class_that_was_not_predicted_may_be_explained test_trust_of_the_bundled_model_is_what_loops_find "
        "test_explanations_of_one_input_share_the_random_orders_and_the_search"
    ),
    "fuzz/test_saved_files.py": "test_journals test_head_masks",
    "mutants/test_mutants.py": "test_what_is_seen_is_killed_and_what_is_not_survives",
    "properties/test_attention.py": "test_attend_is_scaled_dot_product_attention",
    "show/test_index_page.py": "test_the_command",
    "show/test_show.py": "test_everything_registered_can_be_shown",
}
