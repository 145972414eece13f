"""The fields that users give, and merging them into rendered objects."""
