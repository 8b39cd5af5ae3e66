// The arena's allocations, for what registers the program's own memory, maps memory by hand and looks pointers up.
#ifndef SIMGPU_MEMORY_H
#define SIMGPU_MEMORY_H

#include "internal.h"

#define PAGE 4096ull

// Memory that lies out of the arena's table: registered, a module's, or mapped by hand.
typedef struct Registration {
    Allocation allocation;
    struct Registration *next;
} Registration;

extern Registration *registered;  // under the lock, as all here
extern int arena;  // descriptor of the file behind it

u64 round_up(u64 value, u64 to);
u64 next_number(Memory memory);  // the n-th of its kind
u64 take_addresses(u64 bytes, u64 alignment);  // of the arena, never given out before; 0: there are not so many
void discard(u64 address, u64 bytes);  // whole pages of the arena read as 0 again
void call_sites(void *site, void **sites);  // addresses of a call and of what called it, from the program's own on

#endif
