"""Stands in for the package of CUDA's bindings in processes that tests start."""
