// Kernels whose variables a debugger shows. SHOW(N, a, b) begins a line: there the debugger prints a and b of the first visit. With
// TRACE, the kernel stores them.
#ifdef TRACE
__device__ double shown[64][8][64];
template <class... T> __device__ void store(unsigned &seen, int n, T... v) {
    if (seen >> n & 1) return;
    seen |= 1u << n;
    int k = 0;
    ((shown[n][k++][threadIdx.x & 63] = (double)v), ...);
}
#define BEGIN unsigned seen = 0;
#define SHOW(N, ...) store(seen, N, __VA_ARGS__);
#else
#define BEGIN
#define SHOW(N, ...)
#endif
struct Particle { float x, y, z; int cell[2]; };
__constant__ float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__device__ int limit = 40;

__device__ float squared(float v) { float twice = v * v; return twice + 1; }

__global__ void axpy(const float *x, float *y, int n) {
    BEGIN
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i], b = y[i];
    float sum = a * 2 + b;
    SHOW(0, i, a, b, sum, n) if (i < n) y[i] = sum;
}
__global__ void reduce(const float *x, float *y, int n) {
    BEGIN
    __shared__ float part[64];
    int t = threadIdx.x;
    part[t] = x[t];
    __syncthreads();
    for (int half = 32; half; half /= 2) {
        SHOW(1, t, half, part[3], part[40]) if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    SHOW(2, t, part[0], part[1]) y[t] = part[0];
}
__global__ void stencil(const float *x, float *y, int n) {
    BEGIN
    int i = threadIdx.x;
    float sum = 0;
    for (int k = -2; k <= 2; k++) {
        int at = i + k < 0 ? 0 : i + k > n - 1 ? n - 1 : i + k;
        SHOW(3, i, at, sum, weights[1], weights[4]) sum += weights[k + 2] * x[at];
    }
    SHOW(4, i, sum, n) y[i] = sum;
}
__global__ void particles(const float *x, float *y, int n) {
    BEGIN
    int i = threadIdx.x;
    Particle p = {x[i], x[i] * 2, 3, {i / 8, i % 8}};
    for (int step = 0; step < n % 4 + 2; step++) {
        float r = p.x * p.x + p.y * p.y + p.z;
        SHOW(5, p.x, p.y, p.z, p.cell[0], p.cell[1], r, step) p.x += r * 0.01f;
        p.cell[step & 1] += 1;
    }
    SHOW(6, p.x, p.cell[0], p.cell[1], i) y[i] = p.x + p.cell[0] * p.cell[1];
}
__global__ void private_stack(const float *x, float *y, int n) {
    BEGIN
    float stack[70];
    int top = 0, i = threadIdx.x;
    for (int k = 0; k < n; k++) stack[top++] = x[(i + k) & 63];
    SHOW(7, i, top, stack[0], stack[5], stack[39]) float s = 0;
    while (top) s += stack[--top] * x[top & 63];
    SHOW(8, i, s, stack[2]) y[i] = s;
}
__global__ void histogram(const float *x, float *y, int n) {
    BEGIN
    __shared__ int bins[16];
    __shared__ float edges[17];
    int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    if (t < 17) edges[t] = t * 4;
    __syncthreads();
    int bin = (int)(x[t] / 4);
    SHOW(9, t, bin, edges[3], bins[2]) atomicAdd(&bins[bin & 15], 1);
    __syncthreads();
    SHOW(10, bins[0], bins[15], edges[16], bin) y[t] = bins[t & 15] + edges[t % 17];
}
__global__ void matrix(const float *x, float *y, int n) {
    BEGIN
    __shared__ float a[8][8], b[8][9];
    int row = threadIdx.x / 8, column = threadIdx.x % 8;
    a[row][column] = x[threadIdx.x];
    b[row][column] = x[63 - threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += a[row][k] * b[k][column];
    SHOW(11, row, column, sum, a[2][3], b[4][5]) y[threadIdx.x] = sum;
}
__global__ void collatz(const float *x, float *y, int n) {
    BEGIN
    long value = (long)x[threadIdx.x] + 1;
    int steps = 0;
    while (value != 1 && steps < n) {
        SHOW(12, value, steps) value = value & 1 ? 3 * value + 1 : value / 2;
        steps++;
    }
    SHOW(13, value, steps, limit) y[threadIdx.x] = steps + value;
}
__global__ void inlined(const float *x, float *y, int n) {
    BEGIN
    int i = threadIdx.x;
    float v = x[i];
    float first = squared(v);
    float second = squared(first - v);
    SHOW(14, v, first, second, i) y[i] = first * second;
}
__global__ void doubles(const float *x, float *y, int n) {
    BEGIN
    int i = threadIdx.x;
    double mean = 0, m2 = 0;
    for (int k = 1; k <= n; k++) {
        double delta = x[(i + k) & 63] - mean;
        mean += delta / k;
        SHOW(15, i, delta, mean, m2) m2 += delta * (x[(i + k) & 63] - mean);
    }
    SHOW(16, mean, m2, n) y[i] = (float)(m2 / n);
}
__global__ void small_types(const float *x, float *y, int n) {
    BEGIN
    short low = (short)(x[threadIdx.x] * 3);
    unsigned char byte = (unsigned char)(low * 7);
    bool odd = low & 1;
    unsigned hash = threadIdx.x * 2654435761u;
    SHOW(17, low, byte, odd, hash) y[threadIdx.x] = low + byte + (odd ? hash : n);
}
__global__ void pointers(const float *x, float *y, int n) {
    BEGIN
    const float *from = x + threadIdx.x, *end = x + 64;
    float s = 0;
    for (int k = 0; from < end && k < n; from++, k++) {
        SHOW(18, *from, s, k, from[0]) s += *from * x[k & 63];
    }
    SHOW(19, s, n) y[threadIdx.x] = s;
}
