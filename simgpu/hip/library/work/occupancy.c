// Occupancy: how many workgroups of a kernel fit on a compute unit.
#include "internal.h"

u32 largest_block(const Function *function) {
    return function->max_block && function->max_block < MAX_BLOCK ? function->max_block : MAX_BLOCK;
}

// Asks the server, which uses the GPU's descriptor: the library knows neither granules nor register files.
Error blocks_per_cu(const Function *function, u32 dynamic_lds, u32 blocks[MAX_WAVES]) {
    u32 head[] = {function->number, dynamic_lds};
    Reply reply;
    Error error = ask(OCCUPANCY, head, sizeof head, NULL, 0, &reply);
    if (!error && reply.bytes != MAX_WAVES * sizeof *blocks) error = UNKNOWN_ERROR;
    if (!error) memcpy(blocks, reply.data, reply.bytes);
    free(reply.data);
    return error;
}

static Error active(int *result, const void *host, int block, size_t lds, u32 flags) {
    Function *function;
    u32 blocks[MAX_WAVES];
    Error error = begin();
    if (!error && (!result || block <= 0 || flags > 1)) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (error) return done(error);
    bool fits = (u32)block <= largest_block(function) && lds <= UINT32_MAX;
    if (fits) error = blocks_per_cu(function, (u32)lds, blocks);
    if (!error) *result = fits ? (int)blocks[(block - 1) / 64] : 0;
    return error ? done(error) : SUCCESS;
}

static Error potential(int *grid, int *block, const void *host, size_t lds, int limit) {
    Function *function;
    u32 blocks[MAX_WAVES];
    Error error = begin();
    if (!error && (!grid || !block)) error = INVALID_VALUE;
    if (!error) error = function_of(host, current_device, &function);
    if (!error && lds > UINT32_MAX) error = INVALID_VALUE;
    if (!error) error = blocks_per_cu(function, (u32)lds, blocks);
    if (error) return done(error);
    u32 most = largest_block(function), best = 0, best_block = 0;
    if (limit > 0 && (u32)limit < most) most = (u32)limit;
    for (u32 waves = (most + 63) / 64; waves; waves--) {
        u32 each = 64 * waves > most ? most : 64 * waves, threads = each * blocks[waves - 1];
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
    const Device *device = &state.device[current_device];
    size_t each = device->lds / (u32)blocks / device->lds_granule * device->lds_granule;
    *result = each > function->lds ? each - function->lds : 0;
    return done(SUCCESS);
}
