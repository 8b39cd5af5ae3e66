// Transfers, shared by the files with calls that copy and fill.
#ifndef SIMGPU_TRANSFER_H
#define SIMGPU_TRANSFER_H

#include "internal.h"

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_POINTERS };  // hipMemcpyKind

typedef struct {
    void *stream;
    bool waits, given;  // waits: the call returns when the transfer is done; given: the call names the stream
    int kind;
} How;

#define AT_ONCE ((How){NULL, true, false, BY_POINTERS})

How in(void *stream);  // runs in the order of a stream
How with(How how, int kind);
Error begin_between(int to_device, int from_device, bool waits);  // begins a call that copies between devices
Error transfer(Transfer wanted, bool reads, How how);
Error copy(void *to, const void *from, size_t bytes, How how, void *site, const char *call);
Error copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, How how, void *site,
              const char *call);
Error transfer_3d(const Copy3D *parameters, Transfer *wanted);

#endif
