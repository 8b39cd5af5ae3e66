// Queues of work, shared by the files with calls for streams and events.
#ifndef SIMGPU_WORK_H
#define SIMGPU_WORK_H

#include "internal.h"

#define NON_BLOCKING 1u  // hipStreamNonBlocking
#define NO_TIMING 2u  // hipEventDisableTiming
#define INTERPROCESS 4u  // hipEventInterprocess

extern pthread_cond_t progress;  // signalled when an operation ends

// Hold the lock for all of these except `not_from_callbacks`.
Error push(Stream *stream, Operation *operation);  // queues the operation, and owns it
Error push_wait(Stream *stream, Stream *other, u64 ticket);  // makes the stream wait for another's operation
Error push_default_waits(Stream *stream);  // makes the stream wait by HIP's rules of the null stream
bool blocks(const Stream *stream);  // true if it blocks with the null stream
void wait_for(Stream *stream, u64 ticket);
u64 order_place(const Operation *operation);  // the stream or branch, and the ticket there, by which the log knows it
u64 order_ticket(const Operation *operation);
void order_stream(const Stream *made);  // these four log what happens
void order_queued(const Operation *operation);
void order_waits(const Stream *stream, const Stream *other, u64 ticket);
void order_seen(Stream *stream, u64 ticket);
Stream *new_stream(int device, u32 flags, int priority, bool null);
Error not_from_callbacks(void);  // NOT_SUPPORTED in a stream's own thread, where waiting would last for ever

// Events that processes share.
Error share_event(Event *event);
u64 begin_shared_record(const Event *event);  // returns the record's number
void end_shared_record(SharedEvent *shared, u64 ticket);
bool is_shared_ready(const Event *event);
void wait_shared(const Event *event);
Error push_shared_wait(Stream *stream, const Event *event);  // hold the lock

#endif
