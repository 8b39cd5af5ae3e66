// Textures and surfaces: a use is an error that says so, as with HIP's headers for MI300 (amd_detail/texture_fetch_functions.h).
#pragma once
#define SIMGPU_NO __attribute__((unavailable("MI300 and MI350 have no textures, and no board's are simulated")))
#define cudaReadModeElementType hipReadModeElementType // so that the error is about the texture in CUDA's sources, too
#define cudaReadModeNormalizedFloat hipReadModeNormalizedFloat
template <class T, int = hipTextureType1D, hipTextureReadMode = hipReadModeElementType> struct SIMGPU_NO texture {};
typedef struct __hip_texture *hipTextureObject_t;
typedef struct __hip_surface *hipSurfaceObject_t;
#define SIMGPU_FETCH(NAME)                                        \
    template <class T, class... A> SIMGPU_NO __device__ T NAME(A...); \
    template <class... A> SIMGPU_NO __device__ void NAME(A...);
SIMGPU_FETCH(tex1Dfetch) SIMGPU_FETCH(tex1D) SIMGPU_FETCH(tex2D) SIMGPU_FETCH(tex3D) SIMGPU_FETCH(texCubemap)
SIMGPU_FETCH(tex1DLod) SIMGPU_FETCH(tex2DLod) SIMGPU_FETCH(tex3DLod) SIMGPU_FETCH(tex1DGrad) SIMGPU_FETCH(tex2DGrad)
SIMGPU_FETCH(tex3DGrad) SIMGPU_FETCH(tex1DLayered) SIMGPU_FETCH(tex2DLayered) SIMGPU_FETCH(tex2Dgather)
SIMGPU_FETCH(surf1Dread) SIMGPU_FETCH(surf1Dwrite) SIMGPU_FETCH(surf2Dread) SIMGPU_FETCH(surf2Dwrite)
SIMGPU_FETCH(surf3Dread) SIMGPU_FETCH(surf3Dwrite) SIMGPU_FETCH(surf2DLayeredread) SIMGPU_FETCH(surf2DLayeredwrite)
#undef SIMGPU_FETCH
#undef SIMGPU_NO
