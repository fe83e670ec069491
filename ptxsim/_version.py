"""The version of ptxsim."""

__version__ = "0.1.0"
