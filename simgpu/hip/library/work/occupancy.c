// How many workgroups of a kernel fit a compute unit.
#include "internal.h"

static u32 up(u32 value, u32 to) { return (value + to - 1) / to * to; }

u32 blocks_per_cu(const Function *function, u32 block, u32 dynamic_lds) {
    const Device *device = &state.device[function->module->device];
    u32 waves = (block + 63) / 64, lds = function->lds + dynamic_lds;
    if (!waves || lds > device->lds) return 0;
    u32 used = device->unified ? up(up(function->vgprs, 4) + function->agprs, device->granule)
                               : up(function->vgprs > function->agprs ? function->vgprs : function->agprs, device->granule);
    u32 fit = used ? device->registers / used : device->waves;
    if (fit > device->waves) fit = device->waves;
    u32 blocks = fit * device->simds / waves;
    return lds && blocks > device->lds / lds ? device->lds / lds : blocks;
}

static Error active(int *result, const void *host, int block, size_t lds, u32 flags) {
    Function *function;
    Error error = begin();
    if (!error && (!result || block <= 0 || flags > 1)) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    bool fits = (u32)block <= (function->max_block ? function->max_block : MAX_BLOCK) && lds <= UINT32_MAX;
    *result = fits ? (int)blocks_per_cu(function, (u32)block, (u32)lds) : 0;
    return SUCCESS;
}

static Error potential(int *grid, int *block, const void *host, size_t lds, int limit) {
    Function *function;
    Error error = begin();
    if (!error && (!grid || !block)) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    u32 most = function->max_block ? function->max_block : MAX_BLOCK, best = 0, best_block = 0;
    if (limit > 0 && (u32)limit < most) most = (u32)limit;
    for (u32 size = up(most, 64); size >= 64; size -= 64) {
        u32 each = size > most ? most : size, threads = each * blocks_per_cu(function, each, (u32)lds);
        if (threads > best) best = threads, best_block = each;
    }
    *block = (int)best_block;
    *grid = best_block ? (int)(best / best_block * state.device[current_device].compute_units) : 0;
    return SUCCESS;
}

API Error hipOccupancyMaxActiveBlocksPerMultiprocessor(int *r, const void *f, int block, size_t lds) {
    return active(r, f, block, lds, 0);
}
API Error hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *r, const void *f, int block, size_t lds, u32 flags) {
    return active(r, f, block, lds, flags);
}
API Error hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *r, Function *f, int block, size_t lds) {
    return active(r, f, block, lds, 0);
}
API Error hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *r, Function *f, int block, size_t lds, u32 flags) {
    return active(r, f, block, lds, flags);
}
API Error hipOccupancyMaxPotentialBlockSize(int *grid, int *block, const void *f, size_t lds, int limit) {
    return potential(grid, block, f, lds, limit);
}
API Error hipModuleOccupancyMaxPotentialBlockSize(int *grid, int *block, Function *f, size_t lds, int limit) {
    return potential(grid, block, f, lds, limit);
}

API Error hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, Function *f, size_t lds, int limit, u32 flags) {
    return flags > 1 ? done(INVALID_VALUE) : potential(grid, block, f, lds, limit);
}

API Error hipOccupancyAvailableDynamicSMemPerBlock(size_t *result, const void *host, int blocks, int block) {
    Function *function;
    Error error = begin();
    if (!error && (!result || blocks <= 0 || block <= 0)) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    size_t each = state.device[current_device].lds / (u32)blocks;
    *result = each > function->lds ? each - function->lds : 0;
    return done(SUCCESS);
}
