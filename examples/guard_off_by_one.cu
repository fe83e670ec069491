// Faulty on purpose: the guard lets the thread with i == n through, one element past the end.
// guard_off_by_one.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
extern "C" __global__ void scale(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 2.0f * x[i];
}
