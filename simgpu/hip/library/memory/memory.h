// The arena's allocations, shared by the files of this folder.
#ifndef SIMGPU_MEMORY_H
#define SIMGPU_MEMORY_H

#include "internal.h"

#define PAGE 4096ull

// Memory outside the arena's table: registered, a module's, mapped by hand, or another process's.
typedef struct Registration {
    Allocation allocation;
    struct Registration *next;
} Registration;

extern Registration *registered;  // hold the lock, as for all here
extern int arena;  // descriptor of the arena's file

u64 round_up(u64 value, u64 to);
u64 next_number(Memory memory);  // number of the next allocation of this kind
u64 take_addresses(u64 bytes, u64 alignment);  // unused addresses of the arena; 0: not enough left
void undefine(u64 address, u64 bytes);  // marks whole dwords of the arena as never written, if definedness is tracked
void discard(u64 address, u64 bytes);  // makes whole pages of the arena read as 0 again

#endif
