"""Following the objects of experiments: lists and watches, and what readers derive from them."""
