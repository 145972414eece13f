"""Watching experiments: the model and the controls behind ``symphony top`` and ``symphony ui``.

`feed` observes an experiment in threads and sends updates. `experiment_model` folds the updates
into what is shown. A view only draws the model, so both views show the same.
"""
