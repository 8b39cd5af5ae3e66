// Objects that programs hold. All are in one range of addresses, and no address is used twice. Each begins with a seal made of its
// kind and its address. So the library recognizes pointers that are no objects, and objects that the program destroyed.
#include "internal.h"

#include <sys/mman.h>

#define ROOM (16ull << 30)  // reserved, not used
#define GRAIN 64
#define LIVE 0x51a6b0d1e57ull
#define DEAD 0x0ddba11c0deull

static u8 *room;
static size_t taken;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static u64 seal(const void *pointer, Kind kind, u64 with) {
    return ((u64)pointer * 0x9e3779b97f4a7c15ull) ^ (with << 8) ^ (u64)kind;
}

void *make_handle(Kind kind, size_t bytes) {
    bytes = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    pthread_mutex_lock(&making);
    if (!room) {
        void *got = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        room = got == MAP_FAILED ? NULL : got;
    }
    Handle *made = room && taken + bytes <= ROOM ? (Handle *)(room + taken) : NULL;
    if (made) taken += bytes, made->seal = seal(made, kind, LIVE);
    pthread_mutex_unlock(&making);
    return made;
}

static bool sealed(const void *pointer, Kind kind, u64 with) {
    const u8 *at = pointer;
    if (!room || at < room || at >= room + taken || (size_t)(at - room) % GRAIN) return false;
    return ((const Handle *)pointer)->seal == seal(pointer, kind, with);
}

bool is_handle(const void *pointer, Kind kind) { return sealed(pointer, kind, LIVE); }
bool was_handle(const void *pointer, Kind kind) { return sealed(pointer, kind, DEAD); }
void end_handle(void *pointer, Kind kind) { ((Handle *)pointer)->seal = seal(pointer, kind, DEAD); }
