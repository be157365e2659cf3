"""Tables and pictures of what training left behind.

- One run: ``training_log`` reads its log, ``run_folder`` what lies beside it. ``learning_rates`` says whether it has
  diverged, and chooses the best rate.
- Several runs: ``run_settings`` says in which settings they differ, ``differences`` how far their figures are apart.
  ``recipe_runs`` is what the reports of recipes have in common, ``compare`` the command for any runs.
- Scored runs, of fine-tuning and sweeps: ``score_table`` is a pandas table of them, ``sweeps`` the report of a sweep.
- Models: ``order_gap`` and ``extrapolation`` measure how one uses positions; ``checkpoint`` loads it.
- Generated text: ``translation_scores`` and ``question_scores``; ``translation_report`` has the tables of translations.
- Pages: ``markdown`` makes tables, ``page`` a report in Markdown and in HTML.
- Pictures: ``figures`` has their style, ``curves`` draws lines over updates or lengths, ``*_plot(s)`` the rest.
"""
