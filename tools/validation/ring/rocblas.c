// Runs rocBLAS's kernels for one product, D = alpha * op(A) * op(B) + beta * C, and writes each D to a file.
//
//     rocblas LIBRARY COUNT SEED OPA OPB M N K TYPE_AB TYPE_CD COMPUTE BYTES_A BYTES_B BYTES_C
//
// A, B and C are the files a, b and c of the current folder, in columns without gaps. OP.. and TYPE.. are rocBLAS's numbers.
// It runs the kernel that rocBLAS chooses (file 0), and COUNT of all others that can compute it, drawn by SEED (files 1 and up).
// It prints a line "file, solution, status" for each, after a line with the number of all.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { STANDARD = 0, BY_INDEX = 1, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, F64 = 152 };

typedef int (*function)();

static function named(const char *name) {
    function found = (function)dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

static void *uploaded(const char *name, size_t bytes) {
    void *host = malloc(bytes), *device = 0;
    FILE *file = fopen(name, "rb");
    if (!file || fread(host, 1, bytes, file) != bytes) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    fclose(file);
    named("hipMalloc")(&device, bytes);
    named("hipMemcpy")(device, host, bytes, HOST_TO_DEVICE);
    free(host);
    return device;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv) {
    if (argc != 15 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", argc == 15 ? dlerror() : "14 arguments are needed");
        return 2;
    }
    int value[15];
    for (int i = 2; i < argc; i++)
        value[i] = atoi(argv[i]);
    int count = value[2], op_a = value[4], op_b = value[5], m = value[6], n = value[7], k = value[8];
    int in = value[9], out = value[10], compute = value[11], none = 111;
    size_t bytes = value[14];
    void *a = uploaded("a", value[12]), *b = uploaded("b", value[13]), *c = uploaded("c", bytes), *d = 0;
    named("hipMalloc")(&d, bytes);
    union { float f32; double f64; int i32; } alpha = {.f32 = 2}, beta = {.f32 = 1};
    if (compute == F64)
        alpha.f64 = 2, beta.f64 = 1;
    void *handle = 0;
    named("rocblas_create_handle")(&handle);
    int lda = op_a == none ? m : k, ldb = op_b == none ? k : n, *solutions = 0, all = 0;
    for (int round = 0; round < 2; round++) {  // the first asks for their number
        named("rocblas_gemm_ex_get_solutions")(handle, op_a, op_b, m, n, k, &alpha, a, in, lda, b, in, ldb, &beta, c, out, m, d, out,
                                               m, compute, BY_INDEX, 0, solutions, &all);
        if (!round)
            solutions = calloc(all + 1, sizeof(int));
    }
    qsort(solutions, all, sizeof(int), compare);
    uint64_t state = value[3];
    for (int i = 0; i < all && i < count; i++) {  // the first of a shuffle
        state = state * 6364136223846793005u + 1442695040888963407u;
        int other = i + (int)((state >> 33) % (uint64_t)(all - i)), swapped = solutions[i];
        solutions[i] = solutions[other], solutions[other] = swapped;
    }
    printf("%d\n", all);
    void *result = malloc(bytes);
    for (int i = 0; i <= all && i <= count; i++) {
        int solution = i ? solutions[i - 1] : 0;
        named("hipMemset")(d, 0, bytes);
        int status = named("rocblas_gemm_ex")(handle, op_a, op_b, m, n, k, &alpha, a, in, lda, b, in, ldb, &beta, c, out, m, d, out, m,
                                              compute, i ? BY_INDEX : STANDARD, solution, 0);
        named("hipMemcpy")(result, d, bytes, DEVICE_TO_HOST);
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        FILE *file = fopen(name, "wb");
        fwrite(result, 1, bytes, file);
        fclose(file);
        printf("%d %d %d\n", i, solution, status);
        fflush(stdout);
    }
    return 0;
}
