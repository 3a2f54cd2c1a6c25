// What callers of cuBLAS, cuFFT, cuDNN and NVML read of them; all other functions say that they succeeded (see build.py).

#include <stdlib.h>
#include <string.h>

static int made(void **handle) {
    *handle = malloc(256);
    return 0;
}

#ifdef CUBLAS
int cublasCreate_v2(void **handle) { return made(handle); }

int cublasGetMathMode(void *handle, int *mode) {
    *mode = 0;
    return 0;
}

int cublasGetPointerMode_v2(void *handle, int *mode) { return cublasGetMathMode(handle, mode); }
#endif

#ifdef CUBLASLT
size_t cublasLtGetVersion(void) { return 130002; }
int cublasLtMatmulDescCreate(void **description) { return made(description); }
int cublasLtMatrixLayoutCreate(void **layout) { return made(layout); }
int cublasLtMatmulPreferenceCreate(void **preference) { return made(preference); }

int cublasLtMatmulAlgoGetHeuristic(
    void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int most, void *algorithms,
    int *found
) {
    const size_t size = 96;  // of a cublasLtMatmulHeuristicResult_t
    memset(algorithms, 0, most * size);
    *found = 1;
    return 0;
}
#endif

#ifdef CUFFT
int cufftCreate(int *plan) {
    *plan = 1;
    return 0;
}

int cufftXtMakePlanMany(
    int plan, int rank, long long *sizes, long long *from, long long from_step, long long from_size, int from_type,
    long long *to, long long to_step, long long to_size, int to_type, long long batch, size_t *workspace, int type
) {
    *workspace = 0;
    return 0;
}
#endif

#ifdef CUDNN
size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
int cudnnCreate(void **handle) { return made(handle); }
const char *cudnnGetErrorString(int status) { return "null CUDA"; }
#endif

#ifdef NVML
int nvmlInit(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return 0;
}
#endif
