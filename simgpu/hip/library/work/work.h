// Queues of work, for the calls of streams and of events.
#ifndef SIMGPU_WORK_H
#define SIMGPU_WORK_H

#include "internal.h"

#define NON_BLOCKING 1u  // hipStreamNonBlocking
#define NO_TIMING 2u  // hipEventDisableTiming
#define INTERPROCESS 4u  // hipEventInterprocess

extern pthread_cond_t progress;  // some operation ended

// All of them under the lock, but `not_from_callbacks`.
Error push(Stream *stream, Operation *operation);  // queues it; owns it
Error push_wait(Stream *stream, Stream *other, u64 ticket);  // has the stream wait for another's operation
Error push_default_waits(Stream *stream);  // for what HIP's rules of the null stream say
bool blocks(const Stream *stream);  // with the null stream
void wait_for(Stream *stream, u64 ticket);
Stream *new_stream(int device, u32 flags, int priority, bool null);
Error not_from_callbacks(void);  // waiting in a stream's own thread would last for ever

// Of an event that processes share.
Error share_event(Event *event);
u64 begin_shared_record(const Event *event);  // the record's number
void end_shared_record(SharedEvent *shared, u64 ticket);
bool is_shared_ready(const Event *event);
void wait_shared(const Event *event);
Error push_shared_wait(Stream *stream, const Event *event);  // under the lock

#endif
