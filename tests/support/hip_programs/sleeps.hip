// Calls HIP, says which process it is, and sleeps.
#include "api.h"

extern "C" int getpid(void);
extern "C" int dprintf(int file, const char *format, ...);

int main() {
    void *memory;
    MUST(hipMalloc(&memory, 256));
    dprintf(1, "%d\n", getpid());
    for (int i = 0; i < 600; i++) usleep(1000000);
    return 0;
}
