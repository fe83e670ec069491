"""Speed and memory of the simulator on a fixed set of kernels."""

__all__: list[str] = []
