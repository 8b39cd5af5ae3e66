// Complex numbers: float2 and double2, with functions whose names begin with hipC; those of float end with f.
#pragma once
typedef float2 hipFloatComplex;
typedef float2 hipComplex;
typedef double2 hipDoubleComplex;
#define SIMGPU_COMPLEX(C, T, NAME, F)                                                                                     \
    SIMGPU_INLINE C make_hip##NAME##Complex(T real, T imaginary) { return C(real, imaginary); }                           \
    SIMGPU_INLINE T hipCreal##F(C z) { return z.x; }                                                                      \
    SIMGPU_INLINE T hipCimag##F(C z) { return z.y; }                                                                      \
    SIMGPU_INLINE C hipConj##F(C z) { return C(z.x, -z.y); }                                                              \
    SIMGPU_INLINE T hipCsqabs##F(C z) { return z.x * z.x + z.y * z.y; }                                                   \
    SIMGPU_INLINE C hipCadd##F(C a, C b) { return C(a.x + b.x, a.y + b.y); }                                              \
    SIMGPU_INLINE C hipCsub##F(C a, C b) { return C(a.x - b.x, a.y - b.y); }                                              \
    SIMGPU_INLINE C hipCmul##F(C a, C b) { return C(a.x * b.x - a.y * b.y, a.y * b.x + a.x * b.y); }                      \
    SIMGPU_INLINE C hipCdiv##F(C a, C b) {                                                                                \
        T size = hipCsqabs##F(b);                                                                                         \
        return C((a.x * b.x + a.y * b.y) / size, (a.y * b.x - a.x * b.y) / size);                                         \
    }                                                                                                                     \
    SIMGPU_INLINE T hipCabs##F(C z) { return __builtin_sqrt##F(hipCsqabs##F(z)); }                                        \
    SIMGPU_INLINE C hipCfma##F(C a, C b, C c) {                                                                           \
        return C(a.x * b.x + c.x - a.y * b.y, a.x * b.y + c.y + a.y * b.x);                                               \
    }
SIMGPU_COMPLEX(hipFloatComplex, float, Float, f)
SIMGPU_COMPLEX(hipDoubleComplex, double, Double, )
SIMGPU_INLINE hipComplex make_hipComplex(float real, float imaginary) { return hipComplex(real, imaginary); }
SIMGPU_INLINE hipFloatComplex hipComplexDoubleToFloat(hipDoubleComplex z) { return hipFloatComplex((float)z.x, (float)z.y); }
SIMGPU_INLINE hipDoubleComplex hipComplexFloatToDouble(hipFloatComplex z) { return hipDoubleComplex(z.x, z.y); }
