// Two devices: each has its own memory, variables and streams; peers reach each other when they are asked to.
#include "api.h"

__device__ int where;
__global__ void put(int value) { where = value; }
__global__ void take(int *out) { out[threadIdx.x] += where; }

int main() {
    int count, can, host[64], *on[2];
    MUST(hipGetDeviceCount(&count));
    CHECK(count == 2);
    EXPECT(hipErrorInvalidDevice, hipSetDevice(2));
    for (int i = 0; i < 2; i++) {
        MUST(hipSetDevice(i));
        MUST(hipMalloc((void **)&on[i], 256));
        MUST(hipMemset(on[i], 0, 256));
        put<<<1, 1>>>(10 + i);
        take<<<1, 64>>>(on[i]);
    }
    for (int i = 0; i < 2; i++) {
        MUST(hipMemcpy(host, on[i], 256, hipMemcpyDeviceToHost));
        CHECK(host[5] == 10 + i);
    }
    MUST(hipMemcpyPeer(on[1], 1, on[0], 0, 256));
    MUST(hipMemcpy(host, on[1], 256, hipMemcpyDeviceToHost));
    CHECK(host[5] == 10);
    MUST(hipDeviceCanAccessPeer(&can, 1, 0));
    CHECK(can == 1);
    MUST(hipSetDevice(1));
    MUST(hipDeviceEnablePeerAccess(0, 0));
    EXPECT(704, hipDeviceEnablePeerAccess(0, 0));
    take<<<1, 64>>>(on[0]);
    MUST(hipDeviceSynchronize());
    MUST(hipMemcpy(host, on[0], 256, hipMemcpyDeviceToHost));
    CHECK(host[5] == 21);

    // The last two of three columns and of four rows, in both of two slices, to the other device's second slice and on.
    for (int i = 0; i < 64; i++) host[i] = i;
    MUST(hipMemcpy(on[0], host, 256, hipMemcpyHostToDevice));
    MUST(hipMemset(on[1], 255, 256));
    PeerCopy3D box = {{nullptr, 4, 2, 0, {on[0], 12, 12, 4}, 0}, {nullptr, 0, 0, 1, {on[1], 8, 8, 2}, 1}, 8, 2, 2};
    MUST(hipMemcpy3DPeer(&box));
    MUST(hipMemcpy(host, on[1], 256, hipMemcpyDeviceToHost));
    CHECK(host[3] == -1 && host[12] == -1);
    CHECK(host[4] == 7 && host[5] == 8 && host[6] == 10 && host[7] == 11 && host[8] == 19 && host[11] == 23);
    box.to.z = 0;
    MUST(hipMemcpy3DPeerAsync(&box, nullptr));
    MUST(hipDeviceSynchronize());
    MUST(hipMemcpy(host, on[1], 256, hipMemcpyDeviceToHost));
    CHECK(host[0] == 7 && host[4] == 19 && host[12] == -1);
    box.to.device = 2;
    EXPECT(hipErrorInvalidDevice, hipMemcpy3DPeer(&box));
    EXPECT(hipErrorInvalidValue, hipMemcpy3DPeerAsync(nullptr, nullptr));
    for (int i = 0; i < 2; i++) MUST(hipFree(on[i]));

    // Without peer access it is a fault, and the other device goes on.
    MUST(hipSetDevice(0));
    int *mine, *theirs;
    MUST(hipMalloc((void **)&mine, 256));
    MUST(hipMemset(mine, 0, 256));
    MUST(hipSetDevice(1));
    MUST(hipMalloc((void **)&theirs, 256));
    MUST(hipSetDevice(0));
    take<<<1, 64>>>(theirs);
    EXPECT(hipErrorIllegalAddress, hipDeviceSynchronize());
    EXPECT(hipErrorIllegalAddress, hipMemcpy(host, mine, 256, hipMemcpyDeviceToHost));
    MUST(hipSetDevice(1));
    MUST(hipMemset(theirs, 0, 256));
    take<<<1, 64>>>(theirs);
    MUST(hipMemcpy(host, theirs, 256, hipMemcpyDeviceToHost));
    CHECK(host[5] == 11);
    MUST(hipSetDevice(0));
    MUST(hipDeviceReset());
    MUST(hipMalloc((void **)&mine, 256));
    put<<<1, 1>>>(3);
    MUST(hipDeviceSynchronize());
    printf("PASS\n");
}
