// Counts of the low six bits: atomics on shared memory in a block, on global memory between blocks.
// histogram.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
#define BINS 64

extern "C" __global__ void histogram(const unsigned *x, unsigned *bins, int n) {
    __shared__ unsigned counts[BINS];
    if (threadIdx.x < BINS) counts[threadIdx.x] = 0;
    __syncthreads();
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        atomicAdd(&counts[x[i] % BINS], 1u);
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}
