"""Predicate-peeled, circular-buffered loops of cp.async."""
